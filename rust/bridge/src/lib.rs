//! The C interface that include/lockstep_bridge.h describes. This file holds only the crossing: pointers,
//! error codes, panics. `tokenizer` and `template` do the work.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

mod ascii_words;
mod generation;
mod json;
mod python;
mod template;
mod truncation;

use ascii_words::AsciiWords;
use template::{Failure, Input, Rendered, Template};
use tokenizers::{Encoding, Tokenizer};

const OK: i32 = 0;
const INVALID: i32 = 1;
const TEMPLATE: i32 = 2;
const RAISED: i32 = 3;
const PANIC: i32 = 4;

/// A text handed to C, to be given back to lsb_string_free.
#[repr(C)]
pub struct LsbString {
    data: *mut u8,
    size: usize,
}

impl LsbString {
    fn new(text: String) -> Self {
        let bytes = Box::leak(text.into_bytes().into_boxed_slice());
        LsbString { data: bytes.as_mut_ptr(), size: bytes.len() }
    }
}

/// A text that C owns; data may be null where the header says that it may be left out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LsbText {
    data: *const u8,
    size: usize,
}

impl LsbText {
    /// # Safety: data points to size bytes that outlive 'a.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    unsafe fn str<'a>(self, what: &str) -> Result<&'a str, Problem> {
        std::str::from_utf8(self.bytes())
            .map_err(|e| Problem(INVALID, format!("{what} is not valid UTF-8 at byte {}", e.valid_up_to())))
    }

    unsafe fn optional<'a>(self, what: &str) -> Result<Option<&'a str>, Problem> {
        if self.data.is_null() {
            return Ok(None);
        }
        self.str(what).map(Some)
    }
}

unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, size)
}

/// A code for C and the words for its error string.
struct Problem(i32, String);

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Raised(text) => Problem(RAISED, text),
            Failure::Template(text) => Problem(TEMPLATE, text),
            Failure::Input(text) => Problem(INVALID, text),
        }
    }
}

fn tokenizer_problem(error: impl std::fmt::Display) -> Problem {
    Problem(INVALID, error.to_string())
}

/// Runs an entry's work and turns its outcome, a panic included, into a code and an error string.
unsafe fn guard(error: *mut LsbString, work: impl FnOnce() -> Result<(), Problem>) -> i32 {
    let problem = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(problem)) => problem,
        Err(payload) => Problem(PANIC, panic_text(payload.as_ref())),
    };
    ptr::write(error, LsbString::new(problem.1));
    problem.0
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panic in the Rust bridge: {}", text.unwrap_or("no message"))
}

unsafe fn give<T>(out: *mut *mut T, value: T) {
    ptr::write(out, Box::into_raw(Box::new(value)));
}

