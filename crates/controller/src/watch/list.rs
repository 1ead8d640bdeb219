//! Reads lists object by object: each object is cut out of the text as soon as it is complete.
//!
//! A list is requested without pages. API servers answer such a request from memory, but most of them read each
//! page after the first from etcd and decode all of its objects again, which is four times the work at each start.
//! The list takes no more memory here than its longest object.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use futures::AsyncBufReadExt;
use http::Request;
use kube::Client;
use kube::api::ListParams;
use serde::Deserialize;
use tokio::time::timeout;

use super::large_objects::{before, piece};
use super::limit::WatchLimits;
use super::object_text::{ObjectBuffer, ObjectText};
use super::too_large::{self, MAX_OBJECT_BYTES, TooLarge};
use crate::timeout::timed_out;

/// The limit for each next piece of a list.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of a list without its objects.
const MAX_FRAME_BYTES: usize = 64 << 10;
/// The most bytes between the objects of a list. API servers send a comma.
const MAX_BYTES_BETWEEN: usize = 4 << 20;

/// Returns the request for all objects at a URL, or for those that match a field selector.
///
/// # Errors
/// When the URL is not valid.
pub fn request(url: &str, fields: Option<&str>) -> kube::Result<Request<Vec<u8>>> {
    let params = ListParams { field_selector: fields.map(String::from), ..ListParams::default() };
    kube::core::Request::new(url).list(&params).map_err(kube::Error::BuildRequest)
}

/// Sends a request for a list, calls `each` with the text of each object, and returns the resource version of the
/// list.
pub async fn read(
    client: &Client,
    request: Request<Vec<u8>>,
    limits: &WatchLimits,
    mut each: impl FnMut(ObjectText<'_>) -> kube::Result<()>,
) -> kube::Result<String> {
    limits.wait_for_room().await;
    let mut count = limits.start_list();
    let body = timeout(READ_TIMEOUT, client.request_stream(request))
        .await
        .map_err(|_| timed_out(READ_TIMEOUT))??;
    futures::pin_mut!(body);
    let mut splitter = ListSplitter::default();
    loop {
        let time_limit = READ_TIMEOUT.min(count.time_left());
        let chunk = timeout(time_limit, before(splitter.object.deadline(), body.fill_buf())).await;
        if count.time_left().is_zero() {
            return Err(TooLarge::ListTime.into());
        }
        let chunk = chunk.map_err(|_| timed_out(READ_TIMEOUT))??.map_err(kube::Error::ReadEvents)?;
        if chunk.is_empty() {
            return splitter.finish();
        }
        let chunk = piece(chunk);
        count.add_bytes(chunk.len())?;
        let mut counted = |text: ObjectText<'_>| {
            each(text)?;
            count.add_object().map_err(kube::Error::from)
        };
        splitter.feed(chunk, &mut counted)?;
        let read = chunk.len();
        body.consume_unpin(read);
        let waits_since = Instant::now();
        splitter.object.wait_until_permitted(limits.begin_large_object()).await;
        count.leave_out(waits_since.elapsed());
        // A small compressed text may have become a very long one: the next piece is there already, and other tasks have
        // to go on.
        tokio::task::yield_now().await;
    }
}

/// Splits the text of a list, which arrives in pieces, into the objects and the frame around them.
#[derive(Debug, Default)]
struct ListSplitter {
    /// The list without its objects.
    frame: Vec<u8>,
    /// The beginning of the current object.
    object: ObjectBuffer,
    /// The number of bytes between the objects.
    between: usize,
    /// The number of open braces and brackets.
    depth: usize,
    /// In a string.
    in_string: bool,
    /// After a backslash in a string.
    escaped: bool,
    /// In the array `items` of the list.
    in_items: bool,
}

/// The depth in the list itself.
const LIST_DEPTH: usize = 1;
/// The depth in the array `items`. The depth in an object is greater.
const ITEMS_DEPTH: usize = 2;

