//! The lines of a watch: read with a limit, one at a time.

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::{PartialObjectMeta, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::guard::Guard;
use super::limit::{self, OBJECT_BYTES, TooLarge, WatchLimits};

/// What a line tells.
#[derive(Debug)]
pub enum Change<K> {
    /// An object is there, or has changed, at a version.
    Applied(Box<Guard<K>>, String),
    /// An object is gone, at a version.
    Deleted(Box<ObjectMeta>, String),
    /// Nothing has changed up to a version.
    Bookmark(String),
    /// An empty line.
    Nothing,
}

/// Reads one line; false at the end of the body. What comes after the last newline is half a line.
///
/// # Errors
/// When the body breaks off, or the line is longer than an object may be.
pub async fn line(body: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> kube::Result<bool> {
    line.clear();
    loop {
        let chunk = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
        if chunk.is_empty() {
            return Ok(false);
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        let (text, read) = match end {
            Some(end) => (&chunk[..end], end + 1),
            None => (chunk, chunk.len()),
        };
        if line.len() + text.len() > OBJECT_BYTES {
            return Err(TooLarge::Object.into());
        }
        line.extend_from_slice(text);
        body.consume_unpin(read);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Reads what a line tells.
///
/// # Errors
/// When it tells of an error, or nothing that is known.
pub fn read<K: DeserializeOwned + Resource + 'static>(
    line: &[u8],
    limits: &WatchLimits,
) -> kube::Result<Change<K>> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        what: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    if line.trim_ascii().is_empty() {
        return Ok(Change::Nothing);
    }
    // Objects are counted where they are read.
    let has_too_many = || limits.has_too_many(limit::values(line));
    let parsed: Line<'_> = match serde_json::from_slice(line) {
        Ok(parsed) => parsed,
        // An error may come without an event around it.
        Err(error) => {
            return Err(match serde_json::from_slice::<Status>(if has_too_many() { b"" } else { line }) {
                Ok(status) => kube::Error::Api(status.boxed()),
                Err(_) => kube::Error::SerdeError(error),
            });
        }
    };
    let text = parsed.object.get();
    if !matches!(parsed.what, "ADDED" | "MODIFIED") && has_too_many() {
        return Err(TooLarge::Object.into());
    }
    match parsed.what {
        "ADDED" | "MODIFIED" => {
            let object = Guard::<K>::within(text.as_bytes(), limits).map_err(kube::Error::SerdeError)?;
            let version = object.meta().resource_version.clone().unwrap_or_default();
            Ok(Change::Applied(Box::new(object), version))
        }
        "DELETED" => {
            let gone: PartialObjectMeta<K> = serde_json::from_str(text).map_err(kube::Error::SerdeError)?;
            let version = gone.metadata.resource_version.clone().unwrap_or_default();
            Ok(Change::Deleted(Box::new(gone.metadata), version))
        }
        "BOOKMARK" => {
            let mark: PartialObjectMeta<K> = serde_json::from_str(text).map_err(kube::Error::SerdeError)?;
            Ok(Change::Bookmark(mark.metadata.resource_version.unwrap_or_default()))
        }
        _ => {
            let status: Status = serde_json::from_str(text).map_err(kube::Error::SerdeError)?;
            Err(kube::Error::Api(status.boxed()))
        }
    }
}