unsafe fn take<T>(pointer: *mut T) {
    if !pointer.is_null() {
        drop(Box::from_raw(pointer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn lsb_string_free(text: LsbString) {
    if !text.data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(text.data, text.size)));
    }
}

// ---- tokenizer ----

pub struct LsbTokenizer {
    inner: Tokenizer,
    ascii_words: Option<AsciiWords>,
}

impl LsbTokenizer {
    /// Ids and types of tokens, and which of them are special; what belongs to which text as far as truncation asks.
    fn ids(
        &self,
        first: &str,
        second: Option<&str>,
        add_special: bool,
        max_length: usize,
    ) -> tokenizers::Result<Encoding> {
        if let Some(words) = &self.ascii_words {
            if words.can_cut(first) && second.map_or(true, |text| words.can_cut(text)) {
                return words.encode(&self.inner, first, second, add_special);
            }
        }
        // encode_fast forgets which text of a pair a token comes from.
        if second.is_some() || max_length > 0 {
            self.with_offsets(first, second, add_special)
        } else {
            self.inner.encode_fast(first, add_special)
        }
    }

    fn with_offsets(&self, first: &str, second: Option<&str>, add_special: bool) -> tokenizers::Result<Encoding> {
        match second {
            Some(second) => self.inner.encode_char_offsets((first, second), add_special),
            None => self.inner.encode_char_offsets(first, add_special),
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_new(json: LsbText, out: *mut *mut LsbTokenizer, error: *mut LsbString) -> i32 {
    guard(error, || {
        let mut tokenizer = Tokenizer::from_bytes(json.bytes()).map_err(tokenizer_problem)?;
        // transformers ignores what tokenizer.json says about these and sets its own per call.
        tokenizer.with_truncation(None).map_err(tokenizer_problem)?;
        tokenizer.with_padding(None);
        let ascii_words = AsciiWords::of(&tokenizer);
        give(out, LsbTokenizer { inner: tokenizer, ascii_words });
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_free(tokenizer: *mut LsbTokenizer) {
    take(tokenizer);
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_vocab_size(tokenizer: *const LsbTokenizer) -> usize {
    (*tokenizer).inner.get_vocab_size(true)
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_token_to_id(
    tokenizer: *const LsbTokenizer,
    token: LsbText,
    found: *mut bool,
    id: *mut u32,
    error: *mut LsbString,
) -> i32 {
    guard(error, || {
        let known = (*tokenizer).inner.token_to_id(token.str("the token")?);
        ptr::write(found, known.is_some());
        ptr::write(id, known.unwrap_or(0));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_id_to_token(
    tokenizer: *const LsbTokenizer,
    id: u32,
    found: *mut bool,
    token: *mut LsbString,
    error: *mut LsbString,
) -> i32 {
    guard(error, || {
        let known = (*tokenizer).inner.id_to_token(id);
        ptr::write(found, known.is_some());
        ptr::write(token, LsbString::new(known.unwrap_or_default()));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_encode(
    tokenizer: *const LsbTokenizer,
    first: LsbText,
    second: LsbText,
    add_special_tokens: bool,
    with_offsets: bool,
    max_length: usize,
    cut_left: bool,
    out: *mut *mut LsbEncoding,
    error: *mut LsbString,
) -> i32 {
    guard(error, || {
        let first = first.str("the text")?;
        let second = second.optional("the second text")?;
        let tokenizer = &*tokenizer;
        let encoding = if with_offsets {
            tokenizer.with_offsets(first, second, add_special_tokens)
        } else {
            tokenizer.ids(first, second, add_special_tokens, max_length)
        }
        .map_err(tokenizer_problem)?;
        if max_length == 0 || encoding.len() <= max_length {
            give(out, LsbEncoding::new(&encoding, with_offsets));
            return Ok(());
        }
        let kept = truncation::kept(&encoding, max_length, cut_left).map_err(|text| Problem(INVALID, text))?;
        give(out, LsbEncoding::of_kept(&encoding, with_offsets, &kept));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lsb_tokenizer_decode(
    tokenizer: *const LsbTokenizer,
    ids: *const u32,
    size: usize,
    skip_special_tokens: bool,
    out: *mut LsbString,
    error: *mut LsbString,
) -> i32 {
    guard(error, || {
        let tokenizer = &(*tokenizer).inner;
        let ids = slice(ids, size);
        // tokenizers would leave unknown ids out without a word.
        if let Some((i, id)) = ids.iter().enumerate().find(|(_, id)| tokenizer.id_to_token(**id).is_none()) {
            return Err(Problem(INVALID, format!("id {id} at position {i} is not in the vocabulary")));
        }
        let text = tokenizer.decode(ids, skip_special_tokens).map_err(tokenizer_problem)?;
        ptr::write(out, LsbString::new(text));
        Ok(())
    })
}

pub struct LsbEncoding {
    ids: Vec<u32>,
    type_ids: Vec<u32>,
    offsets: Vec<u32>,
    cut: usize,
}

impl LsbEncoding {
    fn new(encoding: &Encoding, with_offsets: bool) -> Self {
        let pairs = if with_offsets { encoding.get_offsets() } else { &[] };
        LsbEncoding {
            ids: encoding.get_ids().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
            offsets: pairs.iter().flat_map(|&(start, end)| [start as u32, end as u32]).collect(),
            cut: 0,
        }
    }

    /// Of its tokens only those at the positions `kept`.
    fn of_kept(encoding: &Encoding, with_offsets: bool, kept: &[usize]) -> Self {
        let offsets = encoding.get_offsets();
        let pairs = kept.iter().filter(|_| with_offsets).map(|&at| offsets[at]);
        LsbEncoding {
            ids: kept.iter().map(|&at| encoding.get_ids()[at]).collect(),
            type_ids: kept.iter().map(|&at| encoding.get_type_ids()[at]).collect(),
            offsets: pairs.flat_map(|(start, end)| [start as u32, end as u32]).collect(),
            cut: encoding.len() - kept.len(),
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn lsb_encoding_size(encoding: *const LsbEncoding) -> usize {
    (&(*encoding).ids).len()
}

#[no_mangle]
pub unsafe extern "C" fn lsb_encoding_ids(encoding: *const LsbEncoding) -> *const u32 {
    (&(*encoding).ids).as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn lsb_encoding_type_ids(encoding: *const LsbEncoding) -> *const u32 {
    (&(*encoding).type_ids).as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn lsb_encoding_offsets(encoding: *const LsbEncoding) -> *const u32 {
    let offsets = &(*encoding).offsets;
    if offsets.is_empty() {
        ptr::null()
    } else {
        offsets.as_ptr()
    }
}

#[no_mangle]
pub unsafe extern "C" fn lsb_encoding_cut(encoding: *const LsbEncoding) -> usize {
    (*encoding).cut
}

#[no_mangle]
pub unsafe extern "C" fn lsb_encoding_free(encoding: *mut LsbEncoding) {
    take(encoding);
}

// ---- chat template ----

#[repr(C)]
pub struct LsbRenderInput {
    messages: LsbText,
    tools: LsbText,
    extra: LsbText,
    special_tokens: LsbText,
    now: LsbText,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

#[repr(C)]
pub struct LsbSpan {
    start: u64,
    end: u64,
}

pub struct LsbRendered {
    text: String,
    spans: Vec<LsbSpan>,
}

#[no_mangle]
pub unsafe extern "C" fn lsb_template_new(source: LsbText, out: *mut *mut Template, error: *mut LsbString) -> i32 {
    guard(error, || {
        give(out, Template::new(source.str("the template")?)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lsb_template_free(template: *mut Template) {
    take(template);
}

#[no_mangle]
pub unsafe extern "C" fn lsb_template_has_generation(template: *const Template) -> bool {
    (*template).has_generation()
}

#[no_mangle]
pub unsafe extern "C" fn lsb_template_render(
    template: *const Template,
    input: *const LsbRenderInput,
    out: *mut *mut LsbRendered,
    error: *mut LsbString,
) -> i32 {
    guard(error, || {
        let input = &*input;
        let Rendered { text, spans } = (*template).render(&Input {
            messages: input.messages.str("messages")?,
            tools: input.tools.optional("tools")?,
            extra: input.extra.optional("template arguments")?,
            special_tokens: input.special_tokens.optional("special tokens")?,
            add_generation_prompt: input.add_generation_prompt,
            continue_final_message: input.continue_final_message,
            now: input.now.optional("date")?,
        })?;
        let spans = spans.into_iter().map(|(start, end)| LsbSpan { start, end }).collect();
        give(out, LsbRendered { text, spans });
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn lsb_rendered_text(rendered: *const LsbRendered) -> LsbText {
    let text = &(*rendered).text;
    LsbText { data: text.as_ptr(), size: text.len() }
}

#[no_mangle]
pub unsafe extern "C" fn lsb_rendered_num_spans(rendered: *const LsbRendered) -> usize {
    (&(*rendered).spans).len()
}

#[no_mangle]
pub unsafe extern "C" fn lsb_rendered_spans(rendered: *const LsbRendered) -> *const LsbSpan {
    (&(*rendered).spans).as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn lsb_rendered_free(rendered: *mut LsbRendered) {
    take(rendered);
}
