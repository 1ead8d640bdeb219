//! The files that users copy work: a real API server with the real CRDs accepts every file of `examples/` and
//! `deploy/` and the YAML in the docs, and the roles of `deploy/` grant the controller what it needs.

#[path = "support/manifest_parts.rs"]
mod manifest_parts;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::GitopsCluster;
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_testkit::{Shared, WAIT_TIMEOUT, connect, eventually, parse_yaml, shared};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Returns the YAML files of a folder of the checkout, in the order of their names.
fn yaml_files(name: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder(name))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "{name} has no YAML files");
    found.sort();
    Ok(found)
}

/// Returns the files that `kubectl apply -k` applies for a folder, including those of other folders that it names.
fn kustomized(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let kustomization = parse_yaml(&std::fs::read_to_string(folder.join("kustomization.yaml"))?)?;
    for resource in kustomization.iter().filter_map(|k| k["resources"].as_array()).flatten() {
        let path = folder.join(resource.as_str().context("the path of a resource")?);
        if path.is_dir() { files.extend(kustomized(&path)?) } else { files.push(path) }
    }
    ensure!(!files.is_empty(), "{} names no files", folder.display());
    Ok(files)
}

/// Applies objects, after creating their namespaces.
async fn apply(shared: &Shared, yaml: &str) -> Result<()> {
    for namespace in parse_yaml(yaml)?.iter().filter_map(|o| o["metadata"]["namespace"].as_str()) {
        shared.hub.namespace(namespace).await?;
    }
    shared.hub.apply_yaml(yaml).await?;
    Ok(())
}

async fn apply_file(shared: &Shared, path: &Path) -> Result<()> {
    apply(shared, &std::fs::read_to_string(path)?).await.with_context(|| path.display().to_string())
}

/// Applies the YAML blocks of a page of the checkout. Returns the number of whole objects, and that of other parts.
async fn apply_page(shared: &Shared, path: &Path) -> Result<(usize, usize)> {
    let page = std::fs::read_to_string(path)?;
    let (mut applied, mut parts) = (0, 0);
    for (language, block) in blocks(&page) {
        let context = || format!("{}: {block}", path.display());
        match language {
            "yaml" => {
                apply(shared, &block).await.with_context(context)?;
                applied += 1;
            }
            "" => parts += usize::from(manifest_parts::check(shared, &block).await.with_context(context)?),
            _ => {}
        }
    }
    Ok((applied, parts))
}

/// Returns the blocks of a page, each with its language. Those with the language `yaml` are whole objects.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut open: Option<usize> = None;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(language), None) => {
                open = Some(indent);
                found.push((language, String::new()));
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(indent)) => {
                if let Some((_, block)) = found.last_mut() {
                    block.push_str(line.get(indent..).unwrap_or_default());
                    block.push('\n');
                }
            }
            (None, None) => {}
        }
    }
    found
}

