//! The versions of podinfo, the application that the demo promotes.

/// The first version of every environment.
pub const FIRST: &str = "6.1.5";
/// The version that the demo releases.
pub const NEXT: &str = "6.1.8";
/// The version that the demo suggests to release by hand.
pub const SUGGESTED: &str = "6.2.0";
