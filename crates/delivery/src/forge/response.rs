//! Limits for answers of forges, which may be hostile: on bytes while an answer is read, and on depth and memory while it is
//! parsed. Fields that no adapter reads are skipped.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::fair_queue::{FairQueue, Slot};

/// The most bytes of an answer that is read without a slot for large ones.
const MAX_SMALL_BYTES: usize = 128 << 10;
/// The most bytes of any answer. A hundred pull requests of GitHub with long descriptions are below 8 MiB.
const MAX_BYTES: usize = 8 << 20;
/// The most bytes of an answer that is no success: only its message is read.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// The most large answers at the same time, for each pipeline in turn.
const MAX_LARGE_AT_ONCE: usize = 4;
/// How long the rest of a large answer may take, once it has a slot.
const LARGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most levels of arrays and objects.
const MAX_DEPTH: usize = 32;
/// The most memory, in bytes, that a parsed answer takes.
const MAX_OBJECT_MEMORY: usize = 1 << 20;
/// The same of a page of change requests, which is reduced before the next call.
const MAX_PAGE_MEMORY: usize = 4 << 20;
/// The memory of a value without its text, and of an object without its fields: a node of its map holds eleven.
const VALUE_MEMORY: usize = 64;
const OBJECT_OVERHEAD: usize = 640;

/// The size of the expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseSize {
    /// One object, or a page of small ones.
    Object,
    /// A page of change requests.
    Page,
}

/// The slots of large answers, for the whole process.
#[derive(Debug)]
pub(super) struct LargeResponses(Arc<FairQueue>);

impl Default for LargeResponses {
    fn default() -> Self {
        LargeResponses(FairQueue::new(MAX_LARGE_AT_ONCE))
    }
}

/// Why an answer could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The connection failed.
    Http(reqwest::Error),
    /// The answer exceeds this limit.
    TooLarge(&'static str),
    /// The rest of the answer took longer than this.
    TooSlow(Duration),
}

/// The bytes of an answer, and the slot of a large one.
pub(super) struct ResponseBody {
    pub(super) bytes: Vec<u8>,
    pub(super) slot: Option<Slot>,
}

impl LargeResponses {
    /// Reads an answer to its end. A large one waits for a slot, in the queue of the pipeline.
    pub(super) async fn read(&self, mut response: Response, pipeline: &str) -> Result<ResponseBody, Unread> {
        let mut body = ResponseBody { bytes: Vec::new(), slot: None };
        if !response.status().is_success() {
            while let Some(chunk) = response.chunk().await.map_err(Unread::Http)? {
                body.bytes.extend_from_slice(&chunk[..chunk.len().min(MAX_REFUSAL_BYTES - body.bytes.len())]);
                if body.bytes.len() >= MAX_REFUSAL_BYTES {
                    break;
                }
            }
            return Ok(body);
        }
        while let Some(chunk) = response.chunk().await.map_err(Unread::Http)? {
            body.bytes.extend_from_slice(&chunk);
            if body.bytes.len() > MAX_SMALL_BYTES {
                body.slot = Some(self.0.acquire(pipeline).await);
                let rest = rest(&mut response, &mut body.bytes);
                let rest = tokio::time::timeout(LARGE_TIMEOUT, rest).await;
                rest.map_err(|_| Unread::TooSlow(LARGE_TIMEOUT))??;
                break;
            }
        }
        Ok(body)
    }
}

