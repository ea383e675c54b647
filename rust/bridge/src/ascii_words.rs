//! BERT's normalizer and pre-tokenizer for printable ASCII, where they come to: small letters, words between spaces,
//! punctuation marks alone. The library's own keep for every character, through every step, where in the text it came
//! from; that takes most of the time of reading a data set, and nobody asks for it there.

use tokenizers::{Encoding, Model, NormalizerWrapper, PreTokenizerWrapper, Result, Tokenizer};

pub struct AsciiWords {
    lowercase: bool,
    /// Characters with which an added token begins, in both cases: such tokens are cut out before words are.
    begins_added: [bool; 128],
}

fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

impl AsciiWords {
    /// Absent when the tokenizer is not BERT's.
    pub fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let Some(NormalizerWrapper::BertNormalizer(normalizer)) = tokenizer.get_normalizer() else { return None };
        let Some(PreTokenizerWrapper::BertPreTokenizer(_)) = tokenizer.get_pre_tokenizer() else { return None };
        let mut begins_added = [false; 128];
        for token in tokenizer.get_added_tokens_decoder().values() {
            // Normalized, other characters may become ASCII or vanish.
            if !token.content.bytes().all(is_printable) {
                return None;
            }
            if let Some(first) = token.content.bytes().next() {
                begins_added[usize::from(first.to_ascii_lowercase())] = true;
                begins_added[usize::from(first.to_ascii_uppercase())] = true;
            }
        }
        Some(AsciiWords { lowercase: normalizer.lowercase, begins_added })
    }

    pub fn can_cut(&self, text: &str) -> bool {
        text.bytes().all(|byte| is_printable(byte) && !self.begins_added[usize::from(byte)])
    }

    /// What the library's encode() gives for texts that can be cut, but for offsets, words and the tokens' texts.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        first: &str,
        second: Option<&str>,
        add_special: bool,
    ) -> Result<Encoding> {
        let first = self.tokens_of(tokenizer, first, 0)?;
        let second = second.map(|text| self.tokens_of(tokenizer, text, 1)).transpose()?;
        tokenizer.post_process(first, second, add_special)
    }

    fn tokens_of(&self, tokenizer: &Tokenizer, text: &str, type_id: u32) -> Result<Encoding> {
        let lower = self.lowercase.then(|| text.to_ascii_lowercase());
        let mut tokens = Vec::with_capacity(text.len() / 4);
        for word in words(lower.as_deref().unwrap_or(text)) {
            tokens.extend(tokenizer.get_model().tokenize(word)?);
        }
        Ok(Encoding::from_tokens(tokens, type_id))
    }
}

/// Runs of letters and digits, and single punctuation marks.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').flat_map(|run| {
        run.split_inclusive(|c: char| c.is_ascii_punctuation()).flat_map(|part| {
            let mark = part.ends_with(|c: char| c.is_ascii_punctuation()) as usize;
            let (word, mark) = part.split_at(part.len() - mark);
            [word, mark].into_iter().filter(|piece| !piece.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_spaces_and_marks() {
        let cut = |text| words(text).collect::<Vec<_>>();
        assert_eq!(cut("  it's 3.5 $ (a_b)  "), ["it", "'", "s", "3", ".", "5", "$", "(", "a", "_", "b", ")"]);
        assert_eq!(cut("!!"), ["!", "!"]);
        assert!(cut("").is_empty() && cut("   ").is_empty());
    }
}
