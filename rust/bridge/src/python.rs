//! Python's way of writing values, as chat templates meant for jinja2 expect it.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// `repr(float)`: the shortest digits that read back equal; an exponent below 1e-4 and from 1e16 on.
pub fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes an integer exponent");
    if (-4..16).contains(&exponent) {
        let fixed = x.to_string();
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `int(text, base)` for bases 2 to 36; None where Python raises.
pub fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefixes = match base {
        16 => ["0x", "0X"],
        8 => ["0o", "0O"],
        2 => ["0b", "0B"],
        3..=36 => ["", ""],
        _ => return None,
    };
    let digits = prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix)).unwrap_or(digits);
    let value =
        i128::from_str_radix(&without_underscores(digits)?, base).ok().filter(|_| !digits.starts_with(['+', '-']))?;
    Some(if negative { -value } else { value })
}

/// `float(text)`; None where Python raises.
pub fn parse_float(text: &str) -> Option<f64> {
    without_underscores(text.trim())?.parse().ok()
}

/// Python allows single underscores between digits.
fn without_underscores(text: &str) -> Option<String> {
    let between_digits = text.match_indices('_').all(|(i, _)| {
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        is_digit(text[..i].chars().next_back()) && is_digit(text[i + 1..].chars().next())
    });
    between_digits.then(|| text.replace('_', ""))
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_repr)
}

/// `repr(str)`: single quotes unless the text holds only those; what Python does not print is escaped.
fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if printable(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push(quote);
    out
}

/// Rust's Debug escapes the categories that Python calls unprintable, and combining marks at the very
/// start of a string only; hence the letter in front.
fn printable(c: char) -> bool {
    let escaped = String::from_iter(['a', c]).escape_debug().to_string();
    !escaped.starts_with("a\\u") && !escaped.starts_with("a\\0")
}

fn repr(value: &Value) -> String {
    match value.as_str() {
        Some(text) => string_repr(text),
        None if value.is_undefined() => "Undefined".into(),
        None => str(value),
    }
}

/// `str(value)`; undefined is the empty string.
pub fn str(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number => number(value),
        ValueKind::Seq | ValueKind::Iterable => sequence(value).unwrap_or_else(|| value.to_string()),
        ValueKind::Map => {
            let Ok(keys) = value.try_iter() else { return value.to_string() };
            let items: Vec<_> = keys
                .map(|key| format!("{}: {}", repr(&key), repr(&value.get_item(&key).unwrap_or_default())))
                .collect();
            format!("{{{}}}", items.join(", "))
        }
        _ => value.to_string(),
    }
}

fn sequence(value: &Value) -> Option<String> {
    let items: Vec<_> = value.try_iter().ok()?.map(|item| repr(&item)).collect();
    Some(match (value.is_tuple(), items.len()) {
        (false, _) => format!("[{}]", items.join(", ")),
        (true, 1) => format!("({},)", items[0]),
        (true, _) => format!("({})", items.join(", ")),
    })
}

/// `str.rsplit(separator, most)`; no separator: at stretches of white space. A negative `most` has no end.
pub fn split_from_right<'a>(text: &'a str, separator: Option<&str>, most: i64) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = if separator.is_none() { text.trim_end() } else { text };
    while most < 0 || (parts.len() as i64) < most {
        let found = match separator {
            Some(separator) => rest.rsplit_once(separator),
            None => rest.rsplit_once(char::is_whitespace).map(|(before, after)| (before.trim_end(), after)),
        };
        let Some((before, after)) = found else { break };
        parts.push(after);
        rest = before;
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    parts.reverse();
    parts
}

/// `str.splitlines()`.
pub fn split_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_line_end) {
        lines.push(&rest[..end]);
        let mut after = rest[end..].chars();
        if after.next() == Some('\r') && after.as_str().starts_with('\n') {
            after.next();
        }
        rest = after.as_str();
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// jinja2's `indent` filter; minijinja's drops a newline at the end.
pub fn indent(text: &str, indention: &str, first: bool, blank: bool) -> String {
    let with_end = format!("{text}\n");
    let mut out = String::new();
    for (i, line) in split_lines(&with_end).into_iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            out.push_str(indention);
        }
        out.push_str(line);
    }
    out
}

