//! The Secrets with hook keys that a pipeline names.

use sluice_api::pipeline::Pipeline;

use super::hmac_keys::secrets_of;

/// The Secrets with hook keys that a pipeline names.
pub fn hook_secrets(pipeline: &Pipeline) -> Vec<&str> {
    let spec = &pipeline.spec;
    secrets_of(spec.environments.iter().filter_map(|environment| spec.policy(environment)))
}

/// The Secret with the key that signs calls of `/trigger`: that of the first environment.
pub fn trigger_secret(pipeline: &Pipeline) -> Option<&str> {
    pipeline.spec.policy(pipeline.spec.environments.first()?)?.secret()
}
