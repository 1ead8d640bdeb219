//! Flux on a target's cluster accepts the output of `sluice export`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_cli::Exit;
use sluice_testkit::parse_yaml;

use crate::hub::{servers, sluice_as};

const PIPELINE: &str = "
apiVersion: v1
kind: Secret
metadata: {name: hook, namespace: export}
stringData: {hmac-key: 'a \"key\": of 32', report-key.edge-1: first, report-key.fleet_edge-2: second}
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: export}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion: {strategy: {notification: {}, secretRef: {name: hook}}}
  environments:
  - {name: dev, targets: [{namespace: a, clusterRef: {kind: GitopsCluster, name: dev-eu}},
      {name: twin, namespace: a, clusterRef: {kind: GitopsCluster, name: dev-eu},
        workloads: [{kind: Kustomization, name: more}]}, {namespace: b}]}
  - {name: qa, targets: [{namespace: a, clusterRef: {kind: GitopsCluster, name: qa}},
      {name: other, namespace: a, clusterRef: {kind: GitopsCluster, name: qa, namespace: fleet}}]}
  - {name: prod, targets: [{namespace: c}], promotion: {strategy: {notification: {}}}}
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: labelled, namespace: export}
spec:
  promotion: {strategy: {notification: {}, secretRef: {name: none}}}
  environments: [{name: dev, targets: [{namespace: a}]}]
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: later, namespace: export}
spec:
  environments:
  - {name: dev, targets: [{namespace: a}]}
  - {name: prod, targets: [{namespace: b}], promotion: {strategy: {notification: {}, secretRef: {name: hook}}}}
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: edge, namespace: export}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion: {strategy: {notification: {}, secretRef: {name: hook}}}
  environments:
  - name: edge
    targets:
    - {name: one, namespace: a, observe: Push, clusterRef: {kind: GitopsCluster, name: edge-1}}
    - {name: two, namespace: a, observe: Push, clusterRef: {kind: GitopsCluster, name: edge-2, namespace: fleet}}
    - {name: read, namespace: a, clusterRef: {kind: GitopsCluster, name: other}}
  - name: far
    targets: [{namespace: a, observe: Push, clusterRef: {kind: GitopsCluster, name: edge-3}}]
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: nothing, namespace: export}
spec:
  environments: [{name: dev, targets: [{namespace: a}]}]
";

const FLEET: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: fleet, namespace: receive}
spec:
  promotion: {strategy: {pull-request: {type: gitlab, url: 'https://gitlab.example.com/org/fleet.git', secretRef: {name: forge}}}}
  environments:
  - {name: dev, targets: [{namespace: a, clusterRef: {kind: GitopsCluster, name: eu}}, {namespace: b, clusterRef: {kind: GitopsCluster, name: eu}}]}
  - {name: qa, targets: [{namespace: a, clusterRef: {kind: GitopsCluster, name: eu}}]}
  - {name: prod, targets: [{namespace: a}], promotion: {strategy: {commit: {url: 'https://git.example.com/prod.git'}}}}
  - {name: notified, targets: [{namespace: a}], promotion: {strategy: {notification: {}}}}
";

