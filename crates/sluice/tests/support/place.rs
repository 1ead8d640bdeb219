//! A namespace for each test, on the hub and on every leaf cluster, with the GitopsClusters of the leaves, and
//! functions that read the state of the test's pipelines.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::{Cluster, Leaves, Shared, eventually, shared, shared_gitea};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// How long a test waits for a result.
pub const SOON: Duration = Duration::from_secs(90);

/// The namespace of a test on all clusters.
pub struct TestNamespace {
    pub shared: &'static Shared,
    pub leaves: &'static Leaves,
    pub namespace: String,
    pub client: Client,
}

impl TestNamespace {
    /// Creates a namespace on the servers that all tests share.
    pub async fn new(name: &str) -> Result<TestNamespace> {
        TestNamespace::on(shared().await?, name).await
    }

    /// Creates a namespace on these servers.
    pub async fn on(shared: &'static Shared, name: &str) -> Result<TestNamespace> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        TestNamespace::named(shared, format!("{name}-{}-{number}", std::process::id())).await
    }

    /// Creates the namespace of exactly this name on these servers. No other test of the process may use the name.
    pub async fn named(shared: &'static Shared, namespace: String) -> Result<TestNamespace> {
        let leaves = shared.leaves().await?;
        let place = TestNamespace { shared, leaves, client: shared.hub.client().await?, namespace };
        for cluster in [&shared.hub, &leaves.dev, &leaves.staging, &leaves.prod] {
            cluster.namespace(&place.namespace).await?;
        }
        for leaf in [&leaves.dev, &leaves.staging, &leaves.prod] {
            place.gitops_cluster(leaf.name(), &leaf.kubeconfig()).await?;
        }
        Ok(place)
    }

    /// Returns a leaf cluster by its name.
    pub fn leaf(&self, name: &str) -> &'static Cluster {
        match name {
            "dev" => &self.leaves.dev,
            "staging" => &self.leaves.staging,
            _ => &self.leaves.prod,
        }
    }

    /// Creates a GitopsCluster on the hub, with the kubeconfig in a Secret.
    pub async fn gitops_cluster(&self, name: &str, kubeconfig: &str) -> Result<()> {
        self.secret(&format!("{name}-kubeconfig"), &[("value", kubeconfig)]).await?;
        let namespace = &self.namespace;
        self.apply(&format!(
            "apiVersion: gitops.weave.works/v1alpha1\nkind: GitopsCluster\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{secretRef: {{name: {name}-kubeconfig}}}}\n"
        ))
        .await
    }

    /// Creates a Secret in the test's namespace on the hub.
    pub async fn secret(&self, name: &str, data: &[(&str, &str)]) -> Result<()> {
        let data: serde_json::Map<String, serde_json::Value> =
            data.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data
        });
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Creates the Secret `forge` with the credentials for git and the API of Gitea.
    pub async fn forge_secret(&self) -> Result<()> {
        let token = shared_gitea().await?.token();
        self.secret("forge", &[("username", "x"), ("password", token), ("token", token)]).await
    }

    /// Applies YAML to the hub.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        self.shared.hub.apply_yaml(yaml).await.map(|_| ())
    }

    pub fn pipelines(&self) -> Api<Pipeline> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn promotions(&self) -> Api<Promotion> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until a pipeline fulfils a condition. The error has the last status, and `what` was expected.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&Pipeline) -> bool,
    ) -> Result<Pipeline> {
        let found = eventually(SOON, || async {
            let pipeline = self.pipelines().get(name).await?;
            let status = serde_json::to_string_pretty(&pipeline.status)?;
            ensure!(condition(&pipeline), "{what}: not yet: {status}");
            Ok(pipeline)
        });
        found.await.with_context(|| format!("waiting until {what}"))
    }

    /// Returns the promotions into an environment of a pipeline, or into one target as `environment/target`,
    /// oldest first, as `revision phase`.
    pub async fn promotions_into(&self, pipeline: &str, environment: &str) -> Result<Vec<String>> {
        let mut all: Vec<Promotion> = self.promotions().list(&ListParams::default()).await?.items;
        all.retain(|p| p.spec.pipeline == pipeline && p.spec.place() == environment);
        all.sort_by_key(|p| p.spec.sequence);
        Ok(all.iter().map(|p| format!("{} {:?}", p.spec.revision, p.phase())).collect())
    }

    /// Waits until these are the promotions into an environment, in the form of
    /// [`TestNamespace::promotions_into`].
    pub async fn until_promotions(&self, pipeline: &str, environment: &str, expected: &[&str]) -> Result<()> {
        eventually(SOON, || async {
            let found = self.promotions_into(pipeline, environment).await?;
            let all = self.promotions().list(&ListParams::default()).await?;
            let messages: Vec<String> = all
                .iter()
                .map(|p| format!("{}: {}", p.name_any(), p.status.clone().unwrap_or_default().message))
                .collect();
            ensure!(found == expected, "{environment} has {found:?}, not {expected:?}; {messages:#?}");
            Ok(())
        })
        .await
    }
}

/// Returns the revision of an environment in the status of a pipeline.
pub fn revision(pipeline: &Pipeline, environment: &str) -> String {
    let status = pipeline.status.clone().unwrap_or_default();
    status.environments.get(environment).and_then(|e| e.revision.clone()).unwrap_or_default()
}

/// Returns the error of the first target of an environment in the status of a pipeline.
pub fn error(pipeline: &Pipeline, environment: &str) -> String {
    let status = pipeline.status.clone().unwrap_or_default();
    let environment = status.environments.get(environment).cloned().unwrap_or_default();
    environment.targets.first().map(|t| t.error.clone()).unwrap_or_default()
}
