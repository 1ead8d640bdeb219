//! The versions of podinfo in the demo.

/// The first version of every environment.
pub const FIRST: &str = "6.1.5";
/// The version that the demo releases.
pub const NEXT: &str = "6.1.8";
