//! The charts and the images of all clusters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::observed_cluster::{ClusterState, ObservedCluster};
use sluice_core::fleet::{ClusterKey, Kind};
use sluice_view::fleet::cluster_name;
use sluice_view::fleet::versions::{RunningVersion, UnreadCluster, Versions, charts, images, mark_outliers};
use tokio::sync::Mutex;

use crate::problem::Problem;
use crate::query::VersionsQuery;
use crate::visible::Visible;

/// How old rows may be that answer a request. Thousands of rows are not computed again for each request.
const MAX_AGE: Duration = Duration::from_millis(500);
/// How many sets of rows are kept, one for each view and each set of objects that callers may see.
const MAX_KEPT: usize = 4;

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VersionKind {
    Charts,
    Images,
}

impl VersionKind {
    /// The observed kinds that the rows come from.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            VersionKind::Charts => &[Kind::HelmRelease],
            VersionKind::Images => &Kind::WITH_IMAGES,
        }
    }

    fn rows(self, key: &ClusterKey, cluster: &ObservedCluster) -> Vec<RunningVersion> {
        match self {
            VersionKind::Charts => charts(key, cluster),
            VersionKind::Images => images(key, cluster),
        }
    }
}

/// All rows that a caller may see.
#[derive(Debug, Default)]
struct AllRows {
    /// `None` if they could not be computed.
    computed: Option<Instant>,
    items: Vec<RunningVersion>,
    unread: Vec<UnreadCluster>,
}

/// The rows that were computed last.
#[derive(Clone, Default)]
pub(crate) struct VersionRows(Arc<Mutex<KeptRows>>);

type KeptRows = HashMap<(VersionKind, Visible), Arc<AllRows>>;

impl VersionRows {
    /// Returns the rows that a query asks for. Rows are computed by one request at a time, and the others wait for them.
    pub(crate) async fn page(
        &self,
        fleet: &Fleet,
        kind: VersionKind,
        visible: Visible,
        query: &VersionsQuery,
    ) -> Result<Versions, Problem> {
        let after = query.after()?;
        let all = self.all(fleet, kind, visible).await;
        let after: Option<[&str; 5]> = after.as_ref().map(|parts| parts.each_ref().map(String::as_str));
        let is_next =
            |row: &&RunningVersion| after.is_none_or(|after| row.order() > after) && matches(row, query);
        let mut rows = all.items.iter().filter(is_next);
        let items: Vec<RunningVersion> = rows.by_ref().take(query.limit()).cloned().collect();
        let continue_ = match (rows.next(), items.last()) {
            (Some(_), Some(last)) => serde_json::json!(last.order()).to_string(),
            _ => String::new(),
        };
        Ok(Versions { items, unread: all.unread.clone(), continue_ })
    }

    async fn all(&self, fleet: &Fleet, kind: VersionKind, visible: Visible) -> Arc<AllRows> {
        let mut kept = self.0.lock().await;
        let key = (kind, visible);
        if let Some(rows) =
            kept.get(&key).filter(|rows| rows.computed.is_some_and(|at| at.elapsed() < MAX_AGE))
        {
            return rows.clone();
        }
        // It takes a while for thousands of rows, in which the runtime has other work.
        let (of, visible) = (fleet.clone(), key.1.clone());
        let computed = tokio::task::spawn_blocking(move || compute(&of, kind, &visible)).await;
        let rows = Arc::new(computed.unwrap_or_else(|_| AllRows::default()));
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(key, rows.clone());
        rows
    }
}

fn compute(fleet: &Fleet, kind: VersionKind, visible: &Visible) -> AllRows {
    let computed = Some(Instant::now());
    let (mut items, mut unread) = (Vec::new(), Vec::new());
    for key in
        fleet.clusters().iter().filter(|key| visible.clusters.contains(key) || **key == ClusterKey::Local)
    {
        let read = fleet.read(key, |cluster| match cluster.state() {
            ClusterState::Up => Ok(kind.rows(key, cluster)),
            ClusterState::Connecting => Err("Sluice has not read it yet: wait a moment".to_string()),
            ClusterState::Lost(why) => Err(why.clone()),
        });
        match read {
            Some(Ok(rows)) => items.extend(rows.into_iter().filter(|row| {
                let of = kind.kinds().iter().find(|kind| row.object.split('/').next() == Some(kind.name()));
                of.is_some_and(|of| visible.shows(key, *of, &row.namespace))
            })),
            Some(Err(why)) => unread.push(UnreadCluster { cluster: cluster_name(key), why }),
            None => {}
        }
    }
    // Marked after what the caller may not see is gone, so that a mark says nothing about that.
    mark_outliers(&mut items);
    AllRows { computed, items, unread }
}

fn matches(row: &RunningVersion, query: &VersionsQuery) -> bool {
    let cluster = if row.cluster.is_empty() { "hub" } else { &row.cluster };
    row.name.contains(&query.name)
        && (query.cluster.is_empty() || query.cluster == cluster)
        && (query.namespace.is_empty() || query.namespace == row.namespace)
        && (query.version.is_empty() || query.version == row.version)
        && (!query.outliers || row.outlier)
}
