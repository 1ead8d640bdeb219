//! Objects that cannot be read, as a later version of Sluice may store them. A call that such an object decides
//! about is answered with the name of the object. Other calls are answered as if the object did not exist.

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

/// A hook server without a controller, so that no other program writes.
struct StoreFixture {
    cluster: Cluster,
    hook: HookServer,
    _scratch: Scratch,
}

impl StoreFixture {
    async fn new() -> Result<StoreFixture> {
        let cluster = ControlPlane::start().await?.cluster("hub").await?;
        cluster.install_later_sluice_crds().await?;
        cluster.namespace("apps").await?;
        cluster.apply_yaml(PIPELINE).await?;
        set_keys(&cluster, &keys()).await?;
        let (client, scratch) = (cluster.client().await?, Scratch::new("unreadable")?);
        let pipeline: Pipeline = Api::namespaced(client.clone(), "apps").get("podinfo").await?;
        let hook = serving_on(&scratch, [pipeline], 0, client);
        Ok(StoreFixture { cluster, hook, _scratch: scratch })
    }

    async fn promotions(&self) -> Result<Api<Promotion>> {
        Ok(Api::namespaced(self.cluster.client().await?, "apps"))
    }

    /// Merges a value into the status of an object, even if the object cannot be read.
    async fn set_status<K: kube::Resource<DynamicType = ()>>(&self, name: &str, status: Value) -> Result<()> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client().await?, "apps", &ApiResource::erase::<K>(&()));
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates a promotion of podinfo, and returns its UID.
    async fn create_promotion(
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
        self.set_status::<Promotion>(name, status).await?;
        Ok(made.metadata.uid.unwrap_or_default())
    }

    /// Sends a call until the answer is not 503, and returns the answer.
    async fn call(&self, path: &str, body: &Value, header: (&str, &str)) -> Result<(u16, String)> {
        eventually(Duration::from_secs(30), async || {
            let request = Request::post(path).header(header.0, header.1);
            let request = request.body(Full::new(Bytes::from(body.to_string())))?;
            let answer = self.hook.answer("203.0.113.9".parse()?, request).await;
            let status = answer.status().as_u16();
            ensure!(status != 503, "{path} is answered with 503");
            Ok((
                status,
                String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned(),
            ))
        })
        .await
    }

    async fn call_signed(&self, path: &str, body: &Value, of: &str) -> Result<(u16, String)> {
        self.call(path, body, ("x-signature", &sign(of, body.to_string().as_bytes()))).await
    }

    async fn trigger(&self, revision: &str, key: &str) -> Result<(u16, String)> {
        let body = json!({"revision": revision, "idempotencyKey": key});
        self.call_signed("/trigger/apps/podinfo", &body, "test-trigger-key").await
    }

    async fn approve(&self, revision: &str) -> Result<(u16, String)> {
        let body = json!({"pipeline": "apps/podinfo", "environment": "prod", "revision": revision,
            "at": Timestamp::now()});
        self.call_signed(&format!("/approval/apps/podinfo/prod/{revision}"), &body, "test-approval-key").await
    }

    async fn call_back(&self, promotion: &str, uid: &str) -> Result<(u16, String)> {
        let pipeline = key("apps", "podinfo");
        let subject = TokenSubject { pipeline: &pipeline, promotion };
        let claim = TokenClaim { uid, round: 0, retries: Some(0), environment: "prod" };
        let token = mint(b"test-callback-key", subject, claim);
        let path = format!("/callback/apps/podinfo/{promotion}");
        self.call(&path, &json!({"state": "accepted"}), ("authorization", &format!("Bearer {token}"))).await
    }
}

fn check_names_unreadable((status, text): &(u16, String), object: &str) -> Result<()> {
    let named = format!("{object} cannot be read: ");
    ensure!(*status == 500 && text.contains(&named) && text.contains("sluice crds"), "{status}: {text}");
    Ok(())
}

#[test]
fn a_promotion_that_cannot_be_read_fails_only_the_calls_that_it_decides() -> Result<()> {
    run(async {
        let fixture = StoreFixture::new().await?;
        let waits = json!({"phase": "Pending", "gates": [{"name": "Approval", "open": false}]});
        let odd = fixture.create_promotion("odd", "prod", "6.1.8", json!({"phase": "Splendid"})).await?;
        fixture.create_promotion("sound", "prod", "6.1.9", waits.clone()).await?;

        ensure!(fixture.approve("6.1.9").await?.0 == 202);
        let called = json!({"phase": "Delivered", "gates": []});
        let called = fixture.create_promotion("called", "prod", "6.1.7", called).await?;
        ensure!(fixture.call_back("called", &called).await?.0 == 202);
        let (status, text) = fixture.trigger("6.2.0", "build-1").await?;
        ensure!(status == 202, "{status}: {text}");

        check_names_unreadable(&fixture.call_back("odd", &odd).await?, "Promotion apps/odd")?;
        // Another promotion of the same revision: the body may have approved the unreadable one before.
        fixture.create_promotion("again", "prod", "6.1.8", waits).await?;
        check_names_unreadable(&fixture.approve("6.1.8").await?, "Promotion apps/odd")?;
        let again = fixture.promotions().await?.get("again").await?;
        ensure!(
            again.status.is_some_and(|status| status.key_approval.is_none()),
            "the promotion was approved"
        );

        // The spec has the earlier request: repeating it creates no promotion, and the next one has a higher
        // sequence.
        let body: Value = serde_json::from_str(&text)?;
        let first = body["name"].as_str().unwrap_or_default();
        let sequence = fixture.promotions().await?.get(first).await?.spec.sequence;
        fixture.set_status::<Promotion>(first, json!({"phase": "Splendid"})).await?;
        check_names_unreadable(
            &fixture.trigger("6.2.0", "build-1").await?,
            &format!("Promotion apps/{first}"),
        )?;
        ensure!(fixture.trigger("6.3.0", "build-1").await?.0 == 409);
        let (status, text) = fixture.trigger("6.3.0", "build-2").await?;
        ensure!(status == 202, "{status}: {text}");
        let body: Value = serde_json::from_str(&text)?;
        let second = fixture.promotions().await?.get(body["name"].as_str().unwrap_or_default()).await?;
        ensure!(second.spec.sequence > sequence, "{} after {sequence}", second.spec.sequence);
        Ok(())
    })
}

#[test]
fn a_pipeline_with_a_partly_unreadable_status_accepts_reports() -> Result<()> {
    run(async {
        let fixture = StoreFixture::new().await?;
        let reports = async |revision: &str| {
            let event = event("eu", "UpgradeSucceeded", revision, 0);
            fixture.call_signed("/promotion/apps/podinfo/edge", &event, "test-report-key-eu").await
        };
        let health = json!({"environments": {"dev": {"health": "Splendid"}}});
        fixture.set_status::<Pipeline>("podinfo", health).await?;
        ensure!(fixture.trigger("6.2.0", "build-1").await?.0 == 202);
        let (status, text) = reports("6.1.8").await?;
        ensure!(status == 202, "{status}: {text}");
        // It cannot be decided whether an event is newer than an unreadable report.
        let odd = json!({"reports": {"edge/eu/HelmRelease/podinfo": {"health": "Splendid"}}});
        fixture.set_status::<Pipeline>("podinfo", odd).await?;
        let answer = reports("6.1.9").await?;
        check_names_unreadable(&answer, "Pipeline apps/podinfo")?;
        ensure!(answer.1.contains("status.reports.edge/eu/HelmRelease/podinfo"), "{}", answer.1);
        Ok(())
    })
}
