//! The draft of a Pipeline: what a person entered in a form, the manifest that it makes, and what is wrong with each field.

mod entered;
mod fields;
mod of_pipeline;
mod promotion;
mod spec;

use serde_json::{Value, json};
use sluice_api::Pipeline;

use crate::ordered::Ordered;
use crate::pipeline_validation::{self, SchemaProblem};
use crate::yaml::yaml;
pub use entered::{Draft, DraftDelivery, DraftEnvironment, DraftTarget};

/// A draft as the manifest that it makes.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedDraft {
    /// The Pipeline, for a preview. It may break rules.
    pub pipeline: Option<Pipeline>,
    /// The manifest.
    pub yaml: String,
    /// The same manifest as an object.
    pub object: Value,
    /// Why an API server would refuse the manifest, each with the path of its field.
    pub problems: Vec<SchemaProblem>,
}

impl Draft {
    /// Returns the manifest of the draft, and what is wrong with it. `edited` is the Pipeline that is edited: its fields
    /// that no form shows are kept.
    pub fn check(&self, edited: Option<&Pipeline>) -> CheckedDraft {
        let object = json!({
            "apiVersion": format!("{}/v1alpha1", sluice_api::GROUP),
            "kind": "Pipeline",
            "metadata": spec::metadata(self, edited),
            "spec": spec::spec(self, edited),
        });
        let pipeline = serde_json::from_value(object.clone()).ok();
        let mut manifest = object;
        remove_empty(&mut manifest);
        let yaml = yaml(&Ordered(&manifest)).unwrap_or_default();
        let object = manifest.clone();
        let mut problems = pipeline_validation::problems(&mut manifest);
        if self.namespace.is_empty() {
            problems.push(SchemaProblem::missing("metadata.namespace"));
        }
        CheckedDraft { pipeline, yaml, object, problems: without_copies(problems) }
    }
}

/// Removes the fields that nothing was entered for, and a reference to a Secret without a name.
fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_empty);
            let is_empty = |name: &str, field: &Value| match field {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Object(fields) => name == "secretRef" && fields.is_empty(),
                _ => false,
            };
            fields.retain(|name, field| !is_empty(name, field));
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty),
        _ => {}
    }
}

/// Removes the problems of environments that are those of the pipeline: an environment with its own approval has a copy of
/// the pipeline's promotion.
fn without_copies(problems: Vec<SchemaProblem>) -> Vec<SchemaProblem> {
    let is_copy = |problem: &SchemaProblem| {
        let after = problem.path.strip_prefix("spec.environments[").and_then(|rest| rest.split_once("]."));
        after.is_some_and(|(_, path)| {
            let original = format!("spec.{path}");
            path.starts_with("promotion")
                && problems.iter().any(|p| p.path == original && p.message == problem.message)
        })
    };
    problems.iter().filter(|problem| !is_copy(problem)).cloned().collect()
}
