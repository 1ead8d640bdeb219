//! The columns ENVIRONMENTS and PROMOTING of `kubectl get pipelines` and `sluice get pipelines`.

use std::collections::BTreeMap;

use sluice_api::pipeline as api;
use sluice_core::pipeline::Pipeline;
use sluice_core::revision::shortened;

/// Returns the columns of a pipeline.
pub fn summary(pipeline: &Pipeline, environments: &BTreeMap<String, api::EnvironmentStatus>) -> api::Summary {
    let mut runs = Vec::new();
    let mut promoting = Vec::new();
    for environment in &pipeline.environments {
        let Some(status) = environments.get(&environment.name) else { continue };
        let revision = status.revision.as_deref().map(shortened);
        let mixed = if status.targets.iter().any(|t| t.revision.is_some()) { "mixed" } else { "?" };
        let has_failed = status.targets.iter().any(|target| target.health == api::Health::Failed);
        let mark = if has_failed { "✗" } else { "" };
        runs.push(format!("{}:{}{mark}", environment.name, revision.as_deref().unwrap_or(mixed)));
        if let Some(promotion) = &status.promotion {
            let revision = shortened(&promotion.revision);
            promoting.push(format!("{revision}→{} {}", environment.name, promotion.phase));
        }
    }
    api::Summary { environments: runs.join(" "), promoting: promoting.join(", ") }
}
