//! Reads the Secrets with hook keys of all pipelines from time to time, and reports what is wrong with them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::pipeline::Pipeline;
use tokio::sync::mpsc;

use super::condition::{Findings, HookSecretProblem, problem};
use super::directory::Directory;
use super::hmac_keys::{Keys, NoKeys};
use super::secret_names::hook_secrets;
use crate::key::PipelineKey;
use crate::state::Input;

/// How often due pipelines are looked for.
const TICK: Duration = Duration::from_secs(2);
/// The pause after the start: until then the controller reads what is more urgent.
const FIRST: Duration = Duration::from_secs(5);
/// How often the Secrets of a pipeline are read.
const EVERY: Duration = Duration::from_secs(600);
/// How often they are read while something is wrong.
const WHILE_WRONG: Duration = Duration::from_secs(30);
/// How many pipelines are checked in a row.
const AT_A_TIME: usize = 100;

/// Checks the Secrets of all pipelines.
pub struct Checker {
    /// The pipelines.
    pub directory: Arc<Directory>,
    /// Reads the Secrets.
    pub keys: Arc<Keys>,
    /// The inputs of the loop.
    pub tx: mpsc::UnboundedSender<Input>,
    /// Whether receivers of webhooks can call back.
    pub callbacks: bool,
}

struct Checked {
    pipeline: Arc<Pipeline>,
    problem: Option<HookSecretProblem>,
    again: Instant,
}

impl Checker {
    /// Checks until the loop has ended.
    pub async fn run(self) {
        let mut checked: HashMap<PipelineKey, Checked> = HashMap::new();
        tokio::time::sleep(FIRST).await;
        loop {
            let all = self.directory.with_secrets();
            checked.retain(|key, _| all.contains_key(key));
            let now = Instant::now();
            let is_due = |key: &PipelineKey, pipeline: &Arc<Pipeline>| {
                checked.get(key).is_none_or(|c| now >= c.again || !Arc::ptr_eq(&c.pipeline, pipeline))
            };
            let due: Vec<_> = all.into_iter().filter(|(key, p)| is_due(key, p)).take(AT_A_TIME).collect();
            for (key, pipeline) in due {
                let Some(problem) = self.check(&key, &pipeline).await else { break };
                let again = Instant::now() + if problem.is_some() { WHILE_WRONG } else { EVERY };
                let before = checked.get(&key).filter(|c| Arc::ptr_eq(&c.pipeline, &pipeline));
                if before.is_none_or(|before| before.problem != problem) {
                    if let Some(HookSecretProblem { reason, message }) = &problem {
                        tracing::warn!(pipeline = %key, reason, "{message}");
                    }
                    if self.tx.send(Input::HookSecret(key.clone(), problem.clone())).is_err() {
                        return;
                    }
                }
                checked.insert(key, Checked { pipeline, problem, again });
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// What is wrong with the Secrets of a pipeline; `None` if they cannot be read now.
    async fn check(&self, key: &PipelineKey, pipeline: &Pipeline) -> Option<Option<HookSecretProblem>> {
        let mut found = Findings::new();
        for name in hook_secrets(pipeline) {
            let keys = self.keys.inspect(&key.namespace, name, true).await;
            if keys == Err(NoKeys::Unread) {
                return None;
            }
            found.insert(name.into(), keys);
        }
        Some(problem(pipeline, &found, self.callbacks))
    }
}
