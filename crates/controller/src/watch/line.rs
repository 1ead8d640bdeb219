//! The lines of a watch. Each line is limited in size.

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::large_objects::{before, piece};
use super::limit::{self, WatchLimits};
use super::object_text::{Beginning, ObjectBuffer, ObjectText};
use super::parsed_object::{IdentifiedObject, ParsedObject};
use super::too_large::{self, TooLarge};

/// A parsed line. The texts are resource versions.
#[derive(Debug)]
pub enum WatchLine<K> {
    /// An object was added or changed.
    Applied(Box<ParsedObject<K>>, String),
    /// An object was deleted.
    Deleted(Box<ObjectMeta>, String),
    /// Nothing else has changed up to this version.
    Bookmark(String),
    /// An empty line.
    Empty,
}

impl<K: Resource + 'static> WatchLine<K> {
    /// Returns the namespace of the object that was changed or deleted.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            WatchLine::Applied(object, _) => object.meta().namespace.as_deref(),
            WatchLine::Deleted(metadata, _) => metadata.namespace.as_deref(),
            WatchLine::Bookmark(_) | WatchLine::Empty => None,
        }
    }
}

/// Reads the next line into `line`, of a long one its beginning. Returns false at the end of the body. Text after the
/// last newline is an incomplete line, and is dropped.
///
/// # Errors
/// When the body breaks off, the line is longer than [`MAX_READ_BYTES`](super::too_large::MAX_READ_BYTES), or a long line
/// does not end soon.
pub async fn next(
    body: &mut (impl AsyncBufRead + Unpin),
    line: &mut ObjectBuffer,
    limits: &WatchLimits,
) -> kube::Result<bool> {
    line.clear();
    loop {
        let chunk = before(line.deadline(), body.fill_buf()).await?.map_err(kube::Error::ReadEvents)?;
        let chunk = piece(chunk);
        if chunk.is_empty() {
            return Ok(false);
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        let (text, read) = match end {
            Some(end) => (&chunk[..end], end + 1),
            None => (chunk, chunk.len()),
        };
        line.add(text)?;
        body.consume_unpin(read);
        if end.is_some() {
            return Ok(true);
        }
        line.wait_until_permitted(limits.begin_large_object()).await;
        // A small compressed text may have become a very long line.
        tokio::task::yield_now().await;
    }
}

/// Parses a line.
///
/// # Errors
/// When the line reports an error, or is not a watch event.
pub fn parse<K: DeserializeOwned + Resource + 'static>(
    line: ObjectText<'_>,
    limits: &WatchLimits,
) -> kube::Result<WatchLine<K>> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        event_type: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let line = match line {
        ObjectText::Whole(line) if line.trim_ascii().is_empty() => return Ok(WatchLine::Empty),
        ObjectText::Whole(line) => line,
        ObjectText::Beginning(line) => return parse_beginning(line),
    };
    let has_too_many = || limits.has_too_many(limit::count_values(line));
    let parsed: Line<'_> = match serde_json::from_slice(line) {
        Ok(parsed) => parsed,
        // A server may send the status of an error without an event around it.
        Err(error) => {
            return Err(match serde_json::from_slice::<Status>(if has_too_many() { b"" } else { line }) {
                Ok(status) => kube::Error::Api(status.boxed()),
                Err(_) => kube::Error::SerdeError(error),
            });
        }
    };
    let text = parsed.object.get();
    match parsed.event_type {
        "ADDED" | "MODIFIED" => {
            let object = ParsedObject::<K>::within(ObjectText::Whole(text.as_bytes()), limits)?;
            let version = too_large::version(object.meta().resource_version.as_deref())?;
            Ok(WatchLine::Applied(Box::new(object), version))
        }
        "DELETED" => {
            let deleted = IdentifiedObject::read(text.as_bytes()).map_err(kube::Error::SerdeError)?;
            let version = too_large::version(deleted.resource_version.as_deref())?;
            Ok(WatchLine::Deleted(Box::new(deleted), version))
        }
        "BOOKMARK" => {
            let bookmark = IdentifiedObject::read(text.as_bytes()).map_err(kube::Error::SerdeError)?;
            Ok(WatchLine::Bookmark(too_large::version(bookmark.resource_version.as_deref())?))
        }
        _ if has_too_many() => Err(TooLarge::Object.into()),
        _ => {
            let status: Status = serde_json::from_str(text).map_err(kube::Error::SerdeError)?;
            Err(kube::Error::Api(status.boxed()))
        }
    }
}

/// Parses the beginning of a line that is too long.
fn parse_beginning<K: DeserializeOwned + Resource + 'static>(line: &[u8]) -> kube::Result<WatchLine<K>> {
    let Beginning { event_type, metadata } = Beginning::read(line);
    let object = ParsedObject::<K>::too_long(metadata)?;
    let version = too_large::version(object.meta().resource_version.as_deref())?;
    match event_type.as_deref() {
        Some("ADDED" | "MODIFIED") => Ok(WatchLine::Applied(Box::new(object), version)),
        Some("DELETED") => Ok(WatchLine::Deleted(Box::new(object.meta().clone()), version)),
        _ => Err(TooLarge::Object.into()),
    }
}
