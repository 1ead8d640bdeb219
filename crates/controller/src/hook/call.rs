//! A call of the hook server, and the key that it shows.

use http::HeaderMap;
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use sluice_api::Pipeline;

use super::hmac_keys::Purpose;
use super::route::Place;

/// A body that is longer than this is a long one: events and calls of forges are shorter, as a rule.
pub(super) const LONG: usize = 64 << 10;

/// Which key a call shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// One that is wanted, from the Secret of this name.
    Key(Purpose, String),
    /// One of the pipeline's keys, for another purpose.
    Wrong(Purpose),
    /// None.
    Nothing,
}

impl Shown {
    /// Whether the call shows one of the wanted keys.
    pub fn is_key(&self) -> bool {
        matches!(self, Shown::Key(..))
    }
}

/// A call that was read.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// Where it went.
    pub place: &'a Place,
    /// The pipeline that is there.
    pub pipeline: Option<&'a Pipeline>,
    /// What it says beside its body.
    pub headers: &'a HeaderMap,
    /// What it says.
    pub body: &'a Bytes,
}

impl Call<'_> {
    /// Whether the body is as short as almost all are.
    pub(super) fn is_short(&self) -> bool {
        self.body.len() <= LONG
    }

    /// The body, which is an object: serde would take a list for one, field by field.
    ///
    /// # Errors
    /// What it is in place of one.
    pub(super) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|byte| *byte != b'{') {
            // Names what is there, or where it is no JSON at all.
            serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(self.body)?;
        }
        serde_json::from_slice(self.body)
    }
}
