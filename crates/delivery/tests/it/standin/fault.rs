//! Faults of a forge on demand: what happens to the next call of a kind instead of its answer.

use std::time::Duration;

/// What happens to a call instead of an answer.
#[derive(Clone)]
pub enum ForgeFault {
    /// Answer this, without an effect.
    Answer(u16, Vec<(&'static str, String)>, &'static str),
    /// Apply the call, and close the connection without an answer.
    Lose,
    /// Never answer.
    Hang,
    /// Answer this after a pause.
    Slow(Duration, &'static str),
    /// Answer one byte at a time, without an end.
    Drip,
    /// Answer normally.
    None,
}

/// The kind of a call, at any forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    List,
    Open,
    Read,
    Update,
    Close,
    Add,
    LookUp,
    ReadFacts,
    Merge,
    Comment,
    Commit,
    Report,
    Repository,
}
