//! The custom resource definitions and the admission policy: are they installed, and are they those of this version?

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::all_crds;

use super::{Finding, Reading, Topic};

/// The command that installs the definitions and the policy of this version.
const INSTALL: &str = "sluice crds | kubectl apply --server-side -f -";

/// Facts about the definitions and the admission policy.
#[derive(Clone, Debug)]
pub struct Definitions {
    /// Known if the API server serves Pipelines and Promotions.
    pub served: Reading<()>,
    /// The CustomResourceDefinitions by name.
    pub crds: BTreeMap<String, Reading<Value>>,
    /// Why the admission policy is not in force; `None` if it is. Absent if the API server has no such policies.
    pub policy: Reading<Option<String>>,
    /// Known if the API server serves GitopsClusters.
    pub gitops_clusters: Reading<()>,
    /// How many targets name a GitopsCluster.
    pub targets_elsewhere: usize,
}

/// Returns the findings.
pub fn findings(facts: &Definitions) -> Vec<Finding> {
    let topic = Topic::Definitions;
    if matches!(facts.served, Reading::Absent) {
        let message = "the kinds Pipeline and Promotion are not installed in this cluster";
        return vec![Finding::error(topic, message).fix(INSTALL)];
    }
    let mut findings: Vec<Finding> = facts.served.unread(topic, "the kinds of Sluice").into_iter().collect();
    for expected in all_crds() {
        let name = expected.metadata.name.clone().unwrap_or_default();
        let expected = serde_json::to_value(expected).unwrap_or_default();
        let found = facts.crds.get(&name).unwrap_or(&Reading::Absent);
        findings.push(definition(&name, &expected, found));
    }
    findings.push(policy(&facts.policy));
    if facts.targets_elsewhere > 0 && matches!(facts.gitops_clusters, Reading::Absent) {
        let message = "pipelines name GitopsClusters, and the kind GitopsCluster is not installed";
        findings.push(
            Finding::error(topic, message).fix("kubectl apply --server-side -f deploy/gitopscluster.yaml"),
        );
    }
    findings
}

fn definition(name: &str, expected: &Value, found: &Reading<Value>) -> Finding {
    let topic = Topic::Definitions;
    let found = match found {
        Reading::Known(found) => found,
        Reading::Absent => {
            return Finding::error(topic, format!("the definition {name} is not installed")).fix(INSTALL);
        }
        unread => {
            let finding = unread.unread(topic, "whether the definitions are those of this version");
            return finding.unwrap_or_else(|| Finding::ok(topic, ""));
        }
    };
    if !is_established(found) {
        let message =
            format!("the API server does not accept the definition {name} (Established is not True)");
        return Finding::error(topic, message).fix(format!("kubectl describe crd {name}"));
    }
    let (own, theirs) = (version(expected), version(found));
    if let Some(path) = lacks(own, theirs, String::new()) {
        let message =
            format!("the definition {name} does not match this sluice: {path} is missing or differs");
        return Finding::error(topic, message).fix(INSTALL);
    }
    if let Some(path) = lacks(&theirs["schema"], &own["schema"], String::new()) {
        let message = format!("the definition {name} is newer than this sluice: it also has {path}");
        return Finding::warning(topic, message)
            .fix("use the sluice of the controller's version: sluice version");
    }
    Finding::ok(topic, format!("the definition {name} is that of this version"))
}

fn policy(policy: &Reading<Option<String>>) -> Finding {
    let topic = Topic::Definitions;
    let page = "docs/approvals.md#if-the-policy-is-missing";
    match policy {
        Reading::Known(None) => Finding::ok(topic, "the admission policy decides who may approve"),
        Reading::Known(Some(why)) => {
            let why = why.split(": sluice crds").next().unwrap_or(why);
            let message = format!(
                "the admission policy does not protect approvals: {why}; everybody who may change promotions can \
                 approve them in any name"
            );
            Finding::error(topic, message).fix(INSTALL)
        }
        Reading::Absent => {
            let message = "this API server has no ValidatingAdmissionPolicy (Kubernetes before 1.30): everybody who may \
                           change promotions can approve them in any name";
            Finding::warning(topic, message).fix(page)
        }
        unread => unread
            .unread(topic, "whether the admission policy is in force")
            .unwrap_or_else(|| Finding::ok(topic, "")),
    }
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Returns the served version that this program reads.
fn version(crd: &Value) -> &Value {
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    versions.iter().find(|version| version["name"] == "v1alpha1").unwrap_or(&Value::Null)
}

/// Returns the first path of `wanted` that `found` does not have. Descriptions are not compared; the API server may add
/// defaults.
fn lacks(wanted: &Value, found: &Value, path: String) -> Option<String> {
    let name = || if path.is_empty() { "the version v1alpha1".to_owned() } else { path.clone() };
    match (wanted, found) {
        (Value::Null, _) => None,
        (Value::Object(wanted), Value::Object(found)) => {
            let mut keys = wanted.iter().filter(|(key, _)| *key != "description");
            keys.find_map(|(key, value)| {
                lacks(value, found.get(key).unwrap_or(&Value::Null), below(&path, key))
            })
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            wanted.iter().zip(found).find_map(|(wanted, found)| lacks(wanted, found, path.clone()))
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (wanted, found) if wanted == found => None,
        // The API server leaves out the default.
        (Value::Bool(false), Value::Null) => None,
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => None,
        _ => Some(name()),
    }
}

/// Returns the path of a field as people write it, without the levels that only schemas have.
fn below(path: &str, key: &str) -> String {
    match key {
        "schema" | "openAPIV3Schema" | "properties" => path.into(),
        "items" => format!("{path}[]"),
        key => format!("{path}.{key}"),
    }
}