/// The options of `json.dumps` that transformers' `tojson` passes on.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    /// What one level is indented by; none: everything on one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// `json.dumps(value)`. Unlike minijinja's (and jinja2's own) it does not escape HTML, as transformers does not.
pub fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(&mut out, value, style, 0)?;
    Ok(out)
}

fn write_json(out: &mut String, value: &Value, style: &JsonStyle, depth: usize) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::String => write_json_string(out, value.as_str().unwrap_or_default(), style.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<_> = value.try_iter()?.collect();
            write_nested(out, '[', ']', items.len(), style, depth, |out, i| {
                write_json(out, &items[i], style, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                pairs.push((json_key(&key)?, value.get_item(&key)?));
            }
            if style.sort_keys {
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_nested(out, '{', '}', pairs.len(), style, depth, |out, i| {
                write_json_string(out, &pairs[i].0, style.ensure_ascii);
                out.push_str(&style.key_separator);
                write_json(out, &pairs[i].1, style, depth + 1)
            })?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a value of type {kind} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

fn write_nested(
    out: &mut String,
    open: char,
    close: char,
    count: usize,
    style: &JsonStyle,
    depth: usize,
    write_item: impl Fn(&mut String, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |out: &mut String, levels: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(levels));
        }
    };
    out.push(open);
    for i in 0..count {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(out, depth + 1);
        write_item(out, i)?;
    }
    if count > 0 {
        new_line(out, depth);
    }
    out.push(close);
    Ok(())
}

fn json_number(value: &Value) -> String {
    match number(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => text.into(),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().into()),
        ValueKind::Number => Ok(json_number(key)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::None => Ok("null".into()),
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("keys must be strings, numbers, booleans or none, not {kind}"),
        )),
    }
}

fn write_json_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ensure_ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_in_python() {
        for (x, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-7, "1e-07"),
            (1e20, "1e+20"),
            (1e16, "1e+16"),
            (123456789012345.0, "123456789012345.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (-0.0, "-0.0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_repr(x), text);
        }
    }

    #[test]
    fn numbers_are_read_as_in_python() {
        for (text, base, value) in [
            ("12", 10, Some(12)),
            (" -7\n", 10, Some(-7)),
            ("1_000", 10, Some(1000)),
            ("0x1F", 16, Some(31)),
            ("", 10, None),
            ("1__0", 10, None),
            ("_1", 10, None),
            ("1.0", 10, None),
            ("+-1", 10, None),
            ("0b11", 2, Some(3)),
            ("z", 36, Some(35)),
        ] {
            assert_eq!(parse_int(text, base), value, "{text}");
        }
        for (text, value) in
            [("2.5", Some(2.5)), (" 1e3 ", Some(1000.0)), ("1_0.5", Some(10.5)), ("x", None), ("", None)]
        {
            assert_eq!(parse_float(text), value, "{text}");
        }
    }

    #[test]
    fn strings_are_quoted_as_in_python() {
        for (text, expected) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("a\n\u{7f}", "'a\\n\\x7f'"),
            ("\0", "'\\x00'"),
            ("\u{a0}\u{301}\u{4e16}", "'\\xa0\u{301}\u{4e16}'"),
            ("\u{200b}", "'\\u200b'"),
        ] {
            assert_eq!(string_repr(text), expected);
        }
    }

    #[test]
    fn texts_split_from_the_right_as_in_python() {
        assert_eq!(split_from_right("a-b-c", Some("-"), 1), ["a-b", "c"]);
        assert_eq!(split_from_right("-a-", Some("-"), -1), ["", "a", ""]);
        assert_eq!(split_from_right(" a  b c ", None, 1), [" a  b", "c"]);
        assert_eq!(split_from_right(" a  b ", None, -1), ["a", "b"]);
        assert_eq!(split_from_right("", None, -1), [] as [&str; 0]);
    }

    #[test]
    fn lines_split_as_in_python() {
        assert_eq!(split_lines("a\r\nb\rc\n\nd\u{2028}e"), ["a", "b", "c", "", "d", "e"]);
        assert_eq!(split_lines(""), [] as [&str; 0]);
        assert_eq!(indent("a\n\nb\n", "  ", false, false), "a\n\n  b\n");
        assert_eq!(indent("a\nb", "  ", true, false), "  a\n  b");
    }
}
