//! Lists that come in pages. Lists of change requests are read as far back as necessary, others to their end. A list that
//! has no end, is too large or takes too long is an error: entries that are not read are not known.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use super::api::ListFilter;
use super::change_request::{ChangeRequestList, ForgeChangeRequest};
use super::error::{ForgeError, ForgeResult};
use super::http::ForgeHttp;

/// The most pages of a list that are read.
const MAX_PAGES: usize = 40;
/// The most bytes of change requests from one branch that are kept.
const MAX_CHANGE_REQUEST_BYTES: usize = 2 << 20;
/// The most entries of any other list that are kept.
const MAX_ENTRIES: usize = 4_000;
/// How far the forge's clock may be behind ours.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);

/// One page of a list.
pub(super) struct ListPage<T> {
    /// The entries that could be read.
    pub(super) entries: Vec<T>,
    /// Where the next page begins, if there is one: the number of a page or of an entry, as the forge counts.
    pub(super) next: Option<u64>,
}

/// How far a list of change requests is read.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// To the first change request from the branch.
    First,
    /// To one that is older than this. Only for a list with the newest first.
    Since(Timestamp),
    End,
}

impl Reach {
    /// For a list with the newest first.
    pub(super) fn of(filter: ListFilter) -> Self {
        match filter {
            ListFilter::Open => Reach::First,
            ListFilter::Since(since) => Reach::Since(since),
        }
    }
}

/// A time by the forge's clock that is certainly not after `since` by ours.
pub(super) fn earliest(since: Timestamp) -> Timestamp {
    since.saturating_sub(MAX_CLOCK_SKEW).unwrap_or(since)
}

/// The next page of a list, and how much has been read.
pub(super) struct Cursor {
    at: Option<u64>,
    pages: usize,
    began: Instant,
}

impl Cursor {
    pub(super) fn from(first: u64) -> Self {
        Cursor { at: Some(first), pages: 0, began: Instant::now() }
    }

    /// Where the next page begins, if there is one. `entries` is the number of entries that were read.
    ///
    /// # Errors
    /// When the list is too long, or has taken too long.
    pub(super) fn at(&self, http: &ForgeHttp, entries: usize) -> ForgeResult<Option<u64>> {
        let after = http.list_timeout();
        if self.at.is_none() {
            return Ok(None);
        }
        if entries >= MAX_ENTRIES {
            return Err(http.too_large(format!("a list of more than {MAX_ENTRIES} entries")));
        }
        if self.pages >= MAX_PAGES {
            return Err(http.too_large(format!("a list of more than {MAX_PAGES} pages")));
        }
        if self.began.elapsed() >= after {
            return Err(ForgeError::Timeout { forge: http.name.clone(), after });
        }
        Ok(self.at)
    }

    pub(super) fn advance(&mut self, next: Option<u64>) {
        self.pages += 1;
        self.at = next;
    }
}

/// Reads a list to its end. The first page begins at `first`.
pub(super) async fn all<T, F>(http: &ForgeHttp, first: u64, page: impl Fn(u64) -> F) -> ForgeResult<Vec<T>>
where
    F: Future<Output = ForgeResult<ListPage<T>>>,
{
    let (mut cursor, mut all) = (Cursor::from(first), Vec::new());
    while let Some(at) = cursor.at(http, all.len())? {
        let page = page(at).await?;
        all.extend(page.entries);
        cursor.advance(page.next);
    }
    Ok(all)
}

/// Reads the change requests from one branch to another. All others are skipped: a forge that does not know the filter
/// returns them, too, and anybody who may open a change request can open one from Sluice's branch to a base of their own.
pub(super) async fn change_requests<F>(
    http: &ForgeHttp,
    (head, base): (&str, &str),
    reach: Reach,
    page: impl Fn(u64) -> F,
) -> ForgeResult<ChangeRequestList>
where
    F: Future<Output = ForgeResult<ListPage<ForgeChangeRequest>>>,
{
    let mut list = ChangeRequestList::default();
    let found = &mut list.found;
    let read = async {
        let (mut cursor, mut bytes) = (Cursor::from(0), 0);
        while let Some(at) = cursor.at(http, 0)? {
            let ListPage { entries, next } = page(at).await?;
            let oldest = entries.last().map(|last| last.created);
            let wanted =
                entries.into_iter().filter(|entry| entry.request.branch == head && entry.base == base);
            for entry in wanted.filter_map(ForgeChangeRequest::checked) {
                bytes += entry.weight();
                if bytes > MAX_CHANGE_REQUEST_BYTES {
                    return Err(http.too_large(format!("more than 2 MiB of change requests from {head}")));
                }
                found.push(entry);
            }
            let is_done = match reach {
                Reach::First => !found.is_empty(),
                Reach::Since(since) => oldest.is_some_and(|oldest| oldest < earliest(since)),
                Reach::End => false,
            };
            cursor.advance(next.filter(|_| !is_done));
        }
        Ok(())
    };
    match read.await {
        Err(ForgeError::TooLarge { forge, what }) => {
            list.unread = Some(ForgeError::ListTooLarge { forge, head: head.into(), what });
        }
        read => read?,
    }
    Ok(list)
}