impl ListSplitter {
    fn feed(
        &mut self,
        text: &[u8],
        each: &mut impl FnMut(ObjectText<'_>) -> kube::Result<()>,
    ) -> kube::Result<()> {
        // The start of the text that is in neither the frame nor an object yet.
        let mut from = 0;
        for (at, byte) in text.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    if self.in_items && self.depth == ITEMS_DEPTH {
                        self.between += at - from;
                        from = at;
                    } else if *byte == b'[' && self.depth == LIST_DEPTH {
                        self.frame.extend_from_slice(&text[from..at]);
                        from = at;
                        self.in_items = is_after_items(&self.frame);
                        if self.in_items {
                            self.frame.push(b'[');
                        }
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.in_items && self.depth == ITEMS_DEPTH {
                        self.finish_object(&text[from..=at], each)?;
                        from = at + 1;
                    } else if self.in_items && self.depth == LIST_DEPTH {
                        self.in_items = false;
                        from = at;
                    }
                }
                _ => {}
            }
        }
        match (self.in_items, self.depth) {
            (true, ITEMS_DEPTH) => self.between += text.len() - from,
            (true, _) => self.object.add(&text[from..])?,
            (false, _) => self.frame.extend_from_slice(&text[from..]),
        }
        if self.frame.len() > MAX_FRAME_BYTES || self.between > MAX_BYTES_BETWEEN {
            return Err(kube::Error::ReadEvents(Error::new(
                ErrorKind::InvalidData,
                "the answer is not a list",
            )));
        }
        Ok(())
    }

    /// Calls `each` with an object, of which `last` is the last piece.
    fn finish_object(
        &mut self,
        last: &[u8],
        each: &mut impl FnMut(ObjectText<'_>) -> kube::Result<()>,
    ) -> kube::Result<()> {
        if self.object.is_empty() && last.len() <= MAX_OBJECT_BYTES {
            return each(ObjectText::Whole(last));
        }
        self.object.add(last)?;
        let result = each(self.object.text());
        self.object.clear();
        result
    }

    /// Returns the resource version of the list, whose text is complete.
    fn finish(&self) -> kube::Result<String> {
        #[derive(Deserialize)]
        struct ListFrame {
            metadata: ListMetadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMetadata {
            #[serde(default)]
            resource_version: String,
            #[serde(default, rename = "continue")]
            more: String,
        }
        let invalid = |why: &str| kube::Error::ReadEvents(Error::new(ErrorKind::InvalidData, why));
        let list: ListFrame = serde_json::from_slice(&self.frame).map_err(kube::Error::SerdeError)?;
        match list.metadata {
            ListMetadata { resource_version, .. } if resource_version.is_empty() => {
                Err(invalid("the list has no resourceVersion, so no watch can start from it"))
            }
            ListMetadata { more, .. } if !more.is_empty() => Err(invalid("the list is incomplete")),
            ListMetadata { resource_version, .. } => Ok(too_large::version(Some(&resource_version))?),
        }
    }
}

/// Whether a text ends with the key `items`, so that its value follows.
fn is_after_items(text: &[u8]) -> bool {
    text.trim_ascii_end().strip_suffix(b":").is_some_and(|t| t.trim_ascii_end().ends_with(b"\"items\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text that arrives in pieces of this length.
    fn split(text: &str, length: usize) -> (Vec<String>, kube::Result<String>) {
        let (mut splitter, mut objects) = (ListSplitter::default(), Vec::new());
        let mut each = |object: ObjectText<'_>| {
            objects.push(String::from_utf8_lossy(object.whole().unwrap()).into_owned());
            Ok(())
        };
        for piece in text.as_bytes().chunks(length) {
            splitter.feed(piece, &mut each).unwrap();
        }
        let version = splitter.finish();
        (objects, version)
    }

    #[test]
    fn a_list_is_split_into_its_objects_whatever_the_size_of_the_pieces() {
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
                let (objects, version) = split(&list, length);
                assert_eq!(objects, odd, "{list} in pieces of {length}");
                assert_eq!(version.unwrap(), "7");
            }
        }
    }

    #[test]
    fn an_empty_list_has_a_version() {
        for items in ["[]", "null", "[ ]"] {
            let list = format!(r#"{{"items":{items},"metadata":{{"resourceVersion":"7"}}}}"#);
            let (objects, version) = split(&list, 3);
            assert_eq!((objects, version.unwrap()), (Vec::new(), "7".to_string()));
        }
    }

    #[test]
    fn an_incomplete_list_is_an_error() {
        let list = r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":2}]}"#;
        for end in 0..list.len() {
            assert!(split(&list[..end], 10).1.is_err(), "{}", &list[..end]);
        }
        assert!(split("<html>", 10).1.is_err());
        for metadata in ["{}", r#"{"resourceVersion":""}"#, r#"{"resourceVersion":"7","continue":"abc"}"#] {
            let list = format!(r#"{{"items":[],"metadata":{metadata}}}"#);
            assert!(split(&list, 10).1.is_err(), "{list}");
        }
    }
}
