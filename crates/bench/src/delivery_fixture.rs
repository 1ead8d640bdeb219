//! A cluster with applications that Sluice promotes from dev into staging, with real deliveries.

use crate::controller::ControllerProcess;
use crate::objects::{self, HELM, NAMESPACES, SLUICE, VERSION};
use crate::pipelines_fixture::{set_healthy, write};
use crate::table::progress;
use crate::watch::{Watch, field};
use anyhow::{Context, Result, bail};
use axum::http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// The time limit of one step of a promotion.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The environments of each application.
const ENVIRONMENTS: [&str; 2] = ["dev", "staging"];

/// A cluster, with a client.
pub struct DeliveryCluster {
    /// The cluster.
    pub cluster: Cluster,
    /// A client with the rights of an administrator.
    pub client: Client,
}

/// An application. Its pipeline and its namespace have the same name.
pub struct Application<'a> {
    cluster: &'a DeliveryCluster,
    name: &'a str,
    promotions: String,
}

impl DeliveryCluster {
    /// Starts the cluster, and installs the CRDs.
    pub async fn prepare(plane: &ControlPlane) -> Result<DeliveryCluster> {
        let cluster = plane.cluster("delivery").await?;
        cluster.install_flux_crds().await?;
        cluster.install_sluice_crds().await?;
        let client = cluster.client().await?;
        progress("the cluster for deliveries is ready");
        Ok(DeliveryCluster { cluster, client })
    }

    /// Creates an application that runs in all environments, with a Secret `git` for its strategy.
    pub async fn application<'a>(
        &'a self,
        name: &'a str,
        secret: Value,
        strategy: Value,
    ) -> Result<Application<'a>> {
        let make = async |url: &str, object: Value| write(&self.client, Method::POST, url, &object).await;
        make(NAMESPACES, json!({"metadata": {"name": name}})).await?;
        for environment in ENVIRONMENTS {
            let namespace = objects::namespace(name, environment);
            make(NAMESPACES, json!({"metadata": {"name": namespace}})).await?;
            let url = format!("{HELM}/namespaces/{namespace}/helmreleases");
            make(&url, objects::helm_release(name, environment)).await?;
            set_healthy(&self.client, name, environment, VERSION).await?;
        }
        let secret = json!({"metadata": {"name": "git"}, "stringData": secret});
        make(&format!("{NAMESPACES}/{name}/secrets"), secret).await?;
        let pipeline = objects::pipeline(name, name, &ENVIRONMENTS, &json!({"strategy": strategy}));
        make(&format!("{SLUICE}/namespaces/{name}/pipelines"), pipeline).await?;
        let promotions = format!("{SLUICE}/namespaces/{name}/promotions");
        Ok(Application { cluster: self, name, promotions })
    }
}

impl Application<'_> {
    /// Makes the application healthy with a chart version in an environment.
    pub async fn set_healthy(&self, environment: &str, version: &str) -> Result<()> {
        set_healthy(&self.cluster.client, self.name, environment, version).await
    }

    /// Writes the status of the beginning of an upgrade in an environment.
    pub async fn set_upgrading(&self, environment: &str) -> Result<()> {
        let namespace = objects::namespace(self.name, environment);
        let url = format!("{HELM}/namespaces/{namespace}/helmreleases/{}/status", self.name);
        let condition = |type_: &str, status: &str| {
            json!({"type": type_, "status": status, "reason": "Progressing", "message": "Running 'upgrade' action",
                "observedGeneration": 1, "lastTransitionTime": "2025-01-01T00:00:00Z"})
        };
        let conditions = [condition("Reconciling", "True"), condition("Ready", "Unknown")];
        write(&self.cluster.client, Method::PATCH, &url, &json!({"status": {"conditions": conditions}})).await
    }

    /// Watches for the next Promotion. The returned future has the time of its creation.
    pub async fn next_record(&self) -> Result<impl Future<Output = Result<Instant>> + use<>> {
        let mut watch = Watch::begin(&self.cluster.client, &self.promotions).await?;
        Ok(async move {
            loop {
                let line = watch.next().await?;
                if field(&line, "\"type\":\"") == Some("ADDED") {
                    return Ok(Instant::now());
                }
            }
        })
    }

    /// Waits until the promotion of a version is in a phase, and returns the Promotion.
    pub async fn until_phase(
        &self,
        version: &str,
        phase: &str,
        controller: &ControllerProcess,
    ) -> Result<Value> {
        let started = Instant::now();
        let mut last = Value::Null;
        while started.elapsed() < STEP_TIMEOUT {
            let list: Value =
                self.cluster.client.request(Request::get(&self.promotions).body(Vec::new())?).await?;
            let found =
                list["items"].as_array().into_iter().flatten().find(|p| p["spec"]["revision"] == version);
            last = found.cloned().unwrap_or_default();
            if last["status"]["phase"] == phase {
                return Ok(last);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("{version} is not {phase} but {}:\n{}", last["status"], controller.log())
    }

    /// Waits until the pipeline has a status.
    pub async fn until_observed(&self) -> Result<()> {
        let url = format!("{SLUICE}/namespaces/{0}/pipelines/{0}", self.name);
        let started = Instant::now();
        while started.elapsed() < STEP_TIMEOUT {
            let pipeline: Value = self.cluster.client.request(Request::get(&url).body(Vec::new())?).await?;
            if pipeline["status"]["observedGeneration"] == 1 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the pipeline {} got no status", self.name)
    }
}

/// Returns the number of a promotion's change request.
pub fn number(promotion: &Value) -> Result<u64> {
    promotion["status"]["changeRequest"]["number"].as_u64().context("the promotion has no change request")
}
