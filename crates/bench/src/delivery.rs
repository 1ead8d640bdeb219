//! A cluster with an application that is really promoted, from dev into staging.

use crate::controller::Controller;
use crate::fleet::{set_healthy, write};
use crate::objects::{self, HELM, NAMESPACES, SLUICE, VERSION};
use crate::table::say;
use crate::watch::{Watch, field};
use anyhow::{Context, Result, bail};
use axum::http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::{Cluster, ControlPlane};
use std::time::{Duration, Instant};

/// How long one step of a promotion may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The environments of the applications here.
const ENVIRONMENTS: [&str; 2] = ["dev", "staging"];

/// The cluster.
pub struct Ground {
    /// The cluster itself.
    pub cluster: Cluster,
    /// A plain client for it.
    pub client: Client,
}

/// An application with a pipeline of its name, in a namespace of its name.
pub struct Application<'a> {
    ground: &'a Ground,
    name: &'a str,
    promotions: String,
}

impl Ground {
    /// Starts the cluster, with nothing on it but kinds.
    pub async fn prepare(plane: &ControlPlane) -> Result<Ground> {
        let cluster = plane.cluster("delivery").await?;
        cluster.install_flux_crds().await?;
        cluster.install_sluice_crds().await?;
        let client = cluster.client().await?;
        say("a cluster to deliver on is ready");
        Ok(Ground { cluster, client })
    }

    /// Makes an application that runs in all environments, with a Secret `git` for its strategy.
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
        Ok(Application { ground: self, name, promotions })
    }
}

impl Application<'_> {
    /// Lets it run a chart version healthily in an environment.
    pub async fn runs(&self, environment: &str, version: &str) -> Result<()> {
        set_healthy(&self.ground.client, self.name, environment, version).await
    }

    /// Lets Flux begin to bring a change to an environment.
    pub async fn upgrades(&self, environment: &str) -> Result<()> {
        let namespace = objects::namespace(self.name, environment);
        let url = format!("{HELM}/namespaces/{namespace}/helmreleases/{}/status", self.name);
        let condition = |type_: &str, status: &str| {
            json!({"type": type_, "status": status, "reason": "Progressing", "message": "Running 'upgrade' action",
                "observedGeneration": 1, "lastTransitionTime": "2025-01-01T00:00:00Z"})
        };
        let conditions = [condition("Reconciling", "True"), condition("Ready", "Unknown")];
        write(&self.ground.client, Method::PATCH, &url, &json!({"status": {"conditions": conditions}})).await
    }

    /// Watches for the record of the next promotion: when it is there.
    pub async fn next_record(&self) -> Result<impl Future<Output = Result<Instant>> + use<>> {
        let mut watch = Watch::begin(&self.ground.client, &self.promotions).await?;
        Ok(async move {
            loop {
                let line = watch.next().await?;
                if field(&line, "\"type\":\"") == Some("ADDED") {
                    return Ok(Instant::now());
                }
            }
        })
    }

    /// Waits until the promotion of a version is in a phase, and returns it.
    pub async fn reaches(&self, version: &str, phase: &str, controller: &Controller) -> Result<Value> {
        let begun = Instant::now();
        let mut last = Value::Null;
        while begun.elapsed() < PATIENCE {
            let list: Value =
                self.ground.client.request(Request::get(&self.promotions).body(Vec::new())?).await?;
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
    pub async fn observed(&self) -> Result<()> {
        let url = format!("{SLUICE}/namespaces/{0}/pipelines/{0}", self.name);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let pipeline: Value = self.ground.client.request(Request::get(&url).body(Vec::new())?).await?;
            if pipeline["status"]["observedGeneration"] == 1 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the pipeline {} got no status", self.name)
    }
}

/// The number of a promotion's change request.
pub fn number(promotion: &Value) -> Result<u64> {
    promotion["status"]["changeRequest"]["number"].as_u64().context("a promotion without a change request")
}
