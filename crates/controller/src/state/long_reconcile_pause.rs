//! The rest of a pipeline whose reconciliation takes long. Its owner chooses how large it is, and all pipelines share one
//! loop.

use std::time::{Duration, Instant};

use super::State;
use crate::pipeline_key::PipelineKey;

/// A pipeline rests for this multiple of the time of its reconciliation, so that it occupies a fifth of the loop at most.
const REST_FACTOR: u32 = 4;
/// The longest rest.
const MAX_REST: Duration = Duration::from_secs(60);

impl State {
    /// Until when a pipeline rests; `None` if it does not.
    pub(super) fn rests_until(&self, key: &PipelineKey) -> Option<Instant> {
        self.pipelines.get(key)?.rests_until.filter(|until| *until > self.now.instant)
    }

    /// Lets the pipeline rest whose reconciliation has taken so long.
    pub(super) fn rest(&mut self, time: Duration) {
        let Some(key) = self.last_reconciled.take() else { return };
        let until = self.now.instant + (time * REST_FACTOR).min(MAX_REST);
        let Some(entry) = self.pipelines.get_mut(&key) else { return };
        entry.rests_until = Some(until);
        // What has changed meanwhile waits too.
        if entry.enqueued.take().is_some() {
            self.queue.remove(&key);
            self.timers.set(&key, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::fixtures::{at, key, pipeline, state_at};
    use super::super::{Input, Now};
    use super::*;
    use crate::watch::stream::ObjectEvent;

    /// Reconciles all queued pipelines at this second, and returns their names.
    fn reconciled(state: &mut State, now: Now) -> Vec<String> {
        state.step(Input::Tick, now);
        let mut names = Vec::new();
        while state.queued() > 0 {
            state.step(Input::Reconcile, now);
            names.extend(state.last_reconciled.take().map(|key| key.name));
        }
        names
    }

    #[test]
    fn a_pipeline_whose_reconciliation_takes_long_rests_and_others_do_not() {
        let start = Instant::now();
        let now = |seconds| at(start, seconds);
        let mut state = state_at(now(0));
        let mut other = pipeline();
        other.metadata.name = Some("other".into());
        let other_key = PipelineKey { name: "other".into(), ..key() };
        state.step(Input::Pipelines(ObjectEvent::Listed(vec![pipeline(), other], 4)), now(0));
        state.step(Input::Promotions(ObjectEvent::Listed(Vec::new(), 4)), now(0));
        assert_eq!(reconciled(&mut state, now(0)).len(), 2);
        state.step(Input::Called(key()), now(1));
        state.step(Input::Reconcile, now(1));
        // It changes again before it rests.
        state.step(Input::Called(key()), now(1));
        state.step(Input::ReconcileTook(Duration::from_secs(2)), now(1));
        for second in 2..=8 {
            state.step(Input::Called(key()), now(second));
            state.step(Input::Called(other_key.clone()), now(second));
            assert_eq!(reconciled(&mut state, now(second)), ["other"], "after {second} s");
        }
        assert_eq!(reconciled(&mut state, now(9)), ["podinfo"]);
    }
}
