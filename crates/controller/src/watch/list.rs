//! Lists as they are read: each object is cut out of the text as soon as it is there.
//!
//! A list is asked for in one piece. API servers answer that from memory, where most of them read
//! each page after the first from etcd and decode every object of it anew: four times the work, on
//! every start. And for all that it takes no more room here than its longest object.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use futures::AsyncBufReadExt;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use tokio::time::timeout;

use super::limit::{OBJECT_BYTES, TooLarge, WatchLimits};
use crate::timeout::timed_out;

/// How long a server may fall silent before a list counts as broken off.
const SILENCE: Duration = Duration::from_secs(60);
/// The most bytes of a list without its objects.
const FRAME_BYTES: usize = 1 << 20;

/// Reads all objects at a URL, gives the text of each to `each`, and returns the version from which
/// to watch on.
pub async fn read(
    client: &Client,
    url: &str,
    fields: Option<&str>,
    limits: &WatchLimits,
    mut each: impl FnMut(&[u8]) -> kube::Result<()>,
) -> kube::Result<String> {
    limits.room().await;
    let mut count = limits.list();
    let params = ListParams { field_selector: fields.map(String::from), ..ListParams::default() };
    let request = Request::new(url).list(&params).map_err(kube::Error::BuildRequest)?;
    let body = timeout(SILENCE, client.request_stream(request)).await.map_err(|_| timed_out(SILENCE))??;
    futures::pin_mut!(body);
    let mut cutter = Cutter::default();
    loop {
        let patience = SILENCE.min(count.time_left());
        let chunk = timeout(patience, body.fill_buf()).await;
        if count.time_left().is_zero() {
            return Err(TooLarge::ListTime.into());
        }
        let chunk = chunk.map_err(|_| timed_out(SILENCE))?.map_err(kube::Error::ReadEvents)?;
        if chunk.is_empty() {
            let version = cutter.end()?;
            count.end();
            return Ok(version);
        }
        count.bytes(chunk.len())?;
        let mut counted = |text: &[u8]| {
            each(text)?;
            count.object().map_err(kube::Error::from)
        };
        cutter.feed(chunk, &mut counted)?;
        let read = chunk.len();
        body.consume_unpin(read);
    }
}

/// Cuts the objects out of the text of a list, piece by piece as it comes.
#[derive(Debug, Default)]
struct Cutter {
    /// The list without its objects.
    frame: Vec<u8>,
    /// The beginning of the object that is being read.
    object: Vec<u8>,
    depth: usize,
    quoted: bool,
    escaped: bool,
    /// Within the list's `items`.
    items: bool,
}

/// How deep the list itself is, and its `items`; the objects are deeper.
const ROOT: usize = 1;
const ITEMS: usize = 2;

