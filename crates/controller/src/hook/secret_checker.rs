//! Reads the Secrets with hook keys of all pipelines periodically, and reports what is wrong with them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::pipeline::Pipeline;
use tokio::sync::mpsc;

use super::directory::Directory;
use super::hmac_keys::{HookKeyCache, NoKeys, SecretId};
use super::secret_condition::{HookSecretProblem, SecretKeys, find_problem};
use super::secret_names::hook_secrets;
use crate::pipeline_key::PipelineKey;
use crate::state::Input;

/// How often the checker looks for pipelines whose check is due.
const TICK: Duration = Duration::from_secs(2);
/// The pause after the start of the controller, which has more urgent requests to send then.
const START_DELAY: Duration = Duration::from_secs(5);
/// The shortest time between two checks of a pipeline, and the usual one while it has a problem.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time between two checks of a pipeline.
const MAX_INTERVAL: Duration = Duration::from_secs(600);
/// The mean time between the checks of two pipelines, which limits the requests to the API server.
const PAUSE_PER_PIPELINE: Duration = Duration::from_millis(300);
/// How many pipelines are checked between two ticks.
const MAX_CHECKS_PER_TICK: usize = 100;

/// Returns the time between two checks of a pipeline without a problem, if there are this many pipelines.
fn interval(pipelines: usize) -> Duration {
    let pipelines = u32::try_from(pipelines).unwrap_or(u32::MAX);
    PAUSE_PER_PIPELINE.saturating_mul(pipelines).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Makes the checks due of pipelines without a problem so far that name one of these Secrets, by namespace and name.
fn make_due(checked: &mut HashMap<PipelineKey, CheckedSecrets>, wrong: &HashSet<SecretId>, now: Instant) {
    if wrong.is_empty() {
        return;
    }
    for (key, last) in checked.iter_mut().filter(|(_, last)| last.problem.is_none()) {
        let is_wrong = |name: &str| wrong.contains(&(key.namespace.clone(), name.to_string()));
        if hook_secrets(&last.pipeline).into_iter().any(is_wrong) {
            last.next = now;
        }
    }
}

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
            let (now, interval) = (Instant::now(), interval(all.len()));
            make_due(&mut checked, &self.keys.take_wrong(), now);
            let is_due = |key: &PipelineKey, pipeline: &Arc<Pipeline>| {
                checked.get(key).is_none_or(|c| now >= c.next || !Arc::ptr_eq(&c.pipeline, pipeline))
            };
            let due: Vec<_> =
                all.into_iter().filter(|(key, p)| is_due(key, p)).take(MAX_CHECKS_PER_TICK).collect();
            for (key, pipeline) in due {
                let Some(problem) = self.check(&key, &pipeline).await else { break };
                let next = Instant::now() + if problem.is_some() { MIN_INTERVAL } else { interval };
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
