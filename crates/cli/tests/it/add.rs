//! `sluice add cluster`, with two real API servers. They have no controller-manager, so the tests write the token.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::GitopsCluster;
use sluice_api::gitops_cluster::gitops_cluster_resource;
use sluice_cli::Exit;
use sluice_testkit::{WAIT_TIMEOUT, connect, eventually};

use crate::hub::{Ran, TestNamespace, place, servers};

async fn add(place: &TestNamespace, target: &Path, more: &[&str]) -> Ran {
    let target = target.to_string_lossy();
    place.sluice(&[&["add", "cluster", "eu", "--cluster-kubeconfig", &target], more].concat()).await
}

async fn target() -> Result<PathBuf> {
    Ok(servers().await?.bare.kubeconfig_path())
}

/// Writes the token of the account as Kubernetes' controller-manager does, when the Secret exists.
pub async fn fill_token() -> Result<()> {
    let bare = &servers().await?.bare;
    let secrets: Api<Secret> = Api::namespaced(bare.client().await?, "sluice-system");
    let accounts: Api<ServiceAccount> = Api::namespaced(bare.client().await?, "sluice-system");
    eventually(WAIT_TIMEOUT, || async {
        accounts.get("sluice").await?;
        secrets.get("sluice-token").await?;
        Ok(())
    })
    .await?;
    let kubeconfig: Value = serde_saphyr(&bare.service_account("sluice-system", "sluice").await?)?;
    let authority = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    let token = kubeconfig["users"][0]["user"]["token"].as_str().context("a token")?;
    let data = json!({"data": {"ca.crt": authority}, "stringData": {"token": token}});
    secrets.patch("sluice-token", &PatchParams::default(), &Patch::Merge(data)).await?;
    Ok(())
}

fn serde_saphyr(text: &str) -> Result<Value> {
    sluice_testkit::parse_yaml(text)?.pop().context("a kubeconfig")
}

#[tokio::test]
async fn a_cluster_is_connected_with_an_account_that_may_read() -> Result<()> {
    let place = place("add-cluster").await?;
    let hub = &servers().await?.hub;
    hub.install_flux_crds().await?;
    let target = target().await?;
    let clusters: Api<GitopsCluster> =
        Api::namespaced_with(place.client.clone(), &place.namespace, &gitops_cluster_resource());

    let planned = add(&place, &target, &[]).await;
    assert_eq!(planned.exit, Exit::Ok, "{planned:?}");
    let ports = |text: &str| {
        text.replace(&servers_url(hub.url()), "https://hub").replace(&bare_url(&target), "https://eu")
    };
    insta::assert_snapshot!(ports(&planned.out), @"
    on the new cluster (https://eu):
      Namespace sluice-system
      ClusterRole sluice-reader
      ServiceAccount sluice-system/sluice
      Secret sluice-system/sluice-token
      ClusterRoleBinding sluice-reader
    on the hub (https://hub):
      Secret add-cluster/eu-kubeconfig, with the token of the account
      GitopsCluster add-cluster/eu
    ");
    assert!(planned.err.contains("nothing was changed: --apply creates these objects"), "{planned:?}");
    assert!(clusters.get_opt("eu").await?.is_none());

    let (applied, filled) = tokio::join!(add(&place, &target, &["--apply"]), fill_token());
    filled?;
    assert_eq!(applied.exit, Exit::Ok, "{applied:?}");
    assert!(applied.err.contains("✔ GitopsCluster add-cluster/eu leads to https://"), "{applied:?}");
    let cluster = clusters.get("eu").await?;
    let secret = cluster.spec.kubeconfig_secret().context("a Secret")?;
    let secrets: Api<Secret> = Api::namespaced(place.client.clone(), &place.namespace);
    let data = secrets.get(&secret).await?.data.unwrap_or_default();
    let reader = connect(std::str::from_utf8(&data["value"].0)?).await?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(reader.clone());
    assert!(namespaces.list(&Default::default()).await.is_ok(), "the account may read");
    let forbidden: Api<Secret> = Api::all(reader);
    assert!(forbidden.list(&Default::default()).await.is_err(), "the account may not read Secrets");
    let checked = place.sluice(&["check"]).await;
    assert!(checked.out.contains("✔ GitopsCluster add-cluster/eu leads to https://"), "{}", checked.out);

    let exported =
        add(&place, &target, &["--export", "hub", "--server", "https://eu.example.com:6443/"]).await;
    assert_eq!(exported.exit, Exit::Ok, "{exported:?}");
    assert!(exported.err.contains("encrypt it before you commit it"), "{exported:?}");
    let objects = sluice_testkit::parse_yaml(&exported.out)?;
    assert_eq!((objects.len(), &objects[1]["spec"]["secretRef"]["name"]), (2, &json!("eu-kubeconfig")));
    let text = objects[0]["stringData"]["value"].as_str().unwrap_or_default();
    assert!(
        text.contains("server: \"https://eu.example.com:6443\"")
            || text.contains("server: https://eu.example.com:6443\n"),
        "{text}"
    );
    Ok(())
}

fn servers_url(url: String) -> String {
    url.trim_end_matches('/').to_owned()
}

fn bare_url(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap_or_default();
    let server = text.split("https://").nth(1).unwrap_or_default();
    let end = server.find(|c: char| !c.is_ascii_alphanumeric() && !".:-".contains(c)).unwrap_or(server.len());
    format!("https://{}", &server[..end])
}

#[tokio::test]
async fn a_wrong_call_changes_nothing_and_says_what_to_write() -> Result<()> {
    let place = place("add-wrong").await?;
    let servers = servers().await?;
    servers.hub.install_flux_crds().await?;
    let own = servers.hub.kubeconfig_path();
    let ran = add(&place, &own, &["--apply"]).await;
    assert_eq!(ran.exit, Exit::Usage, "{ran:?}");
    assert!(ran.err.contains("a target on the hub needs no GitopsCluster"), "{ran:?}");

    let target = target().await?;
    for (more, says) in [
        (&["--server", "http://eu"][..], "write https:// and the address of the API server"),
        (&["--export", "eu"], "[possible values: target, hub]"),
        (&["--apply", "--export", "hub"], "cannot be used with"),
    ] {
        let ran = add(&place, &target, more).await;
        assert_eq!(ran.exit, Exit::Usage, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
    let ran = place.sluice(&["add", "cluster", "eu"]).await;
    assert!(ran.exit == Exit::Usage && ran.err.contains("--cluster-context"), "{ran:?}");
    let ran = place.sluice(&["add", "cluster", "EU", "--cluster-context", "x"]).await;
    assert!(ran.exit == Exit::Usage && ran.err.contains("lower-case letters"), "{ran:?}");

    let other = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
        "metadata": {"name": "eu", "namespace": place.namespace}, "spec": {"secretRef": {"name": "other"}}});
    servers.hub.apply_yaml(&other.to_string()).await?;
    let ran = add(&place, &target, &["--apply"]).await;
    assert_eq!(ran.exit, Exit::Refused, "{ran:?}");
    insta::assert_snapshot!(ran.err.lines().skip(1).collect::<Vec<_>>().join("\n"), @"
    ✗ GitopsCluster eu exists, and its kubeconfig is in Secret other
      choose another name, or change that Secret
    ");
    let printed = add(&place, &target, &["--export", "target"]).await;
    assert!(
        printed.out.contains("kind: ServiceAccount") && printed.out.contains("kind: ClusterRole\n"),
        "{printed:?}"
    );
    Ok(())
}
