//! Lists that come in pages, at whichever forge: those of change requests are read as far back as it can
//! matter, and no further; others to their end.

use jiff::{SignedDuration, Timestamp};

use serde_json::Value;

use super::Found;

/// So many pages of a list are read at most.
const PAGES: usize = 40;
/// How far the forge's clock may be behind ours.
const SKEW: SignedDuration = SignedDuration::from_hours(24);

/// One page of a list.
pub(super) struct Page {
    /// What could be read on it.
    pub(super) found: Vec<Found>,
    /// Where the next one begins, if there is one: a number of a page or of an entry, as the forge counts.
    pub(super) next: Option<u64>,
}

/// A time by the forge's clock that is surely not after `since` by ours.
pub(super) fn earliest(since: Timestamp) -> Timestamp {
    since.saturating_sub(SKEW).unwrap_or(since)
}

/// How far a list is read, and those from a branch that were on it.
pub(super) struct Reading<'a> {
    /// A forge that does not know the filter would show everybody's.
    pub(super) head: &'a str,
    at: Option<u64>,
    pages: usize,
    until: Until,
    pub(super) ours: Vec<Found>,
}

enum Until {
    /// The first one.
    First,
    /// One that is older. Only for a list that has the newest first.
    Older(Timestamp),
    End,
}

impl<'a> Reading<'a> {
    fn new(head: &'a str, until: Until) -> Self {
        Reading { head, at: Some(0), pages: 0, until, ours: Vec::new() }
    }

    /// Until one was found.
    pub(super) fn first(head: &'a str) -> Self {
        Reading::new(head, Until::First)
    }

    /// Back to a time.
    pub(super) fn since(head: &'a str, since: Timestamp) -> Self {
        Reading::new(head, Until::Older(earliest(since)))
    }

    /// To the end.
    pub(super) fn all(head: &'a str) -> Self {
        Reading::new(head, Until::End)
    }

    /// Where the page begins that is to be read next, if one is.
    pub(super) fn at(&self) -> Option<u64> {
        self.at.filter(|_| self.pages < PAGES)
    }

    /// Takes in a page that was read.
    pub(super) fn take(&mut self, page: Page) {
        let older = |time: Timestamp| page.found.last().is_some_and(|last| last.created < time);
        let done = match self.until {
            Until::Older(time) => older(time),
            Until::First | Until::End => false,
        };
        self.pages += 1;
        self.ours.extend(page.found.into_iter().filter(|f| f.request.branch == self.head));
        let done = done || (matches!(self.until, Until::First) && !self.ours.is_empty());
        self.at = page.next.filter(|_| !done);
    }
}

/// All entries of a list that is not of change requests.
pub(super) struct Entries {
    at: Option<u64>,
    pages: usize,
    pub(super) all: Vec<Value>,
}

impl Entries {
    /// Of a list whose first page begins there.
    pub(super) fn from(first: u64) -> Self {
        Entries { at: Some(first), pages: 0, all: Vec::new() }
    }

    /// Where the page begins that is to be read next, if one is.
    pub(super) fn at(&self) -> Option<u64> {
        self.at.filter(|_| self.pages < PAGES)
    }

    /// Takes in a page that was read, and where the next one begins.
    pub(super) fn take(&mut self, page: Vec<Value>, next: Option<u64>) {
        self.pages += 1;
        self.all.extend(page);
        self.at = next;
    }
}
