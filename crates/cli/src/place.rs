//! What `--environment` names: an environment of a pipeline, or one of its targets as `ENVIRONMENT/TARGET`, in the form
//! that `sluice get targets -o name` prints.

use kube::ResourceExt;
use sluice_api::Pipeline;

use crate::exit::{Exit, Failure, Outcome};
use crate::suggest::{instead, no_environment};

/// An environment, or one of its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub environment: String,
    pub target: Option<String>,
}

impl Place {
    /// Finds the place that a text names in a pipeline.
    ///
    /// # Errors
    /// When the pipeline has no such environment or target.
    pub(crate) fn find(pipeline: &Pipeline, wanted: &str) -> Outcome<Place> {
        let environments = &pipeline.spec.environments;
        if environments.iter().any(|environment| environment.name == wanted) {
            return Ok(Place { environment: wanted.into(), target: None });
        }
        let (name, target) = wanted.split_once('/').unwrap_or((wanted, ""));
        let Some(environment) = environments.iter().find(|environment| environment.name == name) else {
            let names: Vec<String> = environments.iter().map(|e| e.name.clone()).collect();
            return Err(no_environment(&pipeline.name_any(), name, &names));
        };
        let names = environment.target_names();
        if !names.iter().any(|known| known == target) {
            let end = instead(target, &names, "targets", &format!("environment {name}"));
            let message = format!("environment {name} has no target {target}{end}");
            return Err(Failure::new(Exit::NotFound, message));
        }
        Ok(Place { environment: name.into(), target: Some(target.into()) })
    }

    /// Whether a target of an environment is meant.
    pub(crate) fn has(&self, environment: &str, target: &str) -> bool {
        self.environment == environment && self.target.as_ref().is_none_or(|wanted| wanted == target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_or_a_target_is_found_or_named_in_the_error() {
        let pipeline: Pipeline = serde_json::from_value(serde_json::json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
            "spec": {"environments": [
                {"name": "dev", "targets": [{"namespace": "dev"}]},
                {"name": "prod", "targets": [{"namespace": "a", "name": "us"}, {"namespace": "a", "name": "eu"}]},
            ]},
        }))
        .unwrap();
        let find = |wanted| Place::find(&pipeline, wanted).map_err(|failure| failure.message);
        let place = |environment: &str, target: Option<&str>| {
            Ok(Place { environment: environment.into(), target: target.map(Into::into) })
        };
        let refused = |message: &str| Err(message.to_string());
        for (wanted, expected) in [
            ("dev", place("dev", None)),
            ("dev/dev", place("dev", Some("dev"))),
            ("prod/eu", place("prod", Some("eu"))),
            ("prod/us-1", refused("environment prod has no target us-1; did you mean us?")),
            ("prod/", refused("environment prod has no target ; there are: us, eu")),
            ("pord", refused("pipeline podinfo has no environment pord; there are: dev, prod")),
            ("pord/eu", refused("pipeline podinfo has no environment pord; there are: dev, prod")),
        ] {
            assert_eq!(find(wanted), expected, "{wanted}");
        }
        let eu = find("prod/eu").unwrap();
        assert!(eu.has("prod", "eu") && !eu.has("prod", "us") && !eu.has("dev", "eu"));
    }
}
