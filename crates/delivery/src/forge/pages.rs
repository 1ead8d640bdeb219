//! Lists that come in pages, at whichever forge: those of change requests are read as far back as it can
//! matter, and no further; others to their end. A list that has no end, is too large or takes too long is an
//! error: what is not read is not known.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use super::http::ForgeHttp;
use super::{ForgeError, Found};

/// The most pages of a list that are read.
const PAGES: usize = 40;
/// The most bytes of change requests from one branch that are kept, and entries of another list.
const OURS_BYTES: usize = 2 << 20;
const ENTRIES: usize = 4_000;
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
    next: Next,
    until: Until,
    bytes: usize,
    pub(super) ours: Vec<Found>,
}

/// Which page is read next, and how much has been read.
struct Next {
    at: Option<u64>,
    pages: usize,
    began: Instant,
}

impl Next {
    fn from(first: u64) -> Self {
        Next { at: Some(first), pages: 0, began: Instant::now() }
    }

    fn at(&self, http: &ForgeHttp) -> Result<Option<u64>, ForgeError> {
        let after = http.list_timeout();
        match self.at {
            Some(_) if self.pages >= PAGES => {
                Err(http.too_large(format!("a list of more than {PAGES} pages")))
            }
            Some(_) if self.began.elapsed() >= after => {
                Err(ForgeError::Timeout { forge: http.name.clone(), after })
            }
            at => Ok(at),
        }
    }

    fn take(&mut self, next: Option<u64>) {
        self.pages += 1;
        self.at = next;
    }
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
        Reading { head, next: Next::from(0), until, bytes: 0, ours: Vec::new() }
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
    ///
    /// # Errors
    /// When the list is too long, or has taken too long.
    pub(super) fn at(&self, http: &ForgeHttp) -> Result<Option<u64>, ForgeError> {
        if self.bytes > OURS_BYTES {
            return Err(http.too_large(format!("more than 2 MiB of change requests from {}", self.head)));
        }
        self.next.at(http)
    }

    /// Takes in a page that was read.
    pub(super) fn take(&mut self, page: Page) {
        let older = |time: Timestamp| page.found.last().is_some_and(|last| last.created < time);
        let done = match self.until {
            Until::Older(time) => older(time),
            Until::First | Until::End => false,
        };
        let ours = page.found.into_iter().filter(|f| f.request.branch == self.head);
        for found in ours.filter_map(Found::checked) {
            self.bytes += found.weight();
            // Beyond the limit it is an error in any case.
            if self.bytes <= OURS_BYTES {
                self.ours.push(found);
            }
        }
        let done = done || (matches!(self.until, Until::First) && !self.ours.is_empty());
        self.next.take(page.next.filter(|_| !done || self.bytes > OURS_BYTES));
    }
}

/// All entries of a list that is not of change requests.
pub(super) struct Entries<T> {
    next: Next,
    pub(super) all: Vec<T>,
}

impl<T> Entries<T> {
    /// Of a list whose first page begins there.
    pub(super) fn from(first: u64) -> Self {
        Entries { next: Next::from(first), all: Vec::new() }
    }

    /// Where the page begins that is to be read next, if one is.
    ///
    /// # Errors
    /// When the list is too long, or has taken too long.
    pub(super) fn at(&self, http: &ForgeHttp) -> Result<Option<u64>, ForgeError> {
        if self.next.at.is_some() && self.all.len() >= ENTRIES {
            return Err(http.too_large(format!("a list of more than {ENTRIES} entries")));
        }
        self.next.at(http)
    }

    /// Takes in a page that was read, and where the next one begins.
    pub(super) fn take(&mut self, page: impl IntoIterator<Item = T>, next: Option<u64>) {
        self.next.take(next);
        self.all.extend(page);
    }
}
