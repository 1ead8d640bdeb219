//! Approvals that the API server does not check, because the admission policy is missing.

use super::State;
use super::effect::MetricUpdate;
use crate::pipeline_key::PipelineKey;

impl State {
    /// Notes why the API server does not check who approves, or `None` if it does. Promotions that wait for an
    /// approval show it.
    pub(super) fn approval_policy_checked(&mut self, gap: Option<String>) {
        self.count(MetricUpdate::ApprovalsChecked(gap.is_none()));
        if self.approvals_unguarded == gap {
            return;
        }
        match &gap {
            Some(why) => tracing::warn!(
                "the API server does not check who approves: everybody who may patch Promotions can approve them, in \
                 any name: {why}"
            ),
            None => tracing::info!("the API server checks who approves"),
        }
        self.approvals_unguarded = gap;
        let open = self
            .promotions
            .iter()
            .filter(|(_, records)| records.values().any(|record| record.phase().is_open()));
        let keys: Vec<PipelineKey> = open.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.enqueue(key));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::effect::Effect;
    use super::super::fixtures::{insert, key, pipeline, record, state};
    use super::*;

    #[test]
    fn a_missing_policy_is_counted_and_shown_by_promotions_that_wait() {
        let mut state = state();
        state.put_pipeline(pipeline());
        let waits = json!({"metadata": {"name": "p", "namespace": "apps"}, "status": {"phase": "Pending"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "1", "facets": {}}});
        insert(&mut state, record(serde_json::from_value(waits).unwrap()));
        let missing = Some("not installed".to_string());
        for (gap, checked, is_change) in
            [(None, true, false), (missing.clone(), false, true), (missing, false, false), (None, true, true)]
        {
            state.queue.remove(&key());
            state.effects.clear();
            state.approval_policy_checked(gap);
            assert!(
                matches!(&state.effects[..], [Effect::UpdateMetrics(MetricUpdate::ApprovalsChecked(c))] if *c == checked)
            );
            assert_eq!(state.queue.len() == 1, is_change);
        }
    }
}
