//! The HelmRelease or Kustomization of Flux that a first set-up starts from.

use serde_json::{Map, Value, json};
use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;
use sluice_api::flux::FluxStatus;
use sluice_core::dns_name::{is_label, is_subdomain};
use sluice_core::fleet::Kind;

use super::error::ApplicationError;
use super::promoted::{PromotedValue, promoted};
use super::readable::{has_invisible, readable};
use crate::metadata_by_people::written;

/// The largest manifest, in bytes.
pub const MAX_BYTES: usize = 128 << 10;
/// Fields of the metadata that people write. An API server adds the others.
const WRITTEN_METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// The application that a first set-up starts from: its manifest as people would write it.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// HelmRelease or Kustomization.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// The namespace; empty if the manifest has none.
    pub namespace: String,
    /// The manifest, without status and without what programs have added.
    pub(super) object: Value,
    /// The values that are promoted.
    pub(super) promoted: Vec<PromotedValue>,
    /// What the status says about the version that runs.
    status: Value,
}

impl Application {
    /// Reads a manifest that a person pasted.
    ///
    /// # Errors
    /// When no set-up can start from it. The error says what to paste instead, and never quotes the manifest.
    pub fn read(text: &str) -> Result<Application, ApplicationError> {
        if text.trim().is_empty() {
            return Err(ApplicationError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(ApplicationError::TooLarge);
        }
        // kubectl and Flux read YAML 1.1: there, 0755 is an octal number, and yes is true.
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_anchors: 0, max_aliases: 0, max_merge_keys: 0
            },
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        let object =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| unreadable(&error))?;
        Application::of(object)
    }

    /// Reads an object as an API server returns it.
    ///
    /// # Errors
    /// When no set-up can start from it.
    pub fn of(mut object: Value) -> Result<Application, ApplicationError> {
        let kind = kind(&object)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (name, namespace) = (text("/metadata/name").to_string(), text("/metadata/namespace").to_string());
        if !is_subdomain(&name) {
            return Err(ApplicationError::Name);
        }
        if !namespace.is_empty() && !is_label(&namespace) {
            return Err(ApplicationError::Namespace);
        }
        if !object.get("spec").is_some_and(Value::is_object) {
            return Err(ApplicationError::NoSpec);
        }
        let status = object.get("status").cloned().unwrap_or_default();
        let status: FluxStatus = serde_json::from_value(status).unwrap_or_default();
        clean(&mut object);
        if has_invisible(&object) {
            return Err(ApplicationError::Invisible);
        }
        let promoted = promoted(kind, &object, &status)?;
        Ok(Application { kind, name, namespace, object, promoted, status: known(&status) })
    }

    /// Returns a manifest from which the same application is read: as people would write it, and with the part of the status
    /// that says which version runs.
    pub fn manifest(&self) -> String {
        let mut object = self.object.clone();
        if !self.status.is_null() {
            object["status"] = self.status.clone();
        }
        readable(&object).unwrap_or_default()
    }
}

/// Returns the part of a status that says which version runs.
fn known(status: &FluxStatus) -> Value {
    match status.chart_version() {
        Some(version) => json!({"history": [{"chartVersion": version, "status": "deployed"}]}),
        None => Value::Null,
    }
}

fn unreadable(error: &Error) -> ApplicationError {
    if let Error::Budget { breach, .. } = error.without_snippet() {
        match breach {
            BudgetBreach::Anchors { .. }
            | BudgetBreach::Aliases { .. }
            | BudgetBreach::AliasAnchorRatio { .. }
            | BudgetBreach::MergeKeys { .. } => return ApplicationError::Anchors,
            BudgetBreach::Documents { .. } => return ApplicationError::Documents,
            _ => return ApplicationError::TooLarge,
        }
    }
    if matches!(error, Error::MultipleDocuments { .. }) {
        return ApplicationError::Documents;
    }
    ApplicationError::NotYaml { line: error.location().map_or(1, |location| location.line()) }
}

fn kind(object: &Value) -> Result<Kind, ApplicationError> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or_default();
    // It becomes a part of an address of the API server.
    if !version.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        return Err(ApplicationError::Kind);
    }
    match (group, kind) {
        ("helm.toolkit.fluxcd.io", "HelmRelease") => Ok(Kind::HelmRelease),
        ("kustomize.toolkit.fluxcd.io", "Kustomization") => Ok(Kind::Kustomization),
        (_, "Secret") => Err(ApplicationError::Secret),
        (_, kind) if kind.ends_with("List") => Err(ApplicationError::List),
        ("kustomize.config.k8s.io", _) => Err(ApplicationError::KustomizeFile),
        // The file of kustomize needs neither.
        ("", "") if object.get("resources").is_some() => Err(ApplicationError::KustomizeFile),
        _ => Err(ApplicationError::Kind),
    }
}

/// Removes what programs have added.
fn clean(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    fields.retain(|name, _| ["apiVersion", "kind", "metadata", "spec"].contains(&name.as_str()));
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else { return };
    metadata.retain(|name, _| WRITTEN_METADATA.contains(&name.as_str()));
    for name in ["labels", "annotations"] {
        let texts = metadata.remove(name).and_then(|texts| serde_json::from_value(texts).ok());
        let kept = texts.map(|texts| written(&texts)).unwrap_or_default();
        if !kept.is_empty() {
            let kept: Map<String, Value> = kept.into_iter().map(|(key, text)| (key, text.into())).collect();
            metadata.insert(name.into(), Value::Object(kept));
        }
    }
}
