//! Every field that Sluice reads of other projects' kinds exists in their definitions. The fields are taken from our types,
//! so that new fields are checked automatically.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::flux::image::{
    ImagePolicySpec, ImagePolicyStatus, ImageRef, ImageUpdateAutomationSpec, ImageUpdateAutomationStatus,
    OrderChoice, PolicyChoice, SemverChoice, UpdatePath,
};
use sluice_api::flux::notification::{
    AlertSpec, ObjectsRef, ProviderRef, ProviderSpec, ReceiverSpec, ReceiverStatus, SecretName,
};
use sluice_api::flux::{
    Artifact, ChartSpec, ChartTemplate, FluxCondition, FluxInventory, FluxStatus, HealthCheck, HelmAction,
    HelmReleaseSpec, HelmSnapshot, InventoryEntry, KubeConfigRef, KustomizationSpec, SourceRef,
    SourceReference, SourceSpec, SourceStatus,
};
use sluice_api::gitops_cluster::GitopsClusterSpec;
use sluice_api::pipeline::SecretRef;
use sluice_core::fleet::Kind;

fn some(text: &str) -> Option<String> {
    Some(text.into())
}

fn source_ref() -> SourceRef {
    SourceRef { kind: "k".into(), name: "n".into(), namespace: some("ns") }
}

// Each value has all fields, so that the compiler requires a new field of a type here.

fn kustomization() -> KustomizationSpec {
    KustomizationSpec {
        suspend: true,
        source_ref: source_ref(),
        path: "p".into(),
        wait: true,
        health_checks: vec![HealthCheck { kind: "k".into(), name: "n".into(), namespace: "ns".into() }],
        kube_config: Some(KubeConfigRef {}),
    }
}

fn helm_release() -> HelmReleaseSpec {
    let spec = ChartSpec { chart: "c".into(), version: "v".into(), source_ref: source_ref() };
    HelmReleaseSpec {
        suspend: true,
        chart: Some(ChartTemplate { spec }),
        chart_ref: Some(source_ref()),
        kube_config: Some(KubeConfigRef {}),
        release_name: some("r"),
        target_namespace: some("t"),
        install: HelmAction { disable_wait: true },
        upgrade: HelmAction { disable_wait: true },
        rollback: HelmAction { disable_wait: true },
        values: Some(serde_json::json!({})),
    }
}

fn conditions() -> Vec<FluxCondition> {
    vec![FluxCondition {
        type_: "t".into(),
        status: "s".into(),
        reason: "r".into(),
        message: "m".into(),
        observed_generation: 1,
        last_transition_time: Some(Default::default()),
    }]
}

fn status() -> FluxStatus {
    FluxStatus {
        observed_generation: Some(1),
        conditions: conditions(),
        last_applied_revision: some("r"),
        last_applied_origin_revision: some("r"),
        last_attempted_revision: some("r"),
        last_attempted_revision_digest: some("d"),
        helm_chart: some("ns/n"),
        inventory: Some(FluxInventory { entries: vec![InventoryEntry { id: "i".into() }] }),
        history: vec![HelmSnapshot {
            name: "n".into(),
            namespace: "ns".into(),
            version: 1,
            status: "s".into(),
            chart_version: "c".into(),
            app_version: some("a"),
            oci_digest: some("d"),
        }],
    }
}

fn source() -> SourceSpec {
    let reference = SourceReference {
        branch: some("b"),
        name: some("n"),
        tag: some("t"),
        semver: some("s"),
        commit: some("c"),
        digest: some("d"),
    };
    SourceSpec {
        suspend: true,
        type_: "t".into(),
        url: "u".into(),
        reference: Some(reference),
        endpoint: "e".into(),
        bucket_name: "b".into(),
        chart: "c".into(),
        version: "v".into(),
        source_ref: Some(source_ref()),
    }
}

fn source_status() -> SourceStatus {
    SourceStatus {
        observed_generation: Some(1),
        conditions: conditions(),
        // The names in the metadata are free.
        artifact: Some(Artifact {
            revision: "r".into(),
            last_update_time: Some("2026-11-21T10:00:00Z".parse().unwrap()),
            metadata: BTreeMap::new(),
        }),
        observed_source_artifact_revision: some("r"),
    }
}

