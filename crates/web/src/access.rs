//! The port through which the API asks who calls and what the caller may see.

use sluice_core::access::{AccessError, Caller, ReadRight};

/// Says who calls, and what the caller may read.
pub trait Access: Clone + Send + Sync + 'static {
    /// Returns whose token this is.
    fn identify(&self, token: &str) -> impl Future<Output = Result<Caller, AccessError>> + Send;

    /// Returns whether a caller may read something.
    fn allows(
        &self,
        caller: &Caller,
        right: &ReadRight,
    ) -> impl Future<Output = Result<bool, AccessError>> + Send;
}
