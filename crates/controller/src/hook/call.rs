//! A call to the hook server.

use http::HeaderMap;
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use sluice_api::Pipeline;

use super::answer::{CallError, HookAnswer};
use super::route::Route;

/// The longest body that counts as short, in bytes. Events and calls of forges are rarely longer.
pub(super) const MAX_SHORT_BODY_BYTES: usize = 64 << 10;

/// A call whose body was read.
#[derive(Clone, Copy)]
pub(super) struct HookCall<'a> {
    /// The pipeline and endpoint that its path names.
    pub route: &'a Route,
    /// The pipeline, if it exists.
    pub pipeline: Option<&'a Pipeline>,
    pub headers: &'a HeaderMap,
    pub body: &'a Bytes,
}

impl HookCall<'_> {
    /// Returns true if the body has at most [`MAX_SHORT_BODY_BYTES`].
    pub(super) fn is_short(&self) -> bool {
        self.body.len() <= MAX_SHORT_BODY_BYTES
    }

    /// Parses the body, which must be a JSON object: serde would also accept a list, as the fields in their order.
    ///
    /// # Errors
    /// When the body is no JSON, no object, or an object of another form.
    pub(super) fn parse_body<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        let first = self.body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|byte| *byte != b'{') {
            // The error names the type of the value, or the position that is no JSON.
            serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(self.body)?;
        }
        serde_json::from_slice(self.body)
    }

    /// Parses the body as [`HookCall::parse_body`] does.
    ///
    /// # Errors
    /// The answer to a body of another form, with the text that `explain` makes of the error.
    pub(super) fn parse_request<T: DeserializeOwned>(
        &self,
        explain: impl FnOnce(&serde_json::Error) -> String,
    ) -> Result<T, HookAnswer> {
        self.parse_body().map_err(|error| {
            let kind = if error.is_data() { CallError::Invalid } else { CallError::Malformed };
            HookAnswer::Error(kind, explain(&error))
        })
    }
}
