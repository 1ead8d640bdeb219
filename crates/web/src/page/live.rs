//! Live updates: while a page is open, the parts of it that change are sent as server-sent events.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use sluice_core::slots::CallerSlot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::answer::without_unsafe;
use super::frame::Page;
use super::person::{NoPerson, Person};
use super::route::View;

use crate::answer::events;
use crate::board::PACE;
use crate::fleet_versions::MAX_AGE;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;

/// The shortest pause between two looks at a page about clusters: any event of any cluster may have changed it.
const FLEET_PACE: Duration = Duration::from_millis(700);
/// The pause after a look that has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// How often a page is looked at although nothing has changed: rights and sessions may have ended.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How often the rights of the person are asked for while other objects change.
const RIGHTS_PACE: Duration = Duration::from_secs(10);
/// One part of this many of the time is spent on rendering a page.
const MAX_SHARE: u32 = 5;

#[derive(Deserialize)]
pub(super) struct Of {
    /// The address of the page.
    of: String,
    /// The fingerprint of what the browser shows.
    #[serde(default)]
    have: String,
}

/// An open page.
struct LivePage<H> {
    api: Api<H>,
    view: View,
    headers: HeaderMap,
    /// The fingerprint of what the browser showed when it asked.
    have: String,
    /// What the browser shows; `None` before the first look.
    shown: Option<Page>,
    version: u64,
    /// The board's last change that the browser shows.
    changed: u64,
    /// When the page was last rendered, and how long that was computed.
    looked: Instant,
    computed: Duration,
    waiting: Vec<Event>,
    ended: bool,
    _slot: CallerSlot,
}

pub(super) async fn live<H: Hub>(
    State(api): State<Api<H>>,
    Query(Of { of, have }): Query<Of>,
    headers: HeaderMap,
) -> Response {
    let person = match Person::of(&api, &headers).await {
        Ok(person) => person,
        Err(NoPerson::SignedOut) => {
            return Problem::new(StatusCode::UNAUTHORIZED, "sign in first").into_response();
        }
        Err(NoPerson::Refused(problem)) => return problem.into_response(),
    };
    let view = match of.parse::<Uri>().map_err(|_| Problem::bad_request("of=… is not an address")) {
        Ok(uri) => View::parse(&uri),
        Err(problem) => Err(problem),
    };
    let view = match view {
        Ok(view) => view,
        Err(problem) => return problem.into_response(),
    };
    let Some(slot) = api.live.take(&person.caller) else {
        let why = "too many pages are open: close some";
        return Problem::new(StatusCode::TOO_MANY_REQUESTS, why).into_response();
    };
    let page = LivePage {
        api,
        view,
        headers,
        have,
        shown: None,
        version: 0,
        changed: 0,
        looked: Instant::now(),
        computed: Duration::ZERO,
        waiting: Vec::new(),
        ended: false,
        _slot: slot,
    };
    events(futures::stream::unfold(page, |mut page| async move { Some((page.next().await?, page)) }))
}

impl<H: Hub> LivePage<H> {
    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        while self.waiting.is_empty() {
            if self.ended {
                return None;
            }
            if self.shown.is_some() {
                self.pause().await;
            }
            self.look().await;
        }
        Some(self.waiting.remove(0))
    }

    /// Waits until the page may have changed.
    async fn pause(&self) {
        let pace = if self.view.is_of_hub() { PACE } else { FLEET_PACE };
        // It is no error if nothing changes.
        let _ = timeout(MAX_PAUSE, self.api.hub.changed_since(self.version)).await;
        // A page that takes long to render is rendered less often.
        let next = self.looked + pace.max(self.computed * MAX_SHARE);
        // Rows from before the change may be kept, and no further change would update the page.
        let are_current = if self.view.is_of_hub() { next } else { Instant::now() + MAX_AGE };
        sleep_until(next.max(are_current)).await;
    }

    /// Looks at the page, and notes what has changed.
    async fn look(&mut self) {
        self.version = self.api.hub.version();
        let changed = self.api.boards.for_stream(&self.api.hub).await.changed;
        // The hub's version is higher after every event of any cluster.
        let is_known = self.shown.is_some() && self.view.is_of_hub() && changed == self.changed;
        if is_known && self.looked.elapsed() < RIGHTS_PACE {
            return;
        }
        self.looked = Instant::now();
        let (is_current, computed) = timed(self.render()).await;
        if is_current {
            (self.changed, self.computed) = (changed, computed);
        }
    }

    /// Renders the page, and notes what has changed. Returns whether the browser will show the current page.
    async fn render(&mut self) -> bool {
        // Looking costs nothing of the person's budget: the pace limits it.
        let person = match Person::identified(&self.api, &self.headers).await {
            Ok(person) => person,
            Err(NoPerson::SignedOut) => return self.end("signed-out"),
            // The hub does not answer. What is shown stays, and the next look is later.
            Err(NoPerson::Refused(_)) => {
                sleep(FAILURE_PAUSE).await;
                return false;
            }
        };
        match self.view.page(&self.api, &person.caller).await {
            Ok(page) => {
                self.show(page);
                true
            }
            Err(problem) if problem.status == StatusCode::NOT_FOUND.as_u16() => self.end("gone"),
            Err(_) => {
                sleep(FAILURE_PAUSE).await;
                false
            }
        }
    }

    fn end(&mut self, event: &'static str) -> bool {
        self.ended = true;
        self.waiting.push(Event::default().event(event).data(""));
        true
    }

    fn show(&mut self, page: Page) {
        let ids = |page: &Page| page.parts().map(|part| part.id.clone()).collect::<Vec<_>>();
        match &self.shown {
            Some(shown) if ids(shown) == ids(&page) => {
                let changed = page.parts().zip(shown.parts()).filter(|(new, old)| new.html != old.html);
                self.waiting.extend(changed.map(|(new, _)| html_event("part", &new.html)));
            }
            // The page has other rows, or has them in another order.
            Some(shown) => self.waiting.push(html_event("main", &page.main_after(shown).into_string())),
            None if page.fingerprint() == self.have => {}
            None => self.waiting.push(html_event("main", &page.main().into_string())),
        }
        self.shown = Some(page);
    }
}

/// Returns what a future returns, and how long it computed: waiting for the API server costs nothing here.
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let (mut future, mut computed) = (pin!(future), Duration::ZERO);
    let output = poll_fn(|cx| {
        let begun = Instant::now();
        let poll = future.as_mut().poll(cx);
        computed += begun.elapsed();
        poll
    });
    (output.await, computed)
}

/// Returns an event with HTML.
fn html_event(name: &str, html: &str) -> Event {
    Event::default().event(name).data(without_unsafe(html))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_for_others_is_not_counted_as_work() {
        let wait = Duration::from_millis(500);
        let work = Duration::from_millis(20);
        let (answer, computed) = timed(async {
            sleep(wait).await;
            std::thread::sleep(work);
            "shown"
        })
        .await;
        assert_eq!(answer, "shown");
        assert!(computed >= work, "{computed:?}");
        assert!(computed < wait, "{computed:?}");
    }
}