/// Adds Pipelines and Promotions to the objects that an Alert can be about, as docs/strategies/notification.md says.
async fn let_alerts_name_kinds_of_sluice(shared: &Shared) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(shared.hub.client().await?);
    let name = "alerts.notification.toolkit.fluxcd.io";
    let mut crd = serde_json::to_value(crds.get(name).await?)?;
    let kinds = "/schema/openAPIV3Schema/properties/spec/properties/eventSources/items/properties/kind/enum";
    for version in crd["spec"]["versions"].as_array_mut().context("no versions")? {
        let kinds = version.pointer_mut(kinds).and_then(Value::as_array_mut).context("no kinds")?;
        for kind in ["Pipeline", "Promotion"].map(|kind| json!(kind)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let patch = json!({"spec": {"versions": crd["spec"]["versions"]}});
    crds.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

#[tokio::test]
async fn examples_are_accepted() -> Result<()> {
    let shared = shared().await?;
    for path in yaml_files("examples")? {
        apply_file(shared, &path).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_yaml_blocks_of_the_docs_are_accepted() -> Result<()> {
    let shared = shared().await?;
    let mut pages = vec![folder("README.md"), folder("examples/README.md")];
    pages.extend(pages_below(&folder("docs"))?);
    for path in kustomized(&folder("deploy"))? {
        apply_file(shared, &path).await?;
    }
    let_alerts_name_kinds_of_sluice(shared).await?;
    let (mut with_blocks, mut of_forges, mut other_parts) = (0, 0, 0);
    for path in pages {
        // The API server uses a new list of kinds a moment later.
        let (applied, parts) = eventually(WAIT_TIMEOUT, || apply_page(shared, &path)).await?;
        other_parts += parts;
        match path.parent().is_some_and(|folder| folder.ends_with("docs/forges")) {
            true => {
                let is_of_forge = !path.ends_with("README.md");
                let wanted = usize::from(is_of_forge);
                ensure!(
                    applied == wanted,
                    "{} should show {wanted} pipelines, not {applied}",
                    path.display()
                );
                of_forges += applied;
            }
            false => with_blocks += usize::from(applied > 0),
        }
    }
    ensure!(of_forges == 7, "there should be one block for each forge, not {of_forges}");
    ensure!(with_blocks >= 10, "only {with_blocks} pages have YAML blocks");
    ensure!(other_parts >= 8, "only {other_parts} parts of manifests were found");
    Ok(())
}

/// The policy that the page shows lets the pods of `deploy/` in, from their namespace.
#[test]
fn the_network_policy_of_the_docs_selects_the_pods_of_deploy() -> Result<()> {
    let page = std::fs::read_to_string(folder("docs/strategies/notification.md"))?;
    let policy = blocks(&page).into_iter().find(|(_, block)| block.contains("kind: NetworkPolicy\n"));
    let policy: NetworkPolicy = serde_json::from_value(
        parse_yaml(&policy.context("the page shows no NetworkPolicy")?.1)?.pop().context("no object")?,
    )?;
    let deployed = parse_yaml(&std::fs::read_to_string(folder("deploy/deployment.yaml"))?)?;
    let deployment = deployed.iter().find(|o| o["kind"] == "Deployment").context("no Deployment")?;
    let rule =
        policy.spec.context("no spec")?.ingress.and_then(|mut rules| rules.pop()).context("no rule")?;
    let peer = rule.from.and_then(|mut peers| peers.pop()).context("no peer")?;
    let labels = |selector: Option<LabelSelector>| json!(selector.and_then(|s| s.match_labels));
    let namespace = &deployment["metadata"]["namespace"];
    assert_eq!(labels(peer.namespace_selector), json!({"kubernetes.io/metadata.name": namespace}));
    assert_eq!(labels(peer.pod_selector), deployment["spec"]["selector"]["matchLabels"]);
    Ok(())
}

/// Returns the pages of a folder and of the folders in it.
fn pages_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => pages.extend(pages_below(&path)?),
            false if path.extension().is_some_and(|e| e == "md") => pages.push(path),
            false => {}
        }
    }
    Ok(pages)
}

#[tokio::test]
async fn the_readme_of_the_examples_names_every_file() -> Result<()> {
    let text = std::fs::read_to_string(folder("examples/README.md"))?;
    for path in yaml_files("examples")? {
        let name = path.file_name().and_then(|n| n.to_str()).context("a name")?;
        ensure!(
            text.contains(&format!("({name})")),
            "examples/README.md does not name {name}: add a line for it"
        );
    }
    Ok(())
}

/// What the controller must be allowed on the hub: group, resource, verb.
const NEEDED: [(&str, &str, &str); 17] = [
    ("pipelines.weave.works", "pipelines", "watch"),
    ("pipelines.weave.works", "promotions", "watch"),
    ("pipelines.weave.works", "promotions", "create"),
    ("pipelines.weave.works", "promotions", "delete"),
    ("pipelines.weave.works", "pipelines/status", "patch"),
    ("pipelines.weave.works", "promotions/status", "patch"),
    ("pipelines.weave.works", "pipelines", "record"),
    ("pipelines.weave.works", "promotions", "record"),
    ("gitops.weave.works", "gitopsclusters", "watch"),
    ("", "secrets", "watch"),
    ("events.k8s.io", "events", "create"),
    ("helm.toolkit.fluxcd.io", "helmreleases", "watch"),
    ("apps", "deployments", "watch"),
    ("", "namespaces", "list"),
    (LEASES, "leases", "watch"),
    (LEASES, "leases", "update"),
    (LEASES, "leases", "delete"),
];

/// The group of Leases, which are in the controller's own namespace.
const LEASES: &str = "coordination.k8s.io";

/// What the controller must not be allowed.
const REFUSED: [(&str, &str, &str); 8] = [
    ("pipelines.weave.works", "pipelines", "delete"),
    ("pipelines.weave.works", "promotions", "patch"),
    ("pipelines.weave.works", "promotions", "approve"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "list"),
    ("", "secrets", "create"),
    ("", "pods", "list"),
    ("helm.toolkit.fluxcd.io", "helmreleases", "patch"),
    ("apps", "deployments", "delete"),
];

#[tokio::test]
async fn deploy_grants_what_is_needed_and_no_more() -> Result<()> {
    let shared = shared().await?;
    for deployed in ["deploy", "deploy/target"] {
        for path in kustomized(&folder(deployed))? {
            apply_file(shared, &path).await?;
        }
    }
    let account = connect(&shared.hub.service_account("sluice-system", "sluice").await?).await?;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(account);
    for (asks, allowed) in [(&NEEDED[..], true), (&REFUSED[..], false)] {
        for (group, resource, verb) in asks {
            // The authorizer gets a new role from its watch after a moment.
            eventually(WAIT_TIMEOUT, || async {
                let review = review(group, resource, verb);
                let answer = reviews.create(&PostParams::default(), &review).await?;
                let may = answer.status.context("an answer")?.allowed;
                ensure!(may == allowed, "{verb} {resource} of {group:?}: {may}, expected {allowed}");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

fn review(group: &str, resource: &str, verb: &str) -> SelfSubjectAccessReview {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub.to_owned())),
        None => (resource, None),
    };
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(verb.to_owned()),
        namespace: (group == LEASES).then(|| "sluice-system".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    SelfSubjectAccessReview { spec, ..Default::default() }
}

/// With these labels, Kubernetes adds a role's rules to its own roles view, edit and admin
/// (kubernetes.io/docs/reference/access-authn-authz/rbac, "Aggregated ClusterRoles").
#[test]
fn viewers_and_editors_are_aggregated_and_approvers_are_not() -> Result<()> {
    let roles = parse_yaml(&std::fs::read_to_string(folder("deploy/people.yaml"))?)?;
    for (name, expected) in [
        ("sluice-viewer", &["admin", "edit", "view"][..]),
        ("sluice-editor", &["admin", "edit"]),
        ("sluice-approver", &[]),
        ("sluice-api-client", &[]),
    ] {
        let role = roles.iter().find(|role| role["metadata"]["name"] == name).context(name)?;
        let labels = role["metadata"]["labels"].as_object().context("labels")?;
        let mut into: Vec<&str> = labels
            .iter()
            .filter(|(_, value)| *value == "true")
            .filter_map(|(label, _)| label.strip_prefix("rbac.authorization.k8s.io/aggregate-to-"))
            .collect();
        into.sort();
        ensure!(into == expected, "{name}: {into:?}");
        let rules = role["rules"].as_array().context("rules")?;
        let verbs = rules.iter().filter_map(|rule| rule["verbs"].as_array()).flatten();
        ensure!(verbs.clone().any(|verb| verb == "approve") == (name == "sluice-approver"), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn the_crds_of_deploy_are_those_of_the_code() -> Result<()> {
    let written = parse_yaml(&std::fs::read_to_string(folder("deploy/crds.yaml"))?)?;
    let mut code: Vec<Value> =
        sluice_api::all_crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    code.push(json!(sluice_api::promotion::user_policy::policy()));
    code.push(json!(sluice_api::promotion::user_policy::binding()));
    if written.len() != code.len() || written.iter().zip(&code).any(|(a, b)| a["spec"] != b["spec"]) {
        bail!("deploy/crds.yaml differs from the code: run make crds");
    }
    Ok(())
}

#[tokio::test]
async fn the_crd_of_gitops_clusters_is_a_separate_file_that_the_install_does_not_apply() -> Result<()> {
    let file = folder("deploy/gitopscluster.yaml");
    for deployed in ["deploy", "deploy/target"] {
        let named = kustomized(&folder(deployed))?;
        ensure!(!named.iter().any(|path| path.ends_with("gitopscluster.yaml")), "{deployed} would apply it");
    }
    let hub = shared().await?.plane.cluster("bare").await?;
    hub.namespace("apps").await?;
    let example = std::fs::read_to_string(folder("examples/helmrelease.yaml"))?;
    let cluster = example.split("\n---\n").find(|o| o.contains("kind: GitopsCluster\n"));
    let cluster = cluster.context("examples/helmrelease.yaml shows no GitopsCluster")?;
    ensure!(
        hub.apply_yaml(cluster).await.is_err(),
        "the CRD is installed already, so this test proves nothing"
    );

    hub.apply_yaml(&format!("{}\n---\n{cluster}", std::fs::read_to_string(&file)?)).await?;
    let written = |name: &str, spec: Value| {
        json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
            "metadata": {"name": name, "namespace": "apps"}, "spec": spec})
        .to_string()
    };
    hub.apply_yaml(&written("capi", json!({"capiClusterRef": {"name": "eu"}}))).await?;
    let clusters: Api<GitopsCluster> =
        Api::namespaced_with(hub.client().await?, "apps", &gitops_cluster_resource());
    for (name, secret) in [("dev", "dev-kubeconfig"), ("capi", "eu-kubeconfig")] {
        let found = clusters.get(name).await?.spec.kubeconfig_secret();
        ensure!(found.as_deref() == Some(secret), "{name}: {found:?}");
    }

    let name = json!({"name": "a"});
    for (name, spec) in [("none", json!({})), ("both", json!({"secretRef": name, "capiClusterRef": name}))] {
        let refusal = hub.apply_yaml(&written(name, spec)).await.err();
        let refusal = refusal.with_context(|| format!("{name}: accepted"))?;
        ensure!(format!("{refusal:#}").contains("write exactly one of the two"), "{name}: {refusal:#}");
    }
    Ok(())
}
