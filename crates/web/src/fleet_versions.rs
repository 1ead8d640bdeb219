//! The charts and the images of all clusters.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::observed_cluster::{ClusterState, KindState, ObservedCluster};
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};
use sluice_view::fleet::cluster_name;
use sluice_view::fleet::versions::{RunningVersion, UnreadCluster, Versions, chart, images, mark_outliers};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

use crate::equal_shares::keep_equal_shares;
use crate::problem::Problem;
use crate::versions_query::{VersionsQuery, matches};
use crate::visible_fleet::Visible;

/// Why nothing is shown of a cluster that the controller has just connected to.
const NOT_READ_YET: &str = "Sluice has not read it yet: wait a moment";
/// How old rows may be that answer a request. Thousands of rows are not computed again for each request.
pub(crate) const MAX_AGE: Duration = Duration::from_millis(500);
/// How many sets of rows are kept, one for each view and each set of objects that callers may see.
const MAX_KEPT: usize = 4;
/// How many objects of a cluster are read at a time. The next event of the cluster waits meanwhile.
const SLICE: usize = 500;
/// The most rows of one cluster, which its namespaces share. A hostile tenant may have workloads with many images.
const MAX_CLUSTER_ROWS: usize = 20_000;
/// The most rows of all clusters, which share them, so that they take at most about 100 MB.
const MAX_ROWS: usize = 200_000;

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
}

/// All rows that a caller may see.
#[derive(Debug, Default)]
pub(crate) struct AllRows {
    pub items: Vec<RunningVersion>,
    pub unread: Vec<UnreadCluster>,
}

/// The rows that were computed last.
#[derive(Clone, Default)]
pub(crate) struct VersionRows(Arc<Mutex<KeptRows>>);

type KeptRows = HashMap<(VersionKind, Visible), (Instant, Arc<AllRows>)>;

impl VersionRows {
    /// Returns the rows that a query asks for. Rows are computed by one request at a time, and the others wait for them.
    pub(crate) async fn page(
        &self,
        fleet: &Fleet,
        kind: VersionKind,
        visible: Visible,
        query: VersionsQuery,
    ) -> Result<Versions, Problem> {
        let after = query.after()?;
        self.compute(fleet, kind, visible, move |all| page(all, after.as_ref(), &query)).await
    }

    /// Returns what `shown` makes of all rows.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        fleet: &Fleet,
        kind: VersionKind,
        visible: Visible,
        shown: impl FnOnce(&AllRows) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let kept = self.0.clone().lock_owned().await;
        let fleet = fleet.clone();
        // It takes a while for thousands of rows, in which the runtime has other work. The lock goes along: it is held until
        // the work is done, also if the caller does not wait for the answer.
        let computed = tokio::task::spawn_blocking(move || shown(&all(kept, &fleet, kind, visible)));
        computed.await.map_err(|_| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the rows could not be computed: report this as a bug",
            )
        })
    }
}

fn page(all: &AllRows, after: Option<&[String; 5]>, query: &VersionsQuery) -> Versions {
    let after: Option<[&str; 5]> = after.map(|parts| parts.each_ref().map(String::as_str));
    let is_next =
        |row: &&RunningVersion| after.is_none_or(|after| row.order() > after) && matches(row, query);
    let mut rows = all.items.iter().filter(is_next);
    let items: Vec<RunningVersion> = rows.by_ref().take(query.limit.rows()).cloned().collect();
    let continue_ = match (rows.next(), items.last()) {
        (Some(_), Some(last)) => serde_json::json!(last.order()).to_string(),
        _ => String::new(),
    };
    Versions { items, unread: all.unread.clone(), continue_ }
}

fn all(
    mut kept: OwnedMutexGuard<KeptRows>,
    fleet: &Fleet,
    kind: VersionKind,
    visible: Visible,
) -> Arc<AllRows> {
    let key = (kind, visible);
    if let Some((_, rows)) = kept.get(&key).filter(|(at, _)| at.elapsed() < MAX_AGE) {
        return rows.clone();
    }
    kept.remove(&key);
    while kept.len() >= MAX_KEPT {
        let oldest = kept.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| kept.remove(&oldest));
    }
    let rows = Arc::new(compute(fleet, kind, &key.1));
    kept.insert(key, (Instant::now(), rows.clone()));
    rows
}

