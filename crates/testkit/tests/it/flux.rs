//! The stand-in for Flux writes the statuses of Flux, in the same order.

mod helm;
mod kustomization;
mod watch;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sluice_testkit::{
    Cluster, ControlPlane, FluxOptions, FluxStandIn, GitServer, Repo, WAIT_TIMEOUT, eventually,
};
use std::time::Duration;
use tokio::sync::OnceCell;

/// A cluster with a stand-in for all tests of this module; each test has its own namespace.
pub struct FluxFixture {
    pub cluster: Cluster,
    pub git: GitServer,
    pub flux: FluxStandIn,
}

/// Slow enough to observe each step, also on a busy machine.
fn options() -> FluxOptions {
    FluxOptions {
        progressing: Duration::from_millis(150),
        rollout: Duration::from_millis(150),
        ..FluxOptions::default()
    }
}

pub async fn fixture() -> Result<&'static FluxFixture> {
    static FIXTURE: OnceCell<FluxFixture> = OnceCell::const_new();
    FIXTURE
        .get_or_try_init(async || {
            let plane = ControlPlane::start().await?;
            let cluster = plane.cluster("leaf").await?;
            cluster.install_flux_crds().await?;
            let flux = FluxStandIn::start(&cluster.kubeconfig(), options())?;
            Ok(FluxFixture { cluster, git: GitServer::start()?, flux })
        })
        .await
}

impl FluxFixture {
    /// Creates a namespace, a repository of the same name, and a GitRepository `fleet` for it.
    pub async fn repository(&self, namespace: &str, files: &[(&str, &str)]) -> Result<Repo> {
        self.cluster.namespace(namespace).await?;
        let repo = self.git.create_repo(namespace, files)?;
        let yaml = format!(
            "
apiVersion: v1
kind: Secret
metadata: {{name: git, namespace: {namespace}}}
stringData: {{username: {}, password: '{}'}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{name: fleet, namespace: {namespace}}}
spec: {{interval: 10s, url: '{}', ref: {{branch: main}}, secretRef: {{name: git}}}}
",
            GitServer::FLUX,
            GitServer::FLUX_PASSWORD,
            repo.url()
        );
        self.cluster.apply_yaml(&yaml).await?;
        Ok(repo)
    }

    pub async fn api(&self, kind: &str, namespace: &str) -> Result<Api<DynamicObject>> {
        let (group, version) = match kind {
            "Kustomization" => ("kustomize.toolkit.fluxcd.io", "v1"),
            "HelmRelease" => ("helm.toolkit.fluxcd.io", "v2"),
            "Deployment" => ("apps", "v1"),
            "ConfigMap" => ("", "v1"),
            _ => ("source.toolkit.fluxcd.io", "v1"),
        };
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if kind.ends_with("Repository") {
            resource.plural = format!("{}ies", kind.trim_end_matches('y').to_lowercase());
        }
        Ok(Api::namespaced_with(self.cluster.client().await?, namespace, &resource))
    }
}

pub async fn merge(api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<()> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Waits until an object's status passes `check`.
pub async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    check: impl Fn(&Value) -> bool,
) -> Result<DynamicObject> {
    eventually(WAIT_TIMEOUT, || async {
        let object = api.get(name).await?;
        ensure!(check(&object.data["status"]), "{:#}", object.data["status"]);
        Ok(object)
    })
    .await
}

pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let found = status["conditions"].as_array().and_then(|list| list.iter().find(|c| c["type"] == kind));
    found.unwrap_or(&Value::Null)
}

pub fn reason(status: &Value, kind: &str) -> String {
    let found = condition(status, kind);
    format!("{}/{}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
}

/// Returns the names and types of all fields below a value. Of a list, it returns the first element only.
pub fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), shape(v))).collect(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}

pub fn revision(repo: &Repo) -> Result<String> {
    Ok(format!("main@sha1:{}", repo.head("main").context("a head")?))
}

#[test]
fn the_stand_in_for_flux_continues_after_a_restart_of_its_cluster() -> Result<()> {
    crate::run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("restless").await?;
        cluster.install_flux_crds().await?;
        let flux = FluxStandIn::start(&cluster.kubeconfig(), options())?;
        let git = GitServer::start()?;
        let fixture = FluxFixture { cluster, git, flux };
        fixture.cluster.stop();
        fixture.cluster.start().await?;
        fixture.repository("back", &[("a", "b")]).await?;
        let sources = fixture.api("GitRepository", "back").await?;
        until(&sources, "fleet", |s| reason(s, "Ready") == "True/Succeeded").await?;
        Ok(())
    })
}
