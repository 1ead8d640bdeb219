//! Objects that cannot be read, stored as a later version of Sluice may store them: a call that such an object decides
//! about is answered with its name, and every other call as if it were not there.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_controller::hook::HookServer;
use sluice_controller::hook::callback::{TokenClaim, TokenSubject, mint};
use sluice_testkit::{Cluster, ControlPlane, Scratch, eventually};

use crate::callbacks::key;
use crate::push::event;
use crate::server::{keys, run, set_keys, sign};
use crate::serving::serving_on;

const PIPELINE: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion: {strategy: {webhook: {url: https://example.com/a}, secretRef: {name: hook}}}
  environments:
  - {name: dev, targets: [{namespace: podinfo}]}
  - {name: prod, targets: [{namespace: prod}]}
  - {name: edge, targets: [{namespace: podinfo, name: eu, observe: Push, clusterRef: {kind: GitopsCluster, name: eu}}]}
";

/// A hook server without a controller: nobody else writes.
struct Place {
    cluster: Cluster,
    hook: HookServer,
    _scratch: Scratch,
}

impl Place {
    async fn new() -> Result<Place> {
        let cluster = ControlPlane::start().await?.cluster("hub").await?;
        cluster.install_later_sluice_crds().await?;
        cluster.namespace("apps").await?;
        cluster.apply_yaml(PIPELINE).await?;
        set_keys(&cluster, &keys()).await?;
        let (client, scratch) = (cluster.client().await?, Scratch::new("unreadable")?);
        let pipeline: Pipeline = Api::namespaced(client.clone(), "apps").get("podinfo").await?;
        let hook = serving_on(&scratch, [pipeline], 0, client);
        Ok(Place { cluster, hook, _scratch: scratch })
    }

    async fn promotions(&self) -> Result<Api<Promotion>> {
        Ok(Api::namespaced(self.cluster.client().await?, "apps"))
    }

    /// Merges into the status of an object, whether it can be read or not.
    async fn status<K: kube::Resource<DynamicType = ()>>(&self, name: &str, status: Value) -> Result<()> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client().await?, "apps", &ApiResource::erase::<K>(&()));
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// A promotion of podinfo, and its identity.
    async fn promotion(
        &self,
        name: &str,
        environment: &str,
        revision: &str,
        status: Value,
    ) -> Result<String> {
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": name, "labels": {"pipelines.weave.works/pipeline": "podinfo"}},
            "spec": {"pipeline": "podinfo", "environment": environment, "revision": revision, "facets": {}}});
        let made =
            self.promotions().await?.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        self.status::<Promotion>(name, status).await?;
        Ok(made.metadata.uid.unwrap_or_default())
    }

    /// The answer to a call; it is sent again as long as it cannot be judged.
    async fn call(&self, path: &str, body: &Value, header: (&str, &str)) -> Result<(u16, String)> {
        eventually(Duration::from_secs(30), async || {
            let request = Request::post(path).header(header.0, header.1);
            let request = request.body(Full::new(Bytes::from(body.to_string())))?;
            let answer = self.hook.answer("203.0.113.9".parse()?, request).await;
            let status = answer.status().as_u16();
            ensure!(status != 503, "{path} cannot be judged");
            Ok((
                status,
                String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned(),
            ))
        })
        .await
    }

    async fn signed(&self, path: &str, body: &Value, of: &str) -> Result<(u16, String)> {
        self.call(path, body, ("x-signature", &sign(of, body.to_string().as_bytes()))).await
    }

    async fn triggers(&self, revision: &str, key: &str) -> Result<(u16, String)> {
        let body = json!({"revision": revision, "idempotencyKey": key});
        self.signed("/trigger/apps/podinfo", &body, "test-trigger-key").await
    }

    async fn approves(&self, revision: &str) -> Result<(u16, String)> {
        let body = json!({"pipeline": "apps/podinfo", "environment": "prod", "revision": revision,
            "at": Timestamp::now()});
        self.signed(&format!("/approval/apps/podinfo/prod/{revision}"), &body, "test-approval-key").await
    }

    async fn calls_back(&self, promotion: &str, uid: &str) -> Result<(u16, String)> {
        let pipeline = key("apps", "podinfo");
        let subject = TokenSubject { pipeline: &pipeline, promotion };
        let token = mint(b"test-callback-key", subject, TokenClaim { uid, round: 0, environment: "prod" });
        let path = format!("/callback/apps/podinfo/{promotion}");
        self.call(&path, &json!({"state": "accepted"}), ("authorization", &format!("Bearer {token}"))).await
    }
}

