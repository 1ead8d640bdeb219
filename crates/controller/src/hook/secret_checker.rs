//! Reads the Secrets with hook keys of all pipelines periodically, and reports what is wrong with them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::pipeline::Pipeline;
use tokio::sync::mpsc;

use super::condition::{HookSecretProblem, SecretKeys, find_problem};
use super::directory::Directory;
use super::hmac_keys::{HookKeyCache, NoKeys};
use super::secret_names::hook_secrets;
use crate::key::PipelineKey;
use crate::state::Input;

/// How often the checker looks for pipelines whose check is due.
const TICK: Duration = Duration::from_secs(2);
/// The pause after the start of the controller, which has more urgent requests to send then.
const START_DELAY: Duration = Duration::from_secs(5);
/// How often the Secrets of a pipeline are read.
const INTERVAL: Duration = Duration::from_secs(600);
/// How often the Secrets of a pipeline are read while it has a problem.
const INTERVAL_WHILE_WRONG: Duration = Duration::from_secs(30);
/// How many pipelines are checked between two ticks.
const MAX_CHECKS_PER_TICK: usize = 100;

/// Checks the Secrets of all pipelines.
pub struct SecretChecker {
    pub directory: Arc<Directory>,
    pub keys: Arc<HookKeyCache>,
    /// The inputs of the controller's loop.
    pub tx: mpsc::UnboundedSender<Input>,
    /// Whether receivers of the strategy `webhook` can call back.
    pub callbacks: bool,
}

/// The last check of a pipeline's Secrets.
struct CheckedSecrets {
    pipeline: Arc<Pipeline>,
    problem: Option<HookSecretProblem>,
    /// When the next check is due.
    next: Instant,
}

impl SecretChecker {
    /// Checks until the controller's loop has ended.
    pub async fn run(self) {
        let mut checked: HashMap<PipelineKey, CheckedSecrets> = HashMap::new();
        tokio::time::sleep(START_DELAY).await;
        loop {
            let all = self.directory.with_secrets();
            checked.retain(|key, _| all.contains_key(key));
            let now = Instant::now();
            let is_due = |key: &PipelineKey, pipeline: &Arc<Pipeline>| {
                checked.get(key).is_none_or(|c| now >= c.next || !Arc::ptr_eq(&c.pipeline, pipeline))
            };
            let due: Vec<_> =
                all.into_iter().filter(|(key, p)| is_due(key, p)).take(MAX_CHECKS_PER_TICK).collect();
            for (key, pipeline) in due {
                let Some(problem) = self.check(&key, &pipeline).await else { break };
                let next = Instant::now() + if problem.is_some() { INTERVAL_WHILE_WRONG } else { INTERVAL };
                let before = checked.get(&key).filter(|c| Arc::ptr_eq(&c.pipeline, &pipeline));
                if before.is_none_or(|before| before.problem != problem) {
                    if let Some(HookSecretProblem { reason, message }) = &problem {
                        tracing::warn!(pipeline = %key, reason = reason.name(), "{message}");
                    }
                    if self.tx.send(Input::HookSecret(key.clone(), problem.clone())).is_err() {
                        return;
                    }
                }
                checked.insert(key, CheckedSecrets { pipeline, problem, next });
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Returns the problem of a pipeline's Secrets, if there is one; `None` if the Secrets cannot be read now.
    async fn check(&self, key: &PipelineKey, pipeline: &Pipeline) -> Option<Option<HookSecretProblem>> {
        let mut secrets = SecretKeys::new();
        for name in hook_secrets(pipeline) {
            let keys = self.keys.inspect(&key.namespace, name, true).await;
            if keys == Err(NoKeys::Unread) {
                return None;
            }
            secrets.insert(name.into(), keys);
        }
        Some(find_problem(pipeline, &secrets, self.callbacks))
    }
}
