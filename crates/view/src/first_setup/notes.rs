//! What people must know about the files of a first set-up, a sentence each.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_core::fleet::Kind;

use super::application::Application;
use super::promoted::field_of;

/// Fields that name one object, with its kind if the field does not say it.
const REFERENCES: [(&str, &str); 6] = [
    ("/spec/chart/spec/sourceRef", ""),
    ("/spec/sourceRef", ""),
    ("/spec/decryption/secretRef", "Secret"),
    ("/spec/kubeConfig/secretRef", "Secret"),
    ("/spec/kubeConfig/configMapRef", "ConfigMap"),
    ("/spec/chart/spec/verify/secretRef", "Secret"),
];
/// Fields that list objects.
const LISTS: [&str; 3] = ["/spec/valuesFrom", "/spec/postBuild/substituteFrom", "/spec/dependsOn"];
/// How many objects are named.
const MAX_NAMED: usize = 20;

/// Returns what people must know, whatever the environments are.
pub(super) fn notes(application: &Application) -> Vec<String> {
    let mut notes: Vec<String> = application
        .promoted
        .iter()
        .filter_map(|value| {
            let before = value.before.as_deref()?;
            let before = if before.is_empty() { "empty" } else { before };
            Some(format!(
                "the value {} was {before}: the files have {}, which runs now, because a marker needs one version",
                field_of(&value.pointer),
                value.value
            ))
        })
        .collect();
    let needed = references(application);
    if !needed.is_empty() {
        let named: Vec<&str> = needed.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = if needed.len() > MAX_NAMED { " and more" } else { "" };
        notes.push(format!(
            "the files name {}{more}: these must exist where each file is applied, as must its namespace",
            named.join(", ")
        ));
    }
    if application.kind == Kind::Kustomization {
        notes.push(
            "the workloads must run each image that has a marker: remove the marker of any other image"
                .into(),
        );
    }
    let at = |pointer: &str| application.object.pointer(pointer);
    if at("/spec/suspend") == Some(&Value::Bool(true)) {
        notes.push(
            "the field spec.suspend is true in each file: Flux installs nothing until you remove it".into(),
        );
    }
    if at("/spec/kubeConfig").is_some() {
        notes.push(
            "the field spec.kubeConfig is in each file: Flux applies the application to the cluster that it names"
                .into(),
        );
    }
    for field in ["path", "targetNamespace"] {
        let text = at(&format!("/spec/{field}")).and_then(Value::as_str);
        if let Some(text) = text.filter(|text| !is_own_namespace(application, field, text)) {
            notes.push(format!(
                "the field spec.{field} is {text} in each file: change it if environments differ there"
            ));
        }
    }
    if has_substitution(&application.object) {
        notes.push(
            "the manifest has substitutions such as ${name}: they stay, and Flux fills them only if the Kustomization that applies the file has spec.postBuild".into(),
        );
    }
    notes
}

fn is_own_namespace(application: &Application, field: &str, text: &str) -> bool {
    field == "targetNamespace" && text == application.namespace
}

/// Returns the objects that a manifest names, as `kind name`.
fn references(application: &Application) -> BTreeSet<String> {
    let spec = |pointer: &str| application.object.pointer(pointer);
    let mut found = BTreeSet::new();
    for (pointer, kind) in REFERENCES {
        found.extend(spec(pointer).and_then(|reference| words(reference, kind)));
    }
    for pointer in LISTS {
        let kind = if pointer.ends_with("dependsOn") { application.kind.name() } else { "" };
        let items = spec(pointer).and_then(Value::as_array).into_iter().flatten();
        found.extend(items.filter_map(|reference| words(reference, kind)));
    }
    if let Some(name) = spec("/spec/serviceAccountName").and_then(Value::as_str) {
        found.insert(format!("ServiceAccount {name}"));
    }
    found
}

fn words(reference: &Value, kind: &str) -> Option<String> {
    let text = |name: &str| reference.get(name).and_then(Value::as_str);
    let (kind, name) = (text("kind").unwrap_or(kind), text("name")?);
    Some(match text("namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    })
}

/// Whether Flux would replace a part of a text.
fn has_substitution(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(has_substitution),
        Value::Object(fields) => fields.values().any(has_substitution),
        _ => false,
    }
}