#[tokio::test]
async fn a_receiver_for_each_cluster_and_repository() -> Result<()> {
    let servers = servers().await?;
    servers.hub.namespace("receive").await?;
    servers.hub.apply_yaml(FLEET).await?;
    let kubeconfig = servers.hub.kubeconfig_path();
    let export = async |more: &[&str]| {
        sluice_as(
            &kubeconfig,
            &[&["export", "receiver", "pipeline.pipelines.weave.works/fleet", "-n", "receive"], more]
                .concat(),
        )
        .await
    };
    let ran = export(&[]).await;
    ensure!(ran.exit == Exit::Ok, "{ran:?}");
    let objects = parse_yaml(&ran.out)?;
    let receivers = of(&objects, "Receiver");
    ensure!(receivers.len() == 2 && of(&objects, "Secret").len() == 2, "{}", ran.out);
    let gitlab = receivers.iter().find(|r| r["spec"]["type"] == "gitlab").unwrap();
    assert_eq!(gitlab["apiVersion"], "notification.toolkit.fluxcd.io/v1");
    let name = gitlab["metadata"]["name"].as_str().unwrap();
    ensure!(name.starts_with("sluice-receive.fleet-") && name.len() == 31, "{name}");
    assert_eq!(gitlab["metadata"]["namespace"], "flux-system");
    assert_eq!(gitlab["spec"]["events"], json!(["Push Hook"]));
    assert_eq!(gitlab["spec"]["secretRef"]["name"], name);
    let source =
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "flux-system"});
    assert_eq!(gitlab["spec"]["resources"], json!([source]));
    ensure!(ran.out.contains(
        "# Environment dev, qa, for cluster receive/eu. Register at https://gitlab.example.com/org/fleet.git"
    ));
    let ran =
        export(&["-e", "prod", "--source", "fleet.apps", "--address", "https://flux.example.com"]).await;
    let objects = parse_yaml(&ran.out)?;
    assert_eq!(of(&objects, "Receiver")[0]["metadata"]["namespace"], "apps");
    assert_eq!(of(&objects, "Receiver")[0]["spec"]["type"], "generic");
    ensure!(
        ran.out.contains("https://flux.example.com followed by")
            && ran.out.contains("the path is the secret")
    );
    // The objects of different repositories and pipelines on one cluster have different names, and each Secret has a
    // new random token.
    let mut all = of(&objects, "Secret").into_iter().cloned().collect::<Vec<_>>();
    for (namespace, pipeline) in [("receive", "fleet"), ("receive-too", "fleet"), ("receive", "fleet-2")] {
        servers.hub.namespace(namespace).await?;
        let named = FLEET
            .replace("name: fleet, namespace: receive", &format!("name: {pipeline}, namespace: {namespace}"));
        servers.hub.apply_yaml(&named).await?;
        let ran = sluice_as(&kubeconfig, &["export", "receiver", pipeline, "-n", namespace]).await;
        all.extend(of(&parse_yaml(&ran.out)?, "Secret").into_iter().cloned());
    }
    let distinct = |field: &dyn Fn(&Value) -> Value| {
        all.iter().map(|secret| field(secret).to_string()).collect::<BTreeSet<_>>().len()
    };
    ensure!(all.len() == 7, "{all:?}");
    // The Receiver for prod was printed twice, the second time for another namespace of the source.
    assert_eq!(distinct(&|s| s["metadata"]["name"].clone()), 6);
    assert_eq!(distinct(&|s| s["stringData"]["token"].clone()), 7);
    ensure!(all.iter().all(|s| s["stringData"]["token"].as_str().is_some_and(|t| t.len() == 64)), "{all:?}");
    let ran = export(&["-e", "notified"]).await;
    ensure!(ran.exit == Exit::Error && ran.err.contains("promotes into no repository"), "{ran:?}");
    Ok(())
}

fn of<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|o| o["kind"] == kind).collect()
}

#[tokio::test]
async fn an_alert_for_each_cluster_and_namespace_ready_to_commit() -> Result<()> {
    let servers = servers().await?;
    servers.hub.namespace("export").await?;
    servers.hub.apply_yaml(PIPELINE).await?;
    let kubeconfig = servers.hub.kubeconfig_path();
    let export = async |more: &[&str]| {
        let first = ["export", "alert", "-n", "export", "--address", "https://sluice.example.com/"];
        sluice_as(&kubeconfig, &[&first, more].concat()).await
    };
    let ran = export(&["podinfo", "-e", "dev"]).await;
    ensure!(ran.exit == Exit::Ok, "{ran:?}");
    ensure!(!ran.out.contains("of 32"), "the key is shown unasked");
    let objects = parse_yaml(&ran.out)?;
    let (providers, alerts) = (of(&objects, "Provider"), of(&objects, "Alert"));
    ensure!(providers.len() == 2 && alerts.len() == 2 && of(&objects, "Secret").len() == 2, "{}", ran.out);
    let provider = providers[0];
    assert_eq!(provider["spec"]["address"], "https://sluice.example.com/promotion/export/podinfo/dev");
    assert_eq!(provider["spec"]["type"], "generic-hmac");
    assert_eq!(provider["spec"]["timeout"], "60s");
    assert_eq!(provider["metadata"], json!({"name": "sluice-export.podinfo.dev", "namespace": "a"}));
    assert_eq!(provider["spec"]["secretRef"]["name"], "sluice-export.podinfo.dev");
    let alert = &alerts[0]["spec"];
    let both = json!([{"kind": "HelmRelease", "name": "podinfo"}, {"kind": "Kustomization", "name": "more"}]);
    assert_eq!(alert["eventSources"], both, "what two targets have in one namespace");
    let metadata = json!({"cluster": "dev-eu", "environment": "dev", "pipeline": "export/podinfo"});
    assert_eq!(alert["eventMetadata"], metadata);
    assert_eq!(alert["providerRef"]["name"], "sluice-export.podinfo.dev");
    assert!(alert["exclusionList"].as_array().is_some_and(|l| l.len() > 2));
    assert_eq!(alerts[1]["spec"]["eventMetadata"].get("cluster"), None, "the hub has no name");

    let objects = parse_yaml(&export(&["podinfo", "-e", "qa"]).await.out)?;
    let named: Vec<&Value> =
        of(&objects, "Alert").iter().map(|alert| &alert["spec"]["eventMetadata"]["cluster"]).collect();
    assert_eq!(named, ["export/qa", "fleet/qa"], "two clusters of one name");

    let ran = export(&["podinfo", "-e", "dev", "--show-key"]).await;
    assert_eq!(of(&parse_yaml(&ran.out)?, "Secret")[0]["stringData"]["token"], "a \"key\": of 32");
    Ok(())
}

