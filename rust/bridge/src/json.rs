//! JSON text to template values. Keys keep their order and integers stay integers up to 128 bits
//! (serde_json's own tree turns those beyond 64 bits into floats).

use std::fmt;

use minijinja::Value;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// As deep as serde_json reads by itself.
const MAX_DEPTH: usize = 128;

/// The value of a JSON text, or what is wrong with it and where.
pub fn parse(text: &str) -> Result<Value, String> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|e| e.to_string())?;
    value(raw, 0)
}

fn value(raw: &RawValue, depth: usize) -> Result<Value, String> {
    let text = raw.get();
    if depth > MAX_DEPTH {
        return Err(format!("nested deeper than {MAX_DEPTH} levels"));
    }
    match text.as_bytes()[0] {
        b'{' => {
            let pairs =
                serde_json::Deserializer::from_str(text).deserialize_map(PairsVisitor).map_err(|e| e.to_string())?;
            let pairs = pairs.into_iter().map(|(key, item)| Ok((key, value(item, depth + 1)?)));
            Ok(Value::from_pairs(pairs.collect::<Result<Vec<(String, Value)>, String>>()?))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| e.to_string())?;
            let items: Result<Vec<Value>, String> = items.into_iter().map(|item| value(item, depth + 1)).collect();
            Ok(Value::from(items?))
        }
        b'"' => serde_json::from_str::<String>(text).map(Value::from).map_err(|e| e.to_string()),
        b't' => Ok(Value::from(true)),
        b'f' => Ok(Value::from(false)),
        b'n' => Ok(Value::from(())),
        _ => number(text),
    }
}

fn number(text: &str) -> Result<Value, String> {
    if text.contains(['.', 'e', 'E']) {
        return text.parse::<f64>().map(Value::from).map_err(|e| format!("number {text}: {e}"));
    }
    match text.parse::<i64>() {
        Ok(small) => Ok(Value::from(small)),
        Err(_) => text.parse::<i128>().map(Value::from).map_err(|_| format!("integer {text} is beyond 128 bits")),
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}