impl Cutter {
    fn feed(&mut self, text: &[u8], each: &mut impl FnMut(&[u8]) -> kube::Result<()>) -> kube::Result<()> {
        // What stands before this has been dealt with.
        let mut from = 0;
        for (at, byte) in text.iter().enumerate() {
            if self.quoted {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.quoted = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.quoted = true,
                b'{' | b'[' => {
                    if self.items && self.depth == ITEMS {
                        from = at;
                    } else if *byte == b'[' && self.depth == ROOT {
                        self.frame.extend_from_slice(&text[from..at]);
                        from = at;
                        self.items = is_after_items(&self.frame);
                        if self.items {
                            self.frame.push(b'[');
                        }
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.items && self.depth == ITEMS {
                        self.take(&text[from..=at], each)?;
                        from = at + 1;
                    } else if self.items && self.depth == ROOT {
                        self.items = false;
                        from = at;
                    }
                }
                _ => {}
            }
        }
        match (self.items, self.depth) {
            (true, ITEMS) => {}
            (true, _) => self.object.extend_from_slice(&text[from..]),
            (false, _) => self.frame.extend_from_slice(&text[from..]),
        }
        if self.object.len() > OBJECT_BYTES {
            return Err(TooLarge::Object.into());
        }
        if self.frame.len() > FRAME_BYTES {
            return Err(kube::Error::ReadEvents(Error::new(ErrorKind::InvalidData, "the answer is no list")));
        }
        Ok(())
    }

    /// Gives away an object, of which this is the last piece.
    fn take(&mut self, last: &[u8], each: &mut impl FnMut(&[u8]) -> kube::Result<()>) -> kube::Result<()> {
        if self.object.is_empty() {
            return each(last);
        }
        self.object.extend_from_slice(last);
        let done = each(&self.object);
        self.object.clear();
        done
    }

    /// The version of the list, of which this was all.
    fn end(&self) -> kube::Result<String> {
        #[derive(Deserialize)]
        struct List {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            resource_version: String,
            #[serde(default, rename = "continue")]
            more: String,
        }
        let broken = |why: &str| kube::Error::ReadEvents(Error::new(ErrorKind::InvalidData, why));
        let list: List = serde_json::from_slice(&self.frame).map_err(kube::Error::SerdeError)?;
        match list.metadata {
            Metadata { resource_version, .. } if resource_version.is_empty() => {
                Err(broken("the list has no resourceVersion: nothing can be watched from it"))
            }
            Metadata { more, .. } if !more.is_empty() => Err(broken("the list is not whole")),
            Metadata { resource_version, .. } => Ok(resource_version),
        }
    }
}

/// Whether what comes after this text is the value of the key `items`.
fn is_after_items(text: &[u8]) -> bool {
    text.trim_ascii_end().strip_suffix(b":").is_some_and(|t| t.trim_ascii_end().ends_with(b"\"items\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is cut out of a text that comes in pieces of a length.
    fn cut(text: &str, length: usize) -> (Vec<String>, kube::Result<String>) {
        let (mut cutter, mut objects) = (Cutter::default(), Vec::new());
        let mut each = |object: &[u8]| {
            objects.push(String::from_utf8_lossy(object).into_owned());
            Ok(())
        };
        for piece in text.as_bytes().chunks(length) {
            cutter.feed(piece, &mut each).unwrap();
        }
        let end = cutter.end();
        (objects, end)
    }

    #[test]
    fn every_object_is_cut_out_wherever_the_text_is_broken() {
        let odd = [
            r#"{"metadata":{"name":"a"},"spec":{"items":[{"a":[1]},{}],"metadata":{"resourceVersion":"1"}}}"#,
            r#"{"text":"} ] [ { \" \\","items":[]}"#,
            r#"{"unicode":"é\u00e9 \ud83d\ude00 🚰", "n": -1.5e3, "no" : null}"#,
            "{}",
        ];
        let lists = [
            format!(r#"{{"kind":"L","items":[{}],"metadata":{{"resourceVersion":"7"}}}}"#, odd.join(",")),
            format!(
                "{{\n \"metadata\" : {{\"resourceVersion\": \"7\", \"x\": [[{{}}], \"items\"]}},\n \"items\" :\n [ {} ] }}\n",
                odd.join(" ,\n")
            ),
            format!(
                r#"{{"other":[{{"a":1}}],"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
                odd.join(",")
            ),
        ];
        for list in lists {
            for length in 1..=list.len() {
                let (objects, version) = cut(&list, length);
                assert_eq!(objects, odd, "{list} in pieces of {length}");
                assert_eq!(version.unwrap(), "7");
            }
        }
    }

    #[test]
    fn an_empty_list_has_a_version() {
        for items in ["[]", "null", "[ ]"] {
            let list = format!(r#"{{"items":{items},"metadata":{{"resourceVersion":"7"}}}}"#);
            let (objects, version) = cut(&list, 3);
            assert_eq!((objects, version.unwrap()), (Vec::new(), "7".to_string()));
        }
    }

    #[test]
    fn what_broke_off_is_no_list() {
        let list = r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":2}]}"#;
        for end in 0..list.len() {
            assert!(cut(&list[..end], 10).1.is_err(), "{}", &list[..end]);
        }
        assert!(cut("<html>", 10).1.is_err());
        for metadata in ["{}", r#"{"resourceVersion":""}"#, r#"{"resourceVersion":"7","continue":"abc"}"#] {
            let list = format!(r#"{{"items":[],"metadata":{metadata}}}"#);
            assert!(cut(&list, 10).1.is_err(), "{list}");
        }
    }
}
