//! `/api/v1/changes`: the pipelines that a caller may see, and each change of them, as server-sent events. A reader that
//! is slow gets the newest state of each pipeline, and no state in between.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::access::Caller;
use sluice_core::slots::CallerSlot;
use tokio::time::{Instant, timeout};

use crate::answer::events;
use crate::board::{Board, PACE, ShownPipeline};
use crate::caller::IdentifiedCaller;
use crate::find::visible_pipelines;
use crate::hub::Hub;
use crate::parameters::Parameters;
use crate::problem::Problem;
use crate::state::Api;

/// How often the rights of the caller are asked for while nothing changes.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long the hub may take to answer again before the next look.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// One part of this many of the time is spent on looking.
const MAX_SHARE: u32 = 5;

/// Which changes to send.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChangesQuery {
    /// Only pipelines in this namespace.
    pub namespace: String,
}

/// A pipeline that is gone, or that the caller may not see any more.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GonePipeline {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// All pipelines were sent. A reader forgets those that are not among them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    /// The pipelines, by namespace and name.
    pub items: Vec<GonePipeline>,
    /// False while Sluice still reads the pipelines, so that some may be missing.
    pub complete: bool,
}

/// Namespace and name of a pipeline.
type Name = (String, String);

/// What is sent next.
enum Message {
    Pipeline(Arc<ShownPipeline>),
    Gone(Name),
    Listed(bool),
}

/// An open stream.
struct Stream<H> {
    api: Api<H>,
    caller: Caller,
    token: String,
    namespace: String,
    /// The pipelines that were sent, or that the reader has from an earlier stream.
    sent: BTreeMap<Name, Arc<ShownPipeline>>,
    /// The version of the board up to which the reader has everything, from an earlier stream.
    resumed: u64,
    is_listed: bool,
    version: u64,
    /// The board's last change that was looked at.
    changed: u64,
    waiting: VecDeque<Message>,
    /// How long the last look took.
    took: Duration,
    _slot: CallerSlot,
}

pub(crate) async fn changes<H: Hub>(
    State(api): State<Api<H>>,
    IdentifiedCaller(caller, token): IdentifiedCaller,
    headers: HeaderMap,
    Parameters(ChangesQuery { namespace }): Parameters<ChangesQuery>,
) -> Result<Response, Problem> {
    let slot = api.live.take(&caller).ok_or_else(|| {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many streams and pages are open: close some")
    })?;
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let resumed = api.boards.version_of(last).unwrap_or_default();
    let stream = Stream {
        api,
        caller,
        token,
        namespace,
        sent: BTreeMap::new(),
        resumed,
        is_listed: false,
        version: 0,
        changed: 0,
        waiting: VecDeque::new(),
        took: Duration::ZERO,
        _slot: slot,
    };
    Ok(events(futures::stream::unfold(
        stream,
        |mut stream| async move { Some((stream.next().await?, stream)) },
    )))
}

impl<H: Hub> Stream<H> {
    /// Returns the next event; `None` when the token is not accepted any more.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(self.event(message));
            }
            if self.is_listed {
                // It is no error if nothing changes.
                let _ = timeout(MAX_PAUSE, self.api.hub.changed_since(self.version)).await;
                // A stream of many pipelines looks less often.
                tokio::time::sleep(PACE.max(self.took * MAX_SHARE)).await;
            }
            let begun = Instant::now();
            let looked = self.look().await;
            self.took = begun.elapsed();
            if looked.is_err_and(|problem| problem.status == StatusCode::UNAUTHORIZED.as_u16()) {
                return None;
            }
        }
    }

    /// Notes what has changed.
    async fn look(&mut self) -> Result<(), Problem> {
        self.version = self.api.hub.version();
        let board = self.api.boards.for_stream(&self.api.hub).await;
        let visible = match self.visible(&board).await {
            Ok(visible) => visible,
            Err(problem) => {
                // What was sent stays true until the hub answers.
                tokio::time::sleep(RETRY_PAUSE).await;
                return Err(problem);
            }
        };
        if self.is_listed && board.changed == self.changed && visible.keys().eq(self.sent.keys()) {
            return Ok(());
        }
        self.changed = board.changed;
        let gone: Vec<Name> = self.sent.keys().filter(|name| !visible.contains_key(*name)).cloned().collect();
        self.waiting.extend(gone.into_iter().map(Message::Gone));
        for (name, shown) in &visible {
            let is_known = match self.sent.get(name) {
                Some(sent) => Arc::ptr_eq(sent, shown),
                None => !self.is_listed && shown.since <= self.resumed,
            };
            if !is_known {
                self.waiting.push_back(Message::Pipeline(shown.clone()));
            }
        }
        self.sent = visible;
        if !self.is_listed {
            self.is_listed = true;
            self.waiting.push_back(Message::Listed(board.is_complete));
        }
        Ok(())
    }

    /// The pipelines that the caller may see now.
    async fn visible(&mut self, board: &Board) -> Result<BTreeMap<Name, Arc<ShownPipeline>>, Problem> {
        self.caller = self.api.hub.identify(&self.token).await?;
        let visible = visible_pipelines(&self.api, &self.caller, board).await?;
        let wanted = visible
            .into_iter()
            .filter(|shown| self.namespace.is_empty() || self.namespace == shown.screen.namespace);
        let named = |shown: &Arc<ShownPipeline>| {
            ((shown.screen.namespace.clone(), shown.screen.name.clone()), shown.clone())
        };
        Ok(wanted.map(named).collect())
    }

    fn event(&self, message: Message) -> Event {
        let gone = |(namespace, name): Name| GonePipeline { namespace, name };
        let event = match message {
            Message::Pipeline(shown) => Event::default().event("pipeline").json_data(&shown.screen),
            Message::Gone(name) => Event::default().event("gone").json_data(gone(name)),
            Message::Listed(complete) => {
                let items = self.sent.keys().cloned().map(gone).collect();
                Event::default().event("listed").json_data(Listed { items, complete })
            }
        };
        let event = event.unwrap_or_default();
        // Only then the reader has everything up to this version.
        if self.waiting.is_empty() { event.id(self.api.boards.id_of(self.changed)) } else { event }
    }
}