async fn rest(response: &mut Response, bytes: &mut Vec<u8>) -> Result<(), Unread> {
    while let Some(chunk) = response.chunk().await.map_err(Unread::Http)? {
        if bytes.len() + chunk.len() > MAX_BYTES {
            return Err(Unread::TooLarge("it has more than 8 MiB"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(())
}

/// Parses an answer, and keeps only the fields of this list; `None` if it is not JSON.
///
/// # Errors
/// When it has too many levels, or would take too much memory.
pub(super) fn parse(bytes: &[u8], fields: &'static str, size: ResponseSize) -> Result<Option<Value>, Unread> {
    let memory = match size {
        ResponseSize::Object => MAX_OBJECT_MEMORY,
        ResponseSize::Page => MAX_PAGE_MEMORY,
    };
    let limits = ParseLimits { left: Cell::new(memory), deep: Cell::new(false), fields };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = Node { limits: &limits, depth: 0, all: false }.deserialize(&mut json);
    match parsed.and_then(|value| json.end().map(|()| value)) {
        Ok(value) => Ok(Some(value)),
        Err(_) if limits.deep.get() => Err(Unread::TooLarge("it has more than 32 levels")),
        Err(_) if limits.left.get() == 0 => Err(Unread::TooLarge("it has too many values")),
        Err(_) => Ok(None),
    }
}

/// What is left of the limits of one answer.
struct ParseLimits {
    left: Cell<usize>,
    deep: Cell<bool>,
    fields: &'static str,
}

impl ParseLimits {
    fn has_field(&self, key: &str) -> bool {
        self.fields.split_ascii_whitespace().any(|field| field == key)
    }

    fn take<E: Error>(&self, memory: usize) -> Result<(), E> {
        match self.left.get().checked_sub(memory).filter(|left| *left > 0) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                Err(E::custom("too large"))
            }
        }
    }
}

/// One value of an answer.
#[derive(Clone, Copy)]
struct Node<'a> {
    limits: &'a ParseLimits,
    depth: usize,
    /// Whether every field is kept: below a message, any field names are possible.
    all: bool,
}

impl Node<'_> {
    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            self.limits.deep.set(true);
            return Err(E::custom("too deep"));
        }
        Ok(Node { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.limits.take(VALUE_MEMORY).map(|()| Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.limits.take(VALUE_MEMORY).map(|()| value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.limits.take(VALUE_MEMORY).map(|()| value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.limits.take(VALUE_MEMORY).map(|()| value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.limits.take(VALUE_MEMORY).map(|()| value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.limits.take(VALUE_MEMORY + value.len())?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        self.limits.take(VALUE_MEMORY)?;
        let one = self.below()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(one)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.limits.take(VALUE_MEMORY + OBJECT_OVERHEAD)?;
        let below = self.below()?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if !self.all && !self.limits.has_field(&key) && !MESSAGE_FIELDS.contains(&&*key) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.limits.take(OBJECT_OVERHEAD / 4 + key.len())?;
            let all = self.all || matches!(&*key, "message" | "errors");
            let value = map.next_value_seed(Node { all, ..below })?;
            object.insert(key.into_owned(), value);
        }
        Ok(object.into())
    }
}

/// The fields with the error messages of forges, and the parts of a GraphQL answer.
const MESSAGE_FIELDS: [&str; 9] =
    ["message", "error", "error_description", "detail", "errors", "field", "code", "type", "path"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FIELDS: &str = "id user name";

    #[test]
    fn only_known_fields_and_messages_are_kept() {
        let text = r#"{"id": 7, "user": {"name": "a\u00fc", "more": [1, {"x": null}]}, "junk": {"id": 1.5},
            "errors": [{"path": ["a", 0], "anything": -1}], "message": {"title": ["is long"]}, "name": [true, null]}"#;
        let parsed = parse(text.as_bytes(), FIELDS, ResponseSize::Object).unwrap().unwrap();
        let expected = json!({"id": 7, "user": {"name": "aü"}, "name": [true, null],
            "errors": [{"path": ["a", 0], "anything": -1}], "message": {"title": ["is long"]}});
        assert_eq!(parsed, expected);
        for text in ["", "<html>", "{} {}", "[1", r#"{"id": }"#, "\u{feff}{}", "nul"] {
            assert!(parse(text.as_bytes(), FIELDS, ResponseSize::Object).unwrap().is_none(), "{text}");
        }
    }

    #[test]
    fn an_answer_that_takes_too_much_memory_is_rejected() {
        let list = |part: &str, count: usize| format!("[{}]", vec![part; count].join(","));
        let cases = [
            (list("[]", 20_000), "too many values"),
            (list(r#"{"id":{}}"#, 2_000), "too many values"),
            (list(r#"{"message":{"a":1}}"#, 2_000), "too many values"),
            (format!(r#"{{"name":"{}"}}"#, "a".repeat(1_200_000)), "too many values"),
            ("[".repeat(100), "32 levels"),
            (r#"{"id":"#.repeat(100), "32 levels"),
        ];
        for (text, words) in cases {
            match parse(text.as_bytes(), FIELDS, ResponseSize::Object) {
                Err(Unread::TooLarge(why)) => assert!(why.contains(words), "{why}"),
                other => panic!("{words}: {other:?}"),
            }
        }
        // Skipped fields take no memory.
        let skipped = format!(r#"{{"junk":{},"id":1}}"#, list("[]", 200_000));
        assert_eq!(parse(skipped.as_bytes(), FIELDS, ResponseSize::Object).unwrap(), Some(json!({"id": 1})));
        assert!(parse(list("[]", 20_000).as_bytes(), FIELDS, ResponseSize::Page).unwrap().is_some());
    }
}
