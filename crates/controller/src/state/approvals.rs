//! What is known about the admission policy that decides who may approve.

use std::collections::BTreeMap;

use crate::engine::{Engine, Record};
use crate::intake::PipelineKey;
use crate::translate;

impl Engine {
    /// Takes in whether the API server checks who approves. Promotions that wait for an approval say so.
    pub(crate) fn approvals_checked(&mut self, gap: Option<String>) {
        self.metrics.approvals_checked.set(i64::from(gap.is_none()));
        if self.approvals_unguarded == gap {
            return;
        }
        match &gap {
            Some(why) => tracing::warn!(
                "the API server does not check who approves: whoever may patch Promotions can approve them, in any \
                 name: {why}"
            ),
            None => tracing::info!("the API server checks who approves"),
        }
        self.approvals_unguarded = gap;
        let waiting = |records: &BTreeMap<String, Record>| {
            let phase = |r: &Record| r.object.status.as_ref().map(|s| s.phase).unwrap_or_default();
            records.values().any(|record| translate::phase(phase(record)).is_open())
        };
        let keys: Vec<PipelineKey> = self
            .promotions
            .iter()
            .filter(|(_, records)| waiting(records))
            .map(|(key, _)| key.clone())
            .collect();
        keys.iter().for_each(|key| self.touch(key));
    }
}

#[cfg(test)]
mod tests {
    use sluice_testkit::Scratch;

    use crate::engine::tests::engine;

    #[tokio::test]
    async fn a_metric_says_whether_the_api_server_checks_who_approves() {
        let scratch = Scratch::new("unguarded").unwrap();
        let mut engine = engine(&scratch);
        for (gap, expected) in [(None, 1), (Some("not installed".to_string()), 0), (None, 1)] {
            engine.approvals_checked(gap);
            let text = engine.metrics.render();
            assert!(text.contains(&format!("\nsluice_approvals_checked {expected}\n")), "{text}");
        }
    }
}