fn is_named((status, text): &(u16, String), object: &str) -> Result<()> {
    let named = format!("{object} cannot be read: ");
    ensure!(*status == 500 && text.contains(&named) && text.contains("sluice crds"), "{status}: {text}");
    Ok(())
}

#[test]
fn one_promotion_that_cannot_be_read_decides_about_its_own_calls_alone() -> Result<()> {
    run(async {
        let place = Place::new().await?;
        let waits = json!({"phase": "Pending", "gates": [{"name": "Approval", "open": false}]});
        let odd = place.promotion("odd", "prod", "6.1.8", json!({"phase": "Splendid"})).await?;
        let sound = place.promotion("sound", "prod", "6.1.9", waits.clone()).await?;

        ensure!(place.approves("6.1.9").await?.0 == 202);
        ensure!(place.calls_back("sound", &sound).await?.0 == 202);
        let (status, text) = place.triggers("6.2.0", "build-1").await?;
        ensure!(status == 202, "{status}: {text}");

        is_named(&place.calls_back("odd", &odd).await?, "Promotion apps/odd")?;
        // Another of its revision: the body may have approved the one that cannot be read.
        place.promotion("again", "prod", "6.1.8", waits).await?;
        is_named(&place.approves("6.1.8").await?, "Promotion apps/odd")?;
        let again = place.promotions().await?.get("again").await?;
        ensure!(again.status.is_some_and(|status| status.key_approval.is_none()), "it was approved");

        // What was asked for is known by the spec: the same again is no second promotion, and the next comes after it.
        let said: Value = serde_json::from_str(&text)?;
        let first = said["name"].as_str().unwrap_or_default();
        let sequence = place.promotions().await?.get(first).await?.spec.sequence;
        place.status::<Promotion>(first, json!({"phase": "Splendid"})).await?;
        is_named(&place.triggers("6.2.0", "build-1").await?, &format!("Promotion apps/{first}"))?;
        ensure!(place.triggers("6.3.0", "build-1").await?.0 == 409);
        let (status, text) = place.triggers("6.3.0", "build-2").await?;
        ensure!(status == 202, "{status}: {text}");
        let said: Value = serde_json::from_str(&text)?;
        let second = place.promotions().await?.get(said["name"].as_str().unwrap_or_default()).await?;
        ensure!(second.spec.sequence > sequence, "{} after {sequence}", second.spec.sequence);
        Ok(())
    })
}

#[test]
fn a_status_of_a_pipeline_that_cannot_be_read_in_parts_takes_reports() -> Result<()> {
    run(async {
        let place = Place::new().await?;
        let reports = async |revision: &str| {
            let event = event("eu", "UpgradeSucceeded", revision, 0);
            place.signed("/promotion/apps/podinfo/edge", &event, "test-report-key-eu").await
        };
        let health = json!({"environments": {"dev": {"health": "Splendid"}}});
        place.status::<Pipeline>("podinfo", health).await?;
        ensure!(place.triggers("6.2.0", "build-1").await?.0 == 202);
        let (status, text) = reports("6.1.8").await?;
        ensure!(status == 202, "{status}: {text}");
        // Whether an event is later than a report that cannot be read, nobody knows.
        let odd = json!({"reports": {"edge/eu/HelmRelease/podinfo": {"health": "Splendid"}}});
        place.status::<Pipeline>("podinfo", odd).await?;
        let answer = reports("6.1.9").await?;
        is_named(&answer, "Pipeline apps/podinfo")?;
        ensure!(answer.1.contains("status.reports.edge/eu/HelmRelease/podinfo"), "{}", answer.1);
        Ok(())
    })
}
