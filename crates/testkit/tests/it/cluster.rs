//! Clusters are real and separate, check rights, and can be stopped, frozen and started again.

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Discovery};
use sluice_testkit::{Cluster, ControlPlane, WAIT_TIMEOUT, connect, eventually, shared, shared_flux};
use std::time::Duration;

fn config_map(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {namespace}}}\ndata: {{k: v}}\n"
    )
}

async fn served_kinds(cluster: &Cluster) -> Result<Vec<String>> {
    let discovery = Discovery::new(cluster.client().await?).run().await?;
    let ours = |name: &str| name.ends_with("toolkit.fluxcd.io") || name.ends_with("weave.works");
    let groups = discovery.groups().filter(|group| ours(group.name()));
    let mut kinds: Vec<String> =
        groups.flat_map(|group| group.recommended_resources()).map(|(resource, _)| resource.kind).collect();
    kinds.sort();
    Ok(kinds)
}

#[test]
fn a_leaf_serves_the_kinds_of_flux() -> Result<()> {
    run(async {
        let dev = &shared_flux().await?.leaves().await?.dev;
        let kinds = [
            "Bucket",
            "ExternalArtifact",
            "GitRepository",
            "GitopsCluster",
            "HelmChart",
            "HelmRelease",
            "HelmRepository",
            "ImagePolicy",
            "ImageRepository",
            "ImageUpdateAutomation",
            "Kustomization",
            "OCIRepository",
            "Receiver",
        ];
        assert_eq!(served_kinds(dev).await?, kinds);
        Ok(())
    })
}

#[test]
fn the_hub_serves_the_kinds_of_sluice() -> Result<()> {
    run(async {
        let kinds = served_kinds(&shared().await?.hub).await?;
        ensure!(kinds.contains(&"Pipeline".into()) && kinds.contains(&"Promotion".into()), "{kinds:?}");
        Ok(())
    })
}

#[test]
fn clusters_of_one_control_plane_share_no_objects() -> Result<()> {
    run(async {
        let leaves = shared_flux().await?.leaves().await?;
        leaves.dev.namespace("only-in-dev").await?;
        leaves.dev.namespace("only-in-dev").await?;
        let other: Api<Namespace> = Api::all(leaves.prod.client().await?);
        ensure!(other.get_opt("only-in-dev").await?.is_none());
        Ok(())
    })
}

#[test]
fn yaml_is_applied_in_any_order() -> Result<()> {
    run(async {
        let dev = &shared_flux().await?.leaves().await?.dev;
        let yaml = format!(
            "---\n{}---\n# nothing here\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: ordered}}\n",
            config_map("ordered")
        );
        let applied = dev.apply_yaml(&yaml).await?;
        assert_eq!(applied.len(), 2);
        let error = dev.apply_yaml("apiVersion: no.such/v1\nkind: Thing\nmetadata: {name: a}").await;
        let error = format!("{:#}", error.err().context("must fail")?);
        ensure!(error.contains("no.such/v1 Thing is not served here"), "{error}");
        Ok(())
    })
}

#[test]
fn a_user_has_only_the_rights_of_rbac() -> Result<()> {
    run(async {
        let dev = &shared_flux().await?.leaves().await?.dev;
        dev.namespace("rights").await?;
        let roles = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: rights}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
- {kind: ServiceAccount, name: robot, namespace: rights}
";
        dev.apply_yaml(roles).await?;
        let users = [
            dev.user("jane", None)?,
            dev.user("joe", Some("readers"))?,
            dev.service_account("rights", "robot").await?,
        ];
        for user in users {
            let client = connect(&user).await?;
            // The authorizer watches roles, and has a new one a moment later.
            let here: Api<ConfigMap> = Api::namespaced(client.clone(), "rights");
            eventually(WAIT_TIMEOUT, || async { Ok(here.list(&ListParams::default()).await?) }).await?;
            let everywhere: Api<ConfigMap> = Api::all(client);
            assert_eq!(error_code(everywhere.list(&ListParams::default()).await)?, 403);
        }
        let expired: Api<Namespace> = Api::all(connect(&dev.expired_kubeconfig()?).await?);
        assert_eq!(error_code(expired.list(&ListParams::default()).await)?, 401);
        Ok(())
    })
}

fn error_code<T>(answer: kube::Result<T>) -> Result<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(e) => Err(e.into()),
        Ok(_) => bail!("must be rejected"),
    }
}

#[test]
fn the_schemas_of_flux_validate_objects() -> Result<()> {
    run(async {
        let dev = &shared_flux().await?.leaves().await?.dev;
        dev.namespace("schemas").await?;
        let yaml = "
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: a, namespace: schemas}
spec: {interval: 1m, sourceRef: {kind: GitRepository, name: a}}
";
        let error = dev.apply_yaml(yaml).await.err().context("prune is required")?;
        ensure!(format!("{error:#}").contains("spec.prune"), "{error:#}");
        dev.apply_yaml(&yaml.replace("interval", "prune: true, interval")).await?;
        let gvk = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::namespaced_with(dev.client().await?, "schemas", &resource);
        assert_eq!(api.get("a").await?.data["status"]["observedGeneration"], -1);
        Ok(())
    })
}

#[test]
fn a_cluster_is_frozen_stopped_and_started_with_its_objects() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("restless").await?;
        cluster.namespace("kept").await?;
        let client = cluster.client().await?;
        let namespaces: Api<Namespace> = Api::all(client);
        let get = async || Ok(namespaces.get("kept").await?);

        cluster.freeze()?;
        let hung = tokio::time::timeout(Duration::from_millis(300), namespaces.get("kept")).await;
        ensure!(hung.is_err(), "a frozen server answered");
        cluster.thaw()?;
        eventually(WAIT_TIMEOUT, get).await?;

        let pid = cluster.pid();
        cluster.stop();
        ensure!(cluster.pid().is_none());
        ensure!(namespaces.get("kept").await.is_err());
        cluster.start().await?;
        ensure!(cluster.pid() != pid);
        get().await?;
        Ok(())
    })
}
