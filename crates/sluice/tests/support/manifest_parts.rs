//! The YAML in the docs that is no whole object: parts of the manifests of `deploy/`, markers, and files of other programs.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sluice_testkit::{Shared, parse_yaml};

const NAMESPACE: &str = "sluice-system";

/// What stands above a part of the container of Sluice.
const ABOVE_CONTAINER: &str =
    "spec:\n  template:\n    spec:\n      containers:\n      - name: sluice\n        image: sluice\n";

/// Makes sure that a block without a language works, if it is YAML. The manifests of `deploy/` must be applied. Returns
/// false if it is something else.
pub async fn check(shared: &Shared, block: &str) -> Result<bool> {
    if block.trim_start().starts_with("args:") {
        let part = parse_yaml(&format!("{ABOVE_CONTAINER}{block}"))?.pop().context("no part")?;
        patch_deployment(shared, &part).await?;
        return Ok(true);
    }
    if markers(block).next().is_some() {
        has_valid_markers(block)?;
        return Ok(true);
    }
    let Some(part) = parse_yaml(block).ok().and_then(|mut documents| documents.pop()) else {
        return Ok(false);
    };
    match &part {
        Value::Object(fields) => match fields.get("kind").and_then(Value::as_str) {
            Some("CustomResourceStateMetrics") => names_fields_of_the_crds(&part)?,
            Some("AuthenticationConfiguration") => rejects_names_of_kubernetes(&part)?,
            Some(other) => bail!("a whole object of kind {other}: give the block the language yaml"),
            None if fields.contains_key("patches") => apply_json_patches(shared, &part).await?,
            None => bail!("say in manifest_parts.rs what this is a part of"),
        },
        Value::Array(containers) if containers.iter().all(|one| one["image"].is_string()) => {
            patch_deployment(shared, &json!({"spec": {"template": {"spec": {"containers": containers}}}}))
                .await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The parameters of a write that the API server checks strictly and does not store.
fn checked() -> PatchParams {
    PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    }
}

/// Merges a part into the Deployment of Sluice.
async fn patch_deployment(shared: &Shared, part: &Value) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(shared.hub.client().await?, NAMESPACE);
    let before = deployments.get("sluice").await?;
    let after = deployments.patch("sluice", &checked(), &Patch::Strategic(part)).await?;
    ensure!(before.spec != after.spec, "the part changes nothing: {part}");
    Ok(())
}

/// Carries out the patches of a kustomization on the objects of `deploy/`.
async fn apply_json_patches(shared: &Shared, kustomization: &Value) -> Result<()> {
    let client = shared.hub.client().await?;
    for patch in kustomization["patches"].as_array().context("no patches")? {
        let [kind, name] = ["kind", "name"].map(|field| patch["target"][field].as_str().unwrap_or_default());
        let (group, version) = if kind == "Deployment" { ("apps", "v1") } else { ("", "v1") };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
        let mut object = serde_json::to_value(api.get(name).await?)?;
        let operations =
            parse_yaml(patch["patch"].as_str().context("no patch")?)?.pop().context("no list")?;
        for operation in operations.as_array().context("no list")? {
            carry_out(operation, &mut object)?;
        }
        api.patch(name, &checked(), &Patch::Merge(&object))
            .await
            .with_context(|| format!("{kind} {name}"))?;
    }
    Ok(())
}

/// Carries out an operation of a JSON patch (RFC 6902): `replace`, or `add` at the end of a list.
fn carry_out(operation: &Value, object: &mut Value) -> Result<()> {
    let path = operation["path"].as_str().context("no path")?;
    let no_such = || format!("there is no {path}");
    match (operation["op"].as_str(), path.strip_suffix("/-")) {
        (Some("add"), Some(list)) => {
            let list = object.pointer_mut(list).and_then(Value::as_array_mut).with_context(no_such)?;
            list.push(operation["value"].clone());
        }
        (Some("replace"), None) => {
            *object.pointer_mut(path).with_context(no_such)? = operation["value"].clone();
        }
        _ => bail!("{operation} is not supported here"),
    }
    Ok(())
}

/// Makes sure that the fields exist from which kube-state-metrics makes metrics.
fn names_fields_of_the_crds(configuration: &Value) -> Result<()> {
    let crds = sluice_api::all_crds().into_iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    for resource in configuration["spec"]["resources"].as_array().context("no resources")? {
        let kind = &resource["groupVersionKind"]["kind"];
        let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == *kind).context("no such CRD")?;
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let labels = resource["labelsFromPath"].as_object().into_iter().flat_map(|labels| labels.values());
        let metrics = resource["metrics"].as_array().into_iter().flatten();
        let of_metrics =
            metrics.flat_map(|metric| ["stateSet", "gauge"].map(|kind| &metric["each"][kind]["path"]));
        for path in labels.chain(of_metrics.filter(|path| path.is_array())) {
            let mut fields = path.as_array().into_iter().flatten().filter_map(Value::as_str).peekable();
            if fields.next_if_eq(&"metadata").is_some() {
                continue;
            }
            let mut at = schema;
            for field in fields {
                at = &at["properties"][field];
                ensure!(at.is_object(), "{kind} has no {path}");
            }
        }
    }
    Ok(())
}

/// Makes sure that nobody can sign in with a name of Kubernetes. `sign_in.rs` starts an API server with this rule.
fn rejects_names_of_kubernetes(configuration: &Value) -> Result<()> {
    for issuer in configuration["jwt"].as_array().context("no issuers")? {
        let rule = &issuer["userValidationRules"][0]["expression"];
        ensure!(rule == "!user.username.startsWith('system:')", "{rule}");
        let prefix = issuer["claimMappings"]["groups"]["prefix"].as_str().unwrap_or_default();
        ensure!(!prefix.is_empty(), "groups have no prefix");
    }
    Ok(())
}

/// Returns the markers at the ends of lines, without their first character.
fn markers(block: &str) -> impl Iterator<Item = &str> {
    let lines = block.lines().filter(|line| line.ends_with('}') && line.contains("$promotion"));
    lines.filter_map(|line| Some(line.split_once("# {")?.1))
}

/// Makes sure that each marker is one that Sluice reads, at or above a value.
fn has_valid_markers(block: &str) -> Result<()> {
    for marker in markers(block) {
        let marker: Value =
            serde_json::from_str(&format!("{{{marker}")).with_context(|| marker.to_owned())?;
        let place = marker["$promotion"].as_str().unwrap_or_default();
        ensure!(place.split(':').count() == 3, "{marker}");
    }
    Ok(())
}
