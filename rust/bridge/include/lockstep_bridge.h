/* C interface to Hugging Face's tokenizers and to minijinja set up for chat templates (rust/bridge).
 *
 * Rules for every function
 * - A text is pointer and size in bytes, UTF-8, not ended by zero. Where "or null" is said, data may be null.
 * - Functions that can fail return a code and, when it is not LSB_OK, fill *error with words for people, to be freed
 *   with lsb_string_free; their outputs are then untouched. A Rust panic ends as LSB_PANIC, never as an abort.
 * - Whatever is put into an `out` argument belongs to the caller and is freed with the matching *_free (null is fine).
 * - Functions on a const handle may be called from several threads at once; new and free may not race with them.
 */
#ifndef LOCKSTEP_BRIDGE_H
#define LOCKSTEP_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  LSB_OK = 0,
  LSB_INVALID = 1,  /* input: UTF-8, JSON, tokenizer.json, ids */
  LSB_TEMPLATE = 2, /* a fault in a template, or in how it meets these messages */
  LSB_RAISED = 3,   /* the template called raise_exception; the error text is its message */
  LSB_PANIC = 4     /* a bug */
};

typedef struct lsb_text {
  const uint8_t* data;
  size_t size;
} lsb_text;

typedef struct lsb_string {
  uint8_t* data;
  size_t size;
} lsb_string;

void lsb_string_free(lsb_string text);

/* ---- tokenizers ---- */

typedef struct lsb_tokenizer lsb_tokenizer;
typedef struct lsb_encoding lsb_encoding;

/* From the content of a tokenizer.json. Its truncation and padding are switched off, as transformers does. */
int32_t lsb_tokenizer_new(lsb_text json, lsb_tokenizer** out, lsb_string* error);
void lsb_tokenizer_free(lsb_tokenizer* tokenizer);

/* Number of tokens, added ones included. */
size_t lsb_tokenizer_vocab_size(const lsb_tokenizer* tokenizer);
int32_t lsb_tokenizer_token_to_id(const lsb_tokenizer* tokenizer, lsb_text token, bool* found, uint32_t* id,
                                  lsb_string* error);
/* *token is to be freed also when nothing was found (it is empty then). */
int32_t lsb_tokenizer_id_to_token(const lsb_tokenizer* tokenizer, uint32_t id, bool* found, lsb_string* token,
                                  lsb_string* error);

/* One text, or a pair when second.data is not null. Without offsets it is faster.
 * max_length > 0: at most that many tokens. Those cut are the texts' own, never special ones that were added: the longest
 * text first, from its end, or from its start with cut_left. It is an error if the special tokens alone are more. */
int32_t lsb_tokenizer_encode(const lsb_tokenizer* tokenizer, lsb_text first, lsb_text second_or_null,
                             bool add_special_tokens, bool with_offsets, size_t max_length, bool cut_left,
                             lsb_encoding** out, lsb_string* error);
/* An id outside the vocabulary is an error (tokenizers itself would leave it out). */
int32_t lsb_tokenizer_decode(const lsb_tokenizer* tokenizer, const uint32_t* ids, size_t size,
                             bool skip_special_tokens, lsb_string* out, lsb_string* error);

size_t lsb_encoding_size(const lsb_encoding* encoding);
/* `size` values each; valid until the encoding is freed. */
const uint32_t* lsb_encoding_ids(const lsb_encoding* encoding);
const uint32_t* lsb_encoding_type_ids(const lsb_encoding* encoding);
/* 2 x `size` values: start and end of each token in code points of its text; null when not asked for (or empty). */
const uint32_t* lsb_encoding_offsets(const lsb_encoding* encoding);
/* Tokens cut at max_length. */
size_t lsb_encoding_cut(const lsb_encoding* encoding);
void lsb_encoding_free(lsb_encoding* encoding);

/* ---- chat templates ---- */

typedef struct lsb_template lsb_template;
typedef struct lsb_rendered lsb_rendered;

typedef struct lsb_render_input {
  lsb_text messages;               /* a JSON array of objects */
  lsb_text tools_or_null;          /* JSON */
  lsb_text extra_or_null;          /* a JSON object whose entries become variables */
  lsb_text special_tokens_or_null; /* the same, for bos_token and its like; `extra` wins */
  lsb_text now_or_null;            /* for strftime_now, as 2026-01-31T12:00:00; null: the present local time */
  bool add_generation_prompt;
  bool continue_final_message; /* the text ends with the last message's content; excludes add_generation_prompt */
} lsb_render_input;

typedef struct lsb_span {
  uint64_t start;
  uint64_t end;
} lsb_span;

int32_t lsb_template_new(lsb_text source, lsb_template** out, lsb_string* error);
void lsb_template_free(lsb_template* chat_template);
/* Whether the source has {% generation %} blocks. */
bool lsb_template_has_generation(const lsb_template* chat_template);
int32_t lsb_template_render(const lsb_template* chat_template, const lsb_render_input* input, lsb_rendered** out,
                            lsb_string* error);

/* Valid until the rendering is freed. */
lsb_text lsb_rendered_text(const lsb_rendered* rendered);
size_t lsb_rendered_num_spans(const lsb_rendered* rendered);
/* The texts of the {% generation %} blocks, in code points of the rendered text, in the order they end. */
const lsb_span* lsb_rendered_spans(const lsb_rendered* rendered);
void lsb_rendered_free(lsb_rendered* rendered);

#ifdef __cplusplus
}
#endif

#endif
