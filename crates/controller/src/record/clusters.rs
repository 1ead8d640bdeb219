//! Events about clusters of a pipeline that are lost, or back again. The status tells which targets that concerns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_api::pipeline::{Observe, PipelineStatus};

use crate::engine::Engine;
use crate::intake::PipelineKey;
use crate::observe::facts::ClusterKey;
use crate::observe::index::Link;
use crate::translate;

/// The least time between two events about one cluster of a pipeline: one that comes and goes every second is
/// told of as it is then.
const PAUSE: Duration = Duration::from_secs(60);

/// A cluster as people were last told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    is_lost: bool,
    /// When an event said so.
    at: Option<Instant>,
}

/// What follows from how a cluster is now.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// People know.
    Nothing,
    /// They are to be told.
    Tell,
    /// They are to be told then.
    Later(Instant),
}

/// What follows. Of a cluster that this process has told nothing of yet, the status from before says whether
/// people know that it is lost.
fn next(told: Option<Told>, was_shown: bool, is_lost: bool, now: Instant) -> Next {
    match told {
        None if is_lost && !was_shown => Next::Tell,
        None => Next::Nothing,
        Some(told) if told.is_lost == is_lost => Next::Nothing,
        Some(Told { at: Some(at), .. }) if at + PAUSE > now => Next::Later(at + PAUSE),
        Some(_) => Next::Tell,
    }
}

impl Engine {
    /// Says which clusters of a pipeline were lost or are back since `before`, the status as it stands.
    pub(crate) fn tell_of_clusters(&mut self, key: &PipelineKey, before: &PipelineStatus) {
        let now = Instant::now();
        let Some(entry) = self.pipelines.get_mut(key) else { return };
        let mut clusters: BTreeMap<ClusterKey, bool> = BTreeMap::new();
        for (spec, model) in entry.object.spec.environments.iter().zip(&entry.model.environments) {
            let shown = before.environments.get(&spec.name);
            let watched =
                spec.targets.iter().zip(&model.targets).filter(|(t, _)| t.observe == Observe::Watch);
            for (target, name) in watched {
                let shown = shown.and_then(|e| e.targets.iter().find(|t| t.name == *name));
                let unreadable = shown.is_some_and(|t| !t.error.is_empty());
                *clusters.entry(translate::cluster_of(target, &key.namespace)).or_insert(true) &= unreadable;
            }
        }
        entry.clusters.retain(|cluster, _| clusters.contains_key(cluster));
        let mut wake = None;
        for (cluster, was_shown) in clusters {
            let why = match self.index.cluster(&cluster).map(|c| c.link()) {
                Some(Link::Lost(why)) => Some(why.as_str()),
                Some(Link::Up) => None,
                Some(Link::Connecting) | None => continue,
            };
            let (told, is_lost) = (entry.clusters.get(&cluster).copied(), why.is_some());
            let at = match next(told, was_shown, is_lost, now) {
                Next::Tell => {
                    self.events.cluster(&entry.object, &cluster.to_string(), why);
                    Some(now)
                }
                Next::Nothing => told.and_then(|told| told.at),
                Next::Later(at) => {
                    wake = Some(wake.map_or(at, |earlier: Instant| earlier.min(at)));
                    continue;
                }
            };
            entry.clusters.insert(cluster, Told { is_lost, at });
        }
        if let Some(at) = wake {
            self.wake_at(key, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_and_return_is_told_once_and_not_every_second() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let told = |is_lost, at| Some(Told { is_lost, at });
        for (before, was_shown, is_lost, expected) in [
            (None, false, false, Next::Nothing),
            (None, false, true, Next::Tell),
            // Another replica has told before this one took over.
            (None, true, true, Next::Nothing),
            (told(true, None), true, false, Next::Tell),
            (told(true, None), true, true, Next::Nothing),
            (told(false, Some(now)), false, true, Next::Later(at(60))),
            (told(false, Some(now)), false, false, Next::Nothing),
        ] {
            assert_eq!(next(before, was_shown, is_lost, at(1)), expected, "{before:?} {was_shown} {is_lost}");
        }
        assert_eq!(next(told(false, Some(now)), false, true, at(60)), Next::Tell);
    }
}
