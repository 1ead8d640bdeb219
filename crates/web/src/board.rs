//! All pipelines as the pages show them. What has not changed is not computed again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sluice_api::Promotion;
use sluice_api::snapshot::{Snapshot, StoredPipeline};
use sluice_view::pipeline_screen::{PipelineScreen, status};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::hub::Hub;
use crate::page::pipeline_row::row;
use crate::pipeline_search::SearchedFacts;

/// How often a stream looks for changes, at most.
pub(crate) const PACE: Duration = Duration::from_millis(100);

/// One pipeline as the list shows it.
#[derive(Debug)]
pub(crate) struct ShownPipeline {
    /// The object.
    pub stored: StoredPipeline,
    /// Its promotions.
    pub promotions: Vec<Arc<Promotion>>,
    /// The pipeline on one screen.
    pub screen: PipelineScreen,
    /// The row of the list, as HTML.
    pub row: Arc<str>,
    /// What a search looks at.
    pub searched: SearchedFacts,
    /// The version of the hub's objects since which it is so.
    pub since: u64,
}

/// All pipelines at one moment.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// The version of the hub's objects that it shows.
    pub version: u64,
    /// The version in which something that pages show last changed.
    pub changed: u64,
    /// False until all were read from the hub.
    pub is_complete: bool,
    /// By namespace and name.
    pub pipelines: BTreeMap<(String, String), Arc<ShownPipeline>>,
}

/// The board that was computed last. Copies share it.
#[derive(Clone, Debug)]
pub(crate) struct Boards {
    kept: Arc<Mutex<Kept>>,
    /// A random number. Another process counts versions from the beginning.
    process: u64,
}

impl Default for Boards {
    fn default() -> Self {
        Boards { kept: Arc::default(), process: RandomState::new().hash_one(()) }
    }
}

#[derive(Debug, Default)]
struct Kept {
    board: Arc<Board>,
    /// When it was computed; `None` before the first one.
    at: Option<Instant>,
    /// How long that took.
    took: Duration,
}

impl Boards {
    /// Returns the id of an event after which a reader has everything up to a version.
    pub(crate) fn id_of(&self, version: u64) -> String {
        format!("{:016x}-{version}", self.process)
    }

    /// Returns the version of such an id; `None` if it is of another process.
    pub(crate) fn version_of(&self, id: &str) -> Option<u64> {
        let (process, version) = id.split_once('-')?;
        (u64::from_str_radix(process, 16) == Ok(self.process)).then(|| version.parse().ok())?
    }

    /// Returns the current board for a request. One request computes it, and the others wait for that.
    pub(crate) async fn current<H: Hub>(&self, hub: &H) -> Arc<Board> {
        self.after_pause(hub, Duration::ZERO).await
    }

    /// Returns the current board for a stream, which can wait for it: there are many streams.
    pub(crate) async fn for_stream<H: Hub>(&self, hub: &H) -> Arc<Board> {
        self.after_pause(hub, PACE).await
    }

    /// Returns the current board. It is not older than the call: an older one would hide a change until the next one.
    async fn after_pause<H: Hub>(&self, hub: &H, pause: Duration) -> Arc<Board> {
        let mut kept = loop {
            let kept = self.kept.clone().lock_owned().await;
            let Some(at) = kept.at else { break kept };
            if kept.board.version == hub.version() {
                return kept.board.clone();
            }
            // Requests have boards computed for half of the time at most.
            let next = at + pause.max(kept.took).min(PACE);
            if next <= Instant::now() {
                break kept;
            }
            drop(kept);
            sleep_until(next).await;
        };
        let begun = Instant::now();
        let version = hub.version();
        let Some(snapshot) = hub.snapshot().await else { return kept.board.clone() };
        let before = kept.board.clone();
        // Thousands of rows take a while when they are shown for the first time. The lock goes along, so that the board is
        // kept also if the caller does not wait for it.
        let computed = tokio::task::spawn_blocking(move || {
            kept.board = Arc::new(next(&kept.board, &snapshot, version));
            (kept.at, kept.took) = (Some(Instant::now()), begun.elapsed());
            kept.board.clone()
        });
        computed.await.unwrap_or(before)
    }
}

fn next(before: &Board, snapshot: &Snapshot, version: u64) -> Board {
    let pipelines = snapshot.pipelines.iter().map(|(key, stored)| {
        let promotions = snapshot.promotions.get(key).map_or(&[][..], Vec::as_slice);
        let known = before.pipelines.get(key).filter(|known| is_same(known, stored, promotions));
        let shown = match known {
            Some(known) => known.clone(),
            None => Arc::new(show(stored, promotions, version)),
        };
        (key.clone(), shown)
    });
    let pipelines: BTreeMap<_, _> = pipelines.collect();
    let is_complete = snapshot.is_complete;
    let is_same = before.is_complete == is_complete
        && before.pipelines.len() == pipelines.len()
        && before
            .pipelines
            .iter()
            .zip(&pipelines)
            .all(|(old, new)| old.0 == new.0 && Arc::ptr_eq(old.1, new.1));
    Board { version, changed: if is_same { before.changed } else { version }, is_complete, pipelines }
}

fn is_same(known: &ShownPipeline, stored: &StoredPipeline, promotions: &[Arc<Promotion>]) -> bool {
    let same = |(a, b): (&Arc<Promotion>, &Arc<Promotion>)| Arc::ptr_eq(a, b) || a == b;
    known.stored.is_same(stored)
        && known.promotions.len() == promotions.len()
        && known.promotions.iter().zip(promotions).all(same)
}

fn show(stored: &StoredPipeline, promotions: &[Arc<Promotion>], since: u64) -> ShownPipeline {
    let pipeline = stored.whole();
    let screen = status(&pipeline, promotions, Timestamp::now());
    let row = row(&pipeline, &screen).into_string().into();
    let searched = SearchedFacts::of(&pipeline, &screen);
    ShownPipeline { stored: stored.clone(), promotions: promotions.to_vec(), screen, row, searched, since }
}
