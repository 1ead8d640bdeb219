//! What is known about the admission policy that decides who may approve.

use super::State;
use super::effect::Count;
use crate::key::PipelineKey;
use crate::translate;

impl State {
    /// Notes whether the API server checks who approves. Promotions that wait for an approval show it.
    pub(super) fn approvals_checked(&mut self, gap: Option<String>) {
        self.count(Count::ApprovalsChecked(gap.is_none()));
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
            .filter(|(_, records)| records.values().any(|record| translate::phase(record.phase()).is_open()));
        let keys: Vec<PipelineKey> = open.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.enqueue(key));
    }
}
