//! `{% generation %} ... {% endgeneration %}`: the text rendered inside is what the assistant wrote.
//!
//! minijinja has no such tag and no way to add one. The tags are rewritten to a filter block that wraps
//! its text in two noncharacters, which are taken out of the rendered text and become spans. `with` gives
//! the block a scope of its own, as jinja2's call block does.

pub const OPEN: char = '\u{FDD0}';
pub const CLOSE: char = '\u{FDD1}';
pub const FILTER: &str = "lockstep_generation";

/// The filter behind the rewritten tag.
pub fn wrap(text: &str) -> String {
    format!("{OPEN}{text}{CLOSE}")
}

pub fn has_mark(text: &str) -> bool {
    text.contains([OPEN, CLOSE])
}

/// The source with its generation tags rewritten (whitespace marks and line numbers stay), and whether there were any.
pub fn rewrite(source: &str) -> (String, bool) {
    let mut out = String::with_capacity(source.len());
    let mut found = false;
    let mut rest = source;
    while let Some(start) = find_opening(rest) {
        out.push_str(&rest[..start]);
        let tag = &rest[start..];
        let length = tag_length(tag);
        let (text, after) = tag.split_at(length);
        rest = after;
        match block_name(text) {
            Some("generation") => {
                found = true;
                let (left, right) = marks(text);
                out.push_str(&format!("{{%{left} with %}}{{% filter {FILTER} {right}%}}"));
            }
            Some("endgeneration") => {
                let (left, right) = marks(text);
                out.push_str(&format!("{{%{left} endfilter %}}{{% endwith {right}%}}"));
            }
            Some("raw") => {
                out.push_str(text);
                let end = raw_length(rest);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            _ => out.push_str(text),
        }
    }
    out.push_str(rest);
    (out, found)
}

/// The text without its marks, and the spans (in code points of that text) in the order they end.
/// None: the template cut or repeated a marked text so that marks do not pair.
pub fn take_spans(marked: &str) -> Option<(String, Vec<(u64, u64)>)> {
    let mut text = String::with_capacity(marked.len());
    let mut spans = Vec::new();
    let mut open = Vec::new();
    let mut position = 0;
    for c in marked.chars() {
        match c {
            OPEN => open.push(position),
            CLOSE => spans.push((open.pop()?, position)),
            _ => {
                text.push(c);
                position += 1;
            }
        }
    }
    open.is_empty().then_some((text, spans))
}

fn find_opening(text: &str) -> Option<usize> {
    text.match_indices('{').map(|(i, _)| i).find(|&i| matches!(text.as_bytes().get(i + 1), Some(b'{' | b'%' | b'#')))
}

/// Length of the tag that `text` begins with, to its end or to the end of the text.
fn tag_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let close: &[u8] = match bytes[1] {
        b'#' => return text.find("#}").map_or(text.len(), |i| i + 2),
        b'%' => b"%}",
        _ => b"}}",
    };
    let mut quote = None;
    let mut braces = 0;
    let mut i = 2;
    while i < bytes.len() {
        let c = bytes[i];
        match quote {
            Some(_) if c == b'\\' => i += 1,
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == b'"' || c == b'\'' => quote = Some(c),
            None if braces == 0 && bytes[i..].starts_with(close) => return i + 2,
            None if c == b'{' => braces += 1,
            None if c == b'}' && braces > 0 => braces -= 1,
            None => {}
        }
        i += 1;
    }
    text.len()
}

/// Of `text` that follows a `{% raw %}`: up to the tag that ends it.
fn raw_length(text: &str) -> usize {
    text.match_indices("{%")
        .map(|(i, _)| i)
        .find(|&i| block_name(&text[i..i + tag_length(&text[i..])]) == Some("endraw"))
        .unwrap_or(text.len())
}

fn block_name(tag: &str) -> Option<&str> {
    let inner = tag.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    Some(&inner[..end])
}

/// The whitespace marks of a block tag, "" where there is none.
fn marks(tag: &str) -> (&str, &str) {
    let mark = |range| tag.get(range).filter(|text| matches!(*text, "-" | "+")).unwrap_or("");
    (mark(2..3), mark(tag.len().saturating_sub(3)..tag.len().saturating_sub(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_rewritten_with_their_marks() {
        let (out, found) = rewrite("a{%- generation +%}b{% endgeneration -%}c");
        assert!(found);
        assert_eq!(out, "a{%- with %}{% filter lockstep_generation +%}b{% endfilter %}{% endwith -%}c");
    }

    #[test]
    fn tags_in_strings_comments_and_raw_blocks_are_text() {
        for source in [
            "{{ '{% generation %}' }}",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set x = \"{% generation %}\" %}",
            "{{ {'a': {}} }}{ % generation % }",
        ] {
            assert_eq!(rewrite(source), (source.to_string(), false));
        }
    }

    #[test]
    fn marks_become_spans_in_code_points() {
        let marked = format!("\u{4e16}{}\u{4e16}b{}c{}{}", OPEN, CLOSE, OPEN, CLOSE);
        let (text, spans) = take_spans(&marked).unwrap();
        assert_eq!((text.as_str(), spans), ("\u{4e16}\u{4e16}bc", vec![(1, 3), (4, 4)]));
        assert!(take_spans("\u{FDD1}").is_none());
        assert!(take_spans("\u{FDD0}").is_none());
    }
}