fn compute(fleet: &Fleet, kind: VersionKind, visible: &Visible) -> AllRows {
    let mut all = AllRows::default();
    let mut found = Vec::new();
    for key in fleet.clusters().iter().filter(|key| visible.shows_some_of(key)) {
        let unread = match fleet.read(key, |cluster| unread(cluster, kind)) {
            Some(Ok(unread)) => unread,
            Some(Err(why)) => {
                all.unread.push(UnreadCluster { cluster: cluster_name(key), why });
                continue;
            }
            None => continue,
        };
        all.unread.extend(unread.into_iter().map(|why| UnreadCluster { cluster: cluster_name(key), why }));
        found.push((cluster_name(key), add_rows(fleet, key, kind, visible, &mut all.items)));
        // Not after each cluster, since that looks at all rows.
        if all.items.len() > MAX_ROWS + MAX_ROWS / 4 {
            keep_equal_shares(&mut all.items, 0, MAX_ROWS, |row| &row.cluster);
        }
    }
    keep_equal_shares(&mut all.items, 0, MAX_ROWS, |row| &row.cluster);
    all.unread.extend(cut_clusters(found, &all.items));
    // Marked after what the caller may not see is gone, so that a mark says nothing about that.
    mark_outliers(&mut all.items);
    all
}

/// Returns the clusters of which not all found rows are shown.
fn cut_clusters(found: Vec<(String, usize)>, rows: &[RunningVersion]) -> Vec<UnreadCluster> {
    let mut shown: HashMap<&str, usize> = HashMap::new();
    for row in rows {
        *shown.entry(&row.cluster).or_default() += 1;
    }
    let cut = found.into_iter().filter_map(|(cluster, found)| {
        let shown = shown.get(cluster.as_str()).copied().unwrap_or_default();
        let why = format!("it has too many rows: {found}, of which {shown} are shown");
        (shown < found).then_some(UnreadCluster { cluster, why })
    });
    cut.collect()
}

/// Adds the rows of a cluster, not more than [`MAX_CLUSTER_ROWS`]. Returns how many there are.
fn add_rows(
    fleet: &Fleet,
    key: &ClusterKey,
    kind: VersionKind,
    visible: &Visible,
    rows: &mut Vec<RunningVersion>,
) -> usize {
    let (first, mut found) = (rows.len(), 0);
    for of in kind.kinds() {
        let mut after: Option<ObjectKey> = None;
        loop {
            let before = rows.len();
            let slice = fleet.read(key, |cluster| {
                let mut last = None;
                for (object, fact) in cluster.objects_after(*of, after.as_ref()).take(SLICE) {
                    if visible.shows(key, *of, &object.namespace) {
                        match kind {
                            VersionKind::Charts => rows.extend(chart(key, cluster, (object, fact))),
                            VersionKind::Images => rows.extend(images(key, cluster, (object, fact))),
                        }
                    }
                    last = Some(object.clone());
                }
                last
            });
            found += rows.len() - before;
            if rows.len() > first + 2 * MAX_CLUSTER_ROWS {
                keep_equal_shares(rows, first, MAX_CLUSTER_ROWS, |row| &row.namespace);
            }
            match slice.flatten() {
                Some(last) => after = Some(last),
                None => break,
            }
        }
    }
    keep_equal_shares(rows, first, MAX_CLUSTER_ROWS, |row| &row.namespace);
    found
}

/// Returns which objects of a cluster are missing, and why.
///
/// # Errors
/// When none of them can be read.
fn unread(cluster: &ObservedCluster, kind: VersionKind) -> Result<Vec<String>, String> {
    readable(cluster)?;
    let missing = kind.kinds().iter().filter_map(|of| match cluster.kind_state(*of, "") {
        Some(KindState::Unreadable(why)) => Some(why.clone()),
        _ if cluster.is_by_namespace(*of) => {
            Some(format!("of {}, only those in the namespaces of targets are read", of.resource().1))
        }
        _ => None,
    });
    Ok(missing.collect())
}

/// Returns whether the objects of a cluster are known.
///
/// # Errors
/// Why not.
pub(crate) fn readable(cluster: &ObservedCluster) -> Result<(), String> {
    match cluster.state() {
        ClusterState::Up => Ok(()),
        ClusterState::Connecting => Err(NOT_READ_YET.into()),
        ClusterState::Lost(why) => Err(why.clone()),
    }
}
