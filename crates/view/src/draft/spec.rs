//! The metadata and spec that a draft makes, on top of those of the Pipeline that is edited.

use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, Target};
use sluice_core::fleet::ClusterKey;

use super::entered::{Draft, DraftEnvironment, DraftTarget};
use super::fields::{Fields, fields, set};
use super::promotion::{own_promotion, promotion};
use crate::metadata_by_people::written;

/// Returns the metadata: of the Pipeline that is edited, the labels and annotations that people wrote.
pub(super) fn metadata(draft: &Draft, edited: Option<&Pipeline>) -> Value {
    let mut metadata = json!({"name": draft.name, "namespace": draft.namespace});
    let Some(edited) = edited else { return metadata };
    let of_people = |texts: &Option<_>| texts.as_ref().map(written).unwrap_or_default();
    let (labels, annotations) = (of_people(&edited.metadata.labels), of_people(&edited.metadata.annotations));
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    metadata
}

/// Returns the spec.
pub(super) fn spec(draft: &Draft, edited: Option<&Pipeline>) -> Value {
    let mut spec = fields(edited.map(|edited| &edited.spec));
    set(&mut spec, "appRef", app(draft, edited));
    let before = fields(spec.get("promotion"));
    let now = promotion(&draft.delivery, before.clone());
    let known = edited.map_or(&[][..], |edited| &edited.spec.environments);
    let environments = draft.environments.iter().map(|environment| {
        let known = environment.was.and_then(|was| known.get(was));
        let mut fields = environment_fields(draft, environment, known);
        let own = own_promotion(environment.approval, fields.remove("promotion"), &before, now.as_ref());
        set(&mut fields, "promotion", own);
        Value::Object(fields)
    });
    spec.insert("environments".into(), environments.collect());
    set(&mut spec, "promotion", now.map(Value::Object));
    Value::Object(spec)
}

fn app(draft: &Draft, edited: Option<&Pipeline>) -> Option<Value> {
    if draft.app_kind.is_empty() {
        return None;
    }
    let known = edited.and_then(|edited| edited.spec.app_ref.as_ref());
    let version = match (known, draft.app_kind.as_str()) {
        (Some(known), kind) if known.kind == kind => &known.api_version,
        (_, "HelmRelease") => "helm.toolkit.fluxcd.io/v2",
        (_, "Kustomization") => "kustomize.toolkit.fluxcd.io/v1",
        _ => "",
    };
    Some(json!({"apiVersion": version, "kind": draft.app_kind, "name": draft.app_name}))
}

fn environment_fields(draft: &Draft, entered: &DraftEnvironment, known: Option<&Environment>) -> Fields {
    let mut environment = fields(known);
    environment.insert("name".into(), json!(entered.name));
    let after: Vec<&str> = entered
        .after
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|name| !name.is_empty())
        .collect();
    set(&mut environment, "after", (!after.is_empty()).then(|| json!(after)));
    let targets = entered.targets.iter().map(|target| {
        let known = target.was.and_then(|was| known?.targets.get(was));
        let mut fields = fields(known);
        set(&mut fields, "name", (!target.name.is_empty()).then(|| json!(target.name)));
        fields.insert("namespace".into(), json!(target.namespace));
        set(&mut fields, "clusterRef", cluster(&draft.namespace, target, known));
        Value::Object(fields)
    });
    environment.insert("targets".into(), targets.collect());
    environment
}

fn cluster(home: &str, target: &DraftTarget, known: Option<&Target>) -> Option<Value> {
    let ClusterKey::Remote { namespace, name } = target.cluster_key(home) else { return None };
    if let Some(known) = known.filter(|known| known.cluster_name(home) == target.cluster) {
        return Some(json!(known.cluster_ref));
    }
    Some(match namespace == home {
        true => json!({"kind": "GitopsCluster", "name": name}),
        false => json!({"kind": "GitopsCluster", "name": name, "namespace": namespace}),
    })
}