#[tokio::test]
async fn missing_keys_and_objects_are_reported() -> Result<()> {
    let servers = servers().await?;
    servers.hub.namespace("export").await?;
    servers.hub.apply_yaml(PIPELINE).await?;
    let kubeconfig = servers.hub.kubeconfig_path();
    let export = async |more: &[&str]| {
        let first = ["export", "alert", "-n", "export", "--address", "https://sluice.example.com"];
        sluice_as(&kubeconfig, &[&first, more].concat()).await
    };
    for (arguments, message) in [
        (&["podinfo", "-e", "prod"][..], "promotion.strategy.secretRef"),
        (&["nothing"], "promotion.strategy.secretRef"),
        (&["podinfo", "-e", "test"], "no environment test"),
        (&["podnifo"], "podinfo"),
        (&["labelled", "--show-key"], "none"),
        (&["edge", "--show-key"], "there is no key report-key.edge-3 in Secret hook"),
    ] {
        let ran = export(arguments).await;
        ensure!(ran.exit != Exit::Ok && ran.err.contains(message), "{arguments:?}: {ran:?}");
        ensure!(ran.out.is_empty(), "{arguments:?}: half a file: {}", ran.out);
    }
    // Environments without a key are left out, with a comment.
    let ran = export(&["podinfo"]).await;
    ensure!(
        ran.exit == Exit::Ok
            && ran.out.contains("# Environment prod of pipeline export/podinfo has no hmac-key"),
        "{ran:?}"
    );
    assert_eq!(of(&parse_yaml(&ran.out)?, "Alert").len(), 4);
    // A cluster with `observe: Push` has its own key, and gets no other.
    let ran = export(&["edge", "-e", "edge", "--show-key"]).await;
    ensure!(ran.exit == Exit::Ok, "{ran:?}");
    let objects = parse_yaml(&ran.out)?;
    let tokens: Vec<&Value> = of(&objects, "Secret").iter().map(|s| &s["stringData"]["token"]).collect();
    assert_eq!(tokens, ["first", "a \"key\": of 32", "second"]);
    // The key of a following environment is also accepted for an environment.
    let ran = export(&["later", "--show-key"]).await;
    ensure!(ran.exit == Exit::Ok, "{ran:?}");
    let objects = parse_yaml(&ran.out)?;
    let tokens: Vec<&Value> = of(&objects, "Secret").iter().map(|s| &s["stringData"]["token"]).collect();
    assert_eq!(tokens, ["a \"key\": of 32", "a \"key\": of 32"]);
    let ran = export(&["labelled"]).await;
    let objects = parse_yaml(&ran.out)?;
    let sources = &of(&objects, "Alert")[0]["spec"]["eventSources"];
    for (kind, label) in [
        ("HelmRelease", "pipelines.weave.works/pipeline"),
        ("Kustomization", "pipelines.wego.weave.works/pipeline"),
        ("HelmRelease", "pipelines.wego.weave.works/name"),
    ] {
        let source = json!({"kind": kind, "name": "*", "matchLabels": {label: "labelled"}});
        ensure!(sources.as_array().is_some_and(|all| all.contains(&source)), "{source}: {sources}");
    }
    assert_eq!(sources.as_array().map(Vec::len), Some(6));
    Ok(())
}