fn image_policy() -> Value {
    let order = || Some(OrderChoice { order: "asc".into() });
    let policy = PolicyChoice {
        semver: Some(SemverChoice { range: "r".into() }),
        alphabetical: order(),
        numerical: order(),
    };
    let latest_ref = Some(ImageRef { name: "n".into(), tag: "t".into() });
    object(
        ImagePolicySpec { suspend: true, policy },
        ImagePolicyStatus { conditions: conditions(), latest_ref },
    )
}

fn image_update_automation() -> Value {
    let update = Some(UpdatePath { path: "p".into() });
    let spec = ImageUpdateAutomationSpec { suspend: true, source_ref: source_ref(), update };
    let status = ImageUpdateAutomationStatus {
        conditions: conditions(),
        last_push_time: Some("2026-11-21T10:00:00Z".parse().unwrap()),
        observed_policies: BTreeMap::new(),
    };
    object(spec, status)
}

fn receiver() -> Value {
    let resources = vec![ObjectsRef { kind: "k".into(), name: "n".into(), namespace: some("ns") }];
    let spec = ReceiverSpec { suspend: true, type_: "t".into(), resources };
    object(spec, ReceiverStatus { conditions: conditions() })
}

fn alert() -> Value {
    let spec = AlertSpec { suspend: true, provider_ref: ProviderRef { name: "n".into() } };
    json!({"spec": spec})
}

fn provider() -> Value {
    let secret_ref = Some(SecretName { name: "n".into() });
    let spec = ProviderSpec { suspend: true, type_: "t".into(), secret_ref, address: "a".into() };
    json!({"spec": spec})
}

fn gitops_cluster() -> GitopsClusterSpec {
    let secret = || Some(SecretRef { name: "n".into() });
    GitopsClusterSpec { secret_ref: secret(), capi_cluster_ref: secret() }
}

fn object(spec: impl Serialize, status: impl Serialize) -> Value {
    json!({"spec": spec, "status": status})
}

/// Returns the paths of all fields of a value, without lists.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                paths(value, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, path, found)),
        _ => {
            found.insert(path.into());
        }
    }
}

