//! Faults of a forge on demand: what happens to the next call of a kind instead of its answer.

use std::collections::VecDeque;
use std::time::Duration;

use axum::http::Method;

/// What happens to a call instead of an answer.
#[derive(Clone)]
pub enum ForgeFault {
    /// Answer this, without an effect, as the forge's published description has it: a difference fails the test.
    Documented(u16, &'static str),
    /// Answer this, without an effect. It may differ from the description.
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

/// The faults that are still to come.
#[derive(Default)]
pub struct FaultQueue {
    /// In order, each for the next call of its kind.
    next: VecDeque<(CallKind, ForgeFault)>,
    /// The number of the call whose answer is lost, counted from the next call that changes something; 0 for none.
    pub lost_answer: usize,
}

impl FaultQueue {
    /// Applies a fault to the next call of this kind, after the faults that are there already.
    pub fn inject(&mut self, call: CallKind, fault: ForgeFault) {
        self.next.push_back((call, fault));
    }

    /// Returns the fault of a call. `kind` is `None` if the forge cannot read the call.
    pub fn of_call(&mut self, kind: Option<CallKind>, method: &Method) -> ForgeFault {
        if self.next.front().is_some_and(|(call, _)| Some(*call) == kind) {
            return self.next.pop_front().map_or(ForgeFault::None, |(_, fault)| fault);
        }
        if *method == Method::GET || self.lost_answer == 0 {
            return ForgeFault::None;
        }
        self.lost_answer -= 1;
        if self.lost_answer == 0 { ForgeFault::Lose } else { ForgeFault::None }
    }
}
