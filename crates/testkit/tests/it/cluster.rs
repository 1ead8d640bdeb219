//! Clusters are what they should be: real, separate, with rights that are checked, and able to
//! stop, hang and come back.

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Discovery};
use sluice_testkit::{Cluster, ControlPlane, PATIENCE, connect, eventually, shared, shared_flux};
use std::time::Duration;

fn config_map(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {namespace}}}\ndata: {{k: v}}\n"
    )
}

async fn served(cluster: &Cluster) -> Result<Vec<String>> {
    let found = Discovery::new(cluster.client().await?).run().await?;
    let ours = |name: &str| name.ends_with("toolkit.fluxcd.io") || name.ends_with("weave.works");
    let groups = found.groups().filter(|group| ours(group.name()));
    let mut kinds: Vec<String> =
        groups.flat_map(|group| group.recommended_resources()).map(|(resource, _)| resource.kind).collect();
    kinds.sort();
    Ok(kinds)
}

#[test]
fn a_leaf_serves_the_kinds_of_flux() -> Result<()> {
    run(async {
        let shared = shared_flux().await?;
        let kinds = [
            "Bucket",
            "ExternalArtifact",
            "GitRepository",
            "GitopsCluster",
            "HelmChart",
            "HelmRelease",
            "HelmRepository",
            "Kustomization",
            "OCIRepository",
        ];
        assert_eq!(served(&shared.dev).await?, kinds);
        Ok(())
    })
}

#[test]
fn the_hub_accepts_and_serves_the_kinds_of_sluice() -> Result<()> {
    run(async {
        let kinds = served(&shared().await?.hub).await?;
        ensure!(kinds.contains(&"Pipeline".into()) && kinds.contains(&"Promotion".into()), "{kinds:?}");
        Ok(())
    })
}

#[test]
fn clusters_of_one_control_plane_know_nothing_of_each_other() -> Result<()> {
    run(async {
        let shared = shared_flux().await?;
        shared.dev.namespace("only-in-dev").await?;
        shared.dev.namespace("only-in-dev").await?;
        let other: Api<Namespace> = Api::all(shared.prod.client().await?);
        ensure!(other.get_opt("only-in-dev").await?.is_none());
        Ok(())
    })
}

#[test]
fn yaml_is_applied_whatever_its_order() -> Result<()> {
    run(async {
        let shared = shared_flux().await?;
        let yaml = format!(
            "---\n{}---\n# nothing here\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: ordered}}\n",
            config_map("ordered")
        );
        let applied = shared.dev.apply_yaml(&yaml).await?;
        assert_eq!(applied.len(), 2);
        let error = shared.dev.apply_yaml("apiVersion: no.such/v1\nkind: Thing\nmetadata: {name: a}").await;
        let error = format!("{:#}", error.err().context("must fail")?);
        ensure!(error.contains("no.such/v1 Thing is not served here"), "{error}");
        Ok(())
    })
}

#[test]
fn a_user_may_do_what_rbac_allows_and_no_more() -> Result<()> {
    run(async {
        let shared = shared_flux().await?;
        shared.dev.namespace("rights").await?;
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
        shared.dev.apply_yaml(roles).await?;
        let users = [
            shared.dev.user("jane", None)?,
            shared.dev.user("joe", Some("readers"))?,
            shared.dev.service_account("rights", "robot").await?,
        ];
        for user in users {
            let client = connect(&user).await?;
            // The authorizer learns of a new role by a watch, a moment later.
            let here: Api<ConfigMap> = Api::namespaced(client.clone(), "rights");
            eventually(PATIENCE, || async { Ok(here.list(&ListParams::default()).await?) }).await?;
            let everywhere: Api<ConfigMap> = Api::all(client);
            assert_eq!(code(everywhere.list(&ListParams::default()).await)?, 403);
        }
        let expired: Api<Namespace> = Api::all(connect(&shared.dev.expired_kubeconfig()?).await?);
        assert_eq!(code(expired.list(&ListParams::default()).await)?, 401);
        Ok(())
    })
}

fn code<T>(answer: kube::Result<T>) -> Result<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(e) => Err(e.into()),
        Ok(_) => bail!("must be refused"),
    }
}

#[test]
fn the_schemas_of_flux_judge_what_is_written() -> Result<()> {
    run(async {
        let shared = shared_flux().await?;
        shared.dev.namespace("schemas").await?;
        let yaml = "
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: a, namespace: schemas}
spec: {interval: 1m, sourceRef: {kind: GitRepository, name: a}}
";
        let error = shared.dev.apply_yaml(yaml).await.err().context("prune is required")?;
        ensure!(format!("{error:#}").contains("spec.prune"), "{error:#}");
        shared.dev.apply_yaml(&yaml.replace("interval", "prune: true, interval")).await?;
        let gvk = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::namespaced_with(shared.dev.client().await?, "schemas", &resource);
        assert_eq!(api.get("a").await?.data["status"]["observedGeneration"], -1);
        Ok(())
    })
}

#[test]
fn a_cluster_stops_hangs_and_comes_back_with_its_objects() -> Result<()> {
    run(async {
        let plane = ControlPlane::start().await?;
        let cluster = plane.cluster("restless").await?;
        cluster.namespace("kept").await?;
        let client = cluster.client().await?;
        let namespaces: Api<Namespace> = Api::all(client);
        let look = async || Ok(namespaces.get("kept").await?);

        cluster.freeze()?;
        let hung = tokio::time::timeout(Duration::from_millis(300), namespaces.get("kept")).await;
        ensure!(hung.is_err(), "a frozen server answers nothing");
        cluster.thaw()?;
        eventually(PATIENCE, look).await?;

        let pid = cluster.pid();
        cluster.stop();
        ensure!(cluster.pid().is_none());
        ensure!(namespaces.get("kept").await.is_err());
        cluster.start().await?;
        ensure!(cluster.pid() != pid);
        look().await?;
        Ok(())
    })
}