fn has(schema: &JSONSchemaProps, path: &str) -> bool {
    let mut at = schema;
    for step in path.split('.') {
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &at.items {
            at = items;
        }
        match at.properties.as_ref().and_then(|p| p.get(step)) {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// Returns the fields of a value that a kind does not have, for each served version.
fn missing(crds: &[CustomResourceDefinition], kind: &str, value: &Value) -> Vec<(String, Vec<String>)> {
    let mut wanted = BTreeSet::new();
    paths(value, "", &mut wanted);
    let crd = crds.iter().find(|c| c.spec.names.kind == kind).unwrap_or_else(|| panic!("no CRD of {kind}"));
    let served = crd.spec.versions.iter().filter(|v| v.served);
    served
        .map(|version| {
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).unwrap();
            let lacking = wanted.iter().filter(|path| !has(schema, path)).cloned().collect();
            (version.name.clone(), lacking)
        })
        .collect()
}

#[test]
fn every_field_that_sluice_reads_exists_in_flux() {
    let crds = sluice_testkit::flux_crds().unwrap();
    // Kustomization and HelmRelease share the type of their status. Each lacks some fields of the other.
    let helms_own = [
        "status.helmChart",
        "status.history.appVersion",
        "status.history.chartVersion",
        "status.history.name",
        "status.history.namespace",
        "status.history.ociDigest",
        "status.history.status",
        "status.history.version",
        "status.lastAttemptedRevisionDigest",
    ];
    let kustomizes_own = ["status.lastAppliedOriginRevision", "status.lastAppliedRevision"];
    let table: [(&str, &str, Value, &[&str]); 8] = [
        ("Kustomization", "v1", object(kustomization(), status()), &helms_own),
        ("HelmRelease", "v2", object(helm_release(), status()), &kustomizes_own),
        ("GitopsCluster", "v1alpha1", object(gitops_cluster(), json!({})), &[]),
        ("ImagePolicy", "v1", image_policy(), &[]),
        ("ImageUpdateAutomation", "v1", image_update_automation(), &[]),
        ("Receiver", "v1", receiver(), &[]),
        ("Alert", "v1beta3", alert(), &[]),
        ("Provider", "v1beta3", provider(), &[]),
    ];
    for (kind, version, value, lacking) in table {
        let found = missing(&crds, kind, &value);
        let here = found.iter().find(|(served, _)| served == version);
        let (_, fields) = here.unwrap_or_else(|| panic!("{kind} is not served as {version}: {found:?}"));
        assert_eq!(fields, lacking, "{kind} {version}");
    }
}

/// What the kinds of sources lack of the fields of the one type that reads them all.
const LACKING_OF_SOURCES: [(&str, &str); 6] = [
    (
        "GitRepository",
        "spec.bucketName spec.chart spec.endpoint spec.ref.digest spec.sourceRef.kind spec.sourceRef.name \
         spec.sourceRef.namespace spec.type spec.version status.observedSourceArtifactRevision",
    ),
    (
        "OCIRepository",
        "spec.bucketName spec.chart spec.endpoint spec.ref.branch spec.ref.commit spec.ref.name spec.sourceRef.kind \
         spec.sourceRef.name spec.sourceRef.namespace spec.type spec.version status.observedSourceArtifactRevision",
    ),
    (
        "HelmRepository",
        "spec.bucketName spec.chart spec.endpoint spec.ref.branch spec.ref.commit spec.ref.digest spec.ref.name \
         spec.ref.semver spec.ref.tag spec.sourceRef.kind spec.sourceRef.name spec.sourceRef.namespace spec.version \
         status.observedSourceArtifactRevision",
    ),
    (
        "HelmChart",
        "spec.bucketName spec.endpoint spec.ref.branch spec.ref.commit spec.ref.digest spec.ref.name \
         spec.ref.semver spec.ref.tag spec.sourceRef.namespace spec.type spec.url",
    ),
    (
        "Bucket",
        "spec.chart spec.ref.branch spec.ref.commit spec.ref.digest spec.ref.name spec.ref.semver spec.ref.tag \
         spec.sourceRef.kind spec.sourceRef.name spec.sourceRef.namespace spec.type spec.url spec.version \
         status.observedSourceArtifactRevision",
    ),
    (
        "ExternalArtifact",
        "spec.bucketName spec.chart spec.endpoint spec.ref.branch spec.ref.commit spec.ref.digest spec.ref.name \
         spec.ref.semver spec.ref.tag spec.suspend spec.type spec.url spec.version status.observedGeneration \
         status.observedSourceArtifactRevision",
    ),
];

#[test]
fn every_field_that_sluice_reads_of_a_source_exists_in_the_kinds_that_have_it() {
    let crds = sluice_testkit::flux_crds().unwrap();
    for (kind, lacking) in LACKING_OF_SOURCES {
        let found = missing(&crds, kind, &object(source(), source_status()));
        let (_, fields) = found.iter().find(|(served, _)| served == "v1").unwrap();
        assert_eq!(fields.join(" "), lacking, "{kind}");
    }
}

#[test]
fn groups_and_names_are_those_of_flux() {
    let crds = sluice_testkit::flux_crds().unwrap();
    let group = |kind: &str| crds.iter().find(|c| c.spec.names.kind == kind).map(|c| c.spec.group.clone());
    assert_eq!(group("Kustomization").as_deref(), Some(sluice_api::flux::KUSTOMIZE_GROUP));
    assert_eq!(group("HelmRelease").as_deref(), Some(sluice_api::flux::HELM_GROUP));
    for kind in Kind::SHOWN_ON_HUB {
        assert_eq!(group(kind.name()).as_deref(), Some(kind.resource().0));
    }
    let cluster = sluice_api::gitops_cluster::gitops_cluster_resource();
    let crd = crds.iter().find(|c| c.spec.names.kind == cluster.kind).unwrap();
    assert_eq!((&crd.spec.group, &crd.spec.names.plural), (&cluster.group, &cluster.plural));
    assert!(crd.spec.versions.iter().any(|v| v.served && v.name == cluster.version));
}
