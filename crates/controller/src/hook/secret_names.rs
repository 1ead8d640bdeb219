//! The names of a pipeline's Secrets with hook keys.

use sluice_api::pipeline::Pipeline;

use super::hmac_keys::secrets_of;

/// Returns the names of all Secrets with hook keys of a pipeline, each once.
pub fn hook_secrets(pipeline: &Pipeline) -> Vec<&str> {
    let spec = &pipeline.spec;
    secrets_of(spec.environments.iter().filter_map(|environment| spec.policy(environment)))
}

/// Returns the name of one Secret with hook keys of a pipeline; `None` if it names none.
pub fn any_hook_secret(pipeline: &Pipeline) -> Option<&str> {
    let spec = &pipeline.spec;
    spec.environments.iter().find_map(|environment| spec.policy(environment)?.secret())
}

/// Returns the Secret with the key that signs calls of `/trigger`, which is the Secret of the first environment.
pub fn trigger_secret(pipeline: &Pipeline) -> Option<&str> {
    pipeline.spec.policy(pipeline.spec.environments.first()?)?.secret()
}
