//! The users of the git server, with their passwords.

/// A user who may read and push.
pub(super) const USER: &str = "sluice";
pub(super) const PASSWORD: &str = "open sesame/+?";
/// A user who may only read.
pub(super) const READER: &str = "reader";
pub(super) const READER_PASSWORD: &str = "read only";
/// The user for Flux, who may only read.
pub(super) const FLUX: &str = "flux";
pub(super) const FLUX_PASSWORD: &str = "reconcile";
