//! Which namespaces of the hub a Pipeline may use with `--no-cross-namespace-refs`: the annotation of a real Namespace
//! decides, and a change of it takes effect without a restart.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_api::ALLOWED_NAMESPACES;

use crate::place::{TestNamespace, error, revision};
use crate::process::Controller;
use crate::{releases, run};

/// dev is in the Pipeline's own namespace, and prod is in another one.
fn pipeline(own: &str, other: &str) -> String {
    format!(
        "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: podinfo, namespace: {own}}}\nspec:\n  \
         appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}\n  environments:\n  \
         - {{name: dev, targets: [{{namespace: {own}}}]}}\n  - {{name: prod, targets: [{{namespace: {other}}}]}}\n  \
         promotion: {{strategy: {{notification: {{}}}}}}\n"
    )
}

#[test]
fn with_the_flag_the_annotation_of_a_namespace_decides_whether_it_may_be_a_target() -> Result<()> {
    run(async {
        let place = TestNamespace::new("tenancy").await?;
        let (hub, n) = (&place.shared.hub, place.namespace.as_str());
        let other = format!("{n}-prod");
        hub.namespace(&other).await?;
        for (namespace, version) in [(n, "1.1.0"), (other.as_str(), "1.0.0")] {
            releases::create_running(hub, namespace, "podinfo", version).await?;
        }
        let namespaces: Api<Namespace> = Api::all(place.client.clone());
        let allow = async |allowed: Option<&str>| {
            let patch = json!({"metadata": {"annotations": {ALLOWED_NAMESPACES: allowed}}});
            namespaces.patch(&other, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
        };
        place.apply(&pipeline(n, &other)).await?;
        let _controller = Controller::start(hub, n, &["--no-cross-namespace-refs"])?;

        let forbidden = format!(
            "namespace {other} is not the Pipeline's own, which --no-cross-namespace-refs forbids: create the Pipeline in \
             namespace {other}, or list {n} in the annotation {ALLOWED_NAMESPACES} of that Namespace"
        );
        place.until("podinfo", "prod is refused", |p| error(p, "prod") == forbidden).await?;
        let refused = place.until("podinfo", "dev shows 1.1.0", |p| revision(p, "dev") == "1.1.0").await?;
        ensure!(revision(&refused, "prod").is_empty(), "{:?}", refused.status);
        ensure!(place.promotions_into("podinfo", "prod").await?.is_empty());

        allow(Some(&format!("somebody, {n}"))).await?;
        place.until_promotions("podinfo", "prod", &["1.1.0 Delivered"]).await?;
        let allowed = place.until("podinfo", "prod shows 1.0.0", |p| revision(p, "prod") == "1.0.0").await?;
        ensure!(error(&allowed, "prod").is_empty(), "{:?}", allowed.status);

        allow(Some("somebody")).await?;
        let unlisted = format!(
            "namespace {other} may not be a target of Pipelines in namespace {n}: its annotation {ALLOWED_NAMESPACES} \
             does not list that namespace"
        );
        place.until("podinfo", "prod is refused again", |p| error(p, "prod") == unlisted).await?;
        // Nothing is promoted into a target that may not be used.
        releases::runs(hub, n, "podinfo", "1.2.0", true).await?;
        place.until("podinfo", "dev shows 1.2.0", |p| revision(p, "dev") == "1.2.0").await?;
        ensure!(place.promotions_into("podinfo", "prod").await? == ["1.1.0 Delivered"]);

        allow(None).await?;
        place.until("podinfo", "prod is refused as at first", |p| error(p, "prod") == forbidden).await?;
        allow(Some("*")).await?;
        place.until_promotions("podinfo", "prod", &["1.1.0 Superseded", "1.2.0 Delivered"]).await
    })
}
