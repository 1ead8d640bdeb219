//! `sluice check`: the findings on a real API server, for an administrator, without the definitions, and without rights.

use anyhow::Result;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_cli::Exit;
use sluice_testkit::{KubeletStandIn, WAIT_TIMEOUT, eventually};

use crate::hub::{Ran, TestNamespace, place, running, servers, sluice_as};

/// Runs `sluice check` in a namespace that is also the controller's.
async fn check(place: &TestNamespace, more: &[&str]) -> Ran {
    place.sluice(&[&["check", "--system-namespace", &place.namespace], more].concat()).await
}

/// Creates the Lease of a shard, which its holder renewed this many seconds ago.
async fn lease(place: &TestNamespace, holder: Option<&str>, seconds: i64) -> Result<()> {
    let renewed = Timestamp::from_second(Timestamp::now().as_second() - seconds)?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "sluice.shard-0", "namespace": place.namespace,
            "labels": {"app.kubernetes.io/part-of": "sluice"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": format!("{renewed:.6}")},
    });
    servers().await?.hub.apply_yaml(&lease.to_string()).await.map(drop)
}

async fn apply(objects: &[Value]) -> Result<()> {
    for object in objects {
        servers().await?.hub.apply_yaml(&object.to_string()).await?;
    }
    Ok(())
}

fn cluster(place: &TestNamespace, name: &str, secret: &str) -> Value {
    json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
        "metadata": {"name": name, "namespace": place.namespace}, "spec": {"secretRef": {"name": secret}}})
}

fn secret(place: &TestNamespace, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": place.namespace}, "stringData": data})
}

fn kubeconfig(cluster: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )
}

/// Returns the lines below a heading.
fn topic(ran: &Ran, heading: &str) -> String {
    let lines = ran.out.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.starts_with(' ')).map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn a_healthy_installation_has_no_errors() -> Result<()> {
    let place = place("check-good").await?;
    servers().await?.hub.install_flux_crds().await?;
    lease(&place, Some("sluice-a"), 1).await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    let good = kubeconfig("server: 'https://eu.example.com:6443'");
    apply(&[
        secret(&place, "dev-kubeconfig", json!({"value": good})),
        cluster(&place, "dev", "dev-kubeconfig"),
        cluster(&place, "prod", "dev-kubeconfig"),
    ])
    .await?;
    let ran = check(&place, &[]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Ok, "✔ no errors, 2 warnings\n"), "{}", ran.out);
    insta::assert_snapshot!(ran.out, @"
    Definitions
      ✔ the definition pipelines.pipelines.weave.works is that of this version
      ✔ the definition promotions.pipelines.weave.works is that of this version
      ✔ the admission policy decides who may approve
    Controller
      ✔ sluice-a acts for sluice.shard-0
    Your rights
      ! admin may not use trace, charts --fleet, images --fleet, clusters --fleet: the controller's API needs a token, and you sign in at the hub without one
        ► use a context of the kubeconfig with a token, such as one of kubectl create token: docs/fleet.md#reach-the-controller
      ✔ admin may use get, status, explain, history, -w and --wait, approve, reject, retry, suspend, resume, events in namespace check-good
    Clusters
      ! not checked: whether the controller can read the clusters, and which Flux they run; the controller's API needs a token, and you sign in at the hub without one
        ► use a context of the kubeconfig with a token, such as one of kubectl create token
      ✔ GitopsCluster check-good/dev leads to https://eu.example.com:6443/
      ✔ GitopsCluster check-good/prod leads to https://eu.example.com:6443/
    Flux
      ✔ Flux is installed on this cluster; its definitions do not say the version
    Pipelines
      ✔ 1 of 1 pipelines in namespace check-good are Ready, and their statuses are up to date
    Clocks
      ✔ the clock of this machine agrees with the API server's
    ");
    let quiet = check(&place, &["--quiet"]).await;
    assert!(quiet.exit == Exit::Ok && !quiet.out.contains('✔'), "{}", quiet.out);
    Ok(())
}

#[tokio::test]
async fn a_delivery_that_fails_is_an_error() -> Result<()> {
    let place = place("check-failing").await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.5")).await?;
    let why = "no file has the marker check-failing:podinfo:prod";
    let status = json!({"phase": "Promoting", "reason": "NoMarker", "message": why, "attempts": 3});
    place.promotion("podinfo-prod-1", "prod", status).await?;
    let ran = check(&place, &["-q"]).await;
    assert_eq!(ran.exit, Exit::Faulty, "{ran:?}");
    insta::assert_snapshot!(topic(&ran, "Pipelines"), @"
    ✗ the delivery of 6.1.8 into prod of pipeline check-failing/podinfo fails (NoMarker, tried 3 times): no file has the marker check-failing:podinfo:prod
      ► sluice explain podinfo -n check-failing -e prod
    ");
    Ok(())
}

#[tokio::test]
async fn only_a_caller_with_a_token_asks_the_controller() -> Result<()> {
    let mut place = place("check-asked").await?;
    let hub = &servers().await?.hub;
    let name = &place.namespace;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("kubeconfig"), hub.service_account(name, "admin").await?)?;
    place.kubeconfig = folder.path().join("kubeconfig");
    let api_group = "rbac.authorization.k8s.io";
    apply(&[
        json!({"apiVersion": format!("{api_group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": name}]}),
        secret(&place, "dev-kubeconfig", json!({"value": kubeconfig("server: 'https://eu.example.com:6443'")})),
        cluster(&place, "dev", "dev-kubeconfig"),
    ])
    .await?;
    let answer = async |more: &[&str], expected: &str| {
        // The API server reads new permissions by a watch, a moment later.
        eventually(WAIT_TIMEOUT, || async {
            let ran = check(&place, more).await;
            let found = topic(&ran, "Clusters");
            anyhow::ensure!(found.lines().any(|line| line.contains(expected)), "{found}{}", ran.err);
            Ok(())
        })
        .await
    };
    let question = "whether the controller can read the clusters, and which Flux they run";
    answer(&[], &format!("! not checked: {question}; no pod of the controller is in")).await?;
    let server = &["--server", "http://127.0.0.1:1"];
    answer(server, "the controller's API at http://127.0.0.1:1/: cannot be reached").await?;
    // An address of the API needs no rights for a port-forward.
    assert!(!check(&place, server).await.out.contains("--fleet"));
    let user = format!("system:serviceaccount:{name}:admin");
    let why = "answers for the user of the token, and you act as another user";
    answer(&["--as", &user], &format!("! not checked: {question}; the controller's API {why}")).await?;
    let node = KubeletStandIn::start(hub, name).await?;
    node.controller_pod(name, "sluice", &["controller", "--api-addr=0"], true).await?;
    answer(&[], &format!("! not checked: {question}; the controller has no API: it runs with --api-addr=0"))
        .await
}

/// A namespace with a Lease that is not renewed, and faults in clusters, Secrets and pipelines.
async fn faulty() -> Result<TestNamespace> {
    let place = place("check-bad").await?;
    servers().await?.hub.install_flux_crds().await?;
    lease(&place, Some("sluice-a"), 600).await?;
    let mut status = running("6.1.8", "6.1.8");
    status["conditions"][0]["status"] = "False".into();
    status["conditions"][0]["reason"] = "TargetsUnknown".into();
    status["conditions"][0]["message"] = "cluster dev cannot be reached".into();
    status["observedGeneration"] = 0.into();
    place.pipeline("podinfo", status).await?;
    let commit = json!({"commit": {"url": "ssh://git@git.example.com/fleet.git", "secretRef": {"name": "fleet-git"}},
        "secretRef": {"name": "hooks"}});
    let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "search", "namespace": place.namespace},
        "spec": {"promotion": {"strategy": commit}, "environments": [{"name": "dev", "targets": [{"namespace": "search"}]}]}});
    apply(&[
        pipeline,
        secret(&place, "fleet-git", json!({"identity": "k", "token": "very-secret"})),
        secret(&place, "old-kubeconfig", json!({"value": kubeconfig("server: 'http://eu.example.com'")})),
        cluster(&place, "dev", "old-kubeconfig"),
        cluster(&place, "us", "us-kubeconfig"),
    ])
    .await?;
    Ok(place)
}

#[tokio::test]
async fn each_fault_is_an_error_with_its_fix() -> Result<()> {
    let place = faulty().await?;
    let ran = check(&place, &["-q"]).await;
    assert_eq!(ran.exit, Exit::Faulty);
    assert!(!ran.out.contains("very-secret"), "{}", ran.out);
    insta::assert_snapshot!(topic(&ran, "Controller"), @"
    ✗ sluice-a has not renewed the Lease sluice.shard-0 for 10 minutes: nothing is promoted
      ► kubectl get pods -n check-bad; kubectl logs -n check-bad deployment/sluice
    ");
    insta::assert_snapshot!(topic(&ran, "Clusters"), @"
    ✗ the kubeconfig of GitopsCluster check-bad/dev (Secret old-kubeconfig) has a server that is not https, which the controller refuses
      ► docs/operations.md#add-a-cluster
    ✗ GitopsCluster check-bad/prod does not exist, but pipelines name it: check-bad/podinfo
      ► docs/operations.md#add-a-cluster
    ✗ Secret check-bad/us-kubeconfig of GitopsCluster check-bad/us does not exist
      ► kubectl create secret generic us-kubeconfig -n check-bad --from-file=value=KUBECONFIG; see docs/operations.md#add-a-cluster
    ! not checked: whether the controller can read the clusters, and which Flux they run; the controller's API needs a token, and you sign in at the hub without one
      ► use a context of the kubeconfig with a token, such as one of kubectl create token
    ");
    insta::assert_snapshot!(topic(&ran, "Secrets"), @"
    ✗ Secret check-bad/fleet-git (for the strategy commit of pipeline search) has no key known_hosts
      ► docs/strategies/commit.md#the-secret
    ✗ Secret check-bad/hooks (for the hooks of pipeline search) does not exist
      ► create it: docs/hooks.md#create-the-keys
    ");
    insta::assert_snapshot!(topic(&ran, "Pipelines"), @"
    ✗ pipeline check-bad/podinfo is not Ready (TargetsUnknown): cluster dev cannot be reached
      ► sluice explain podinfo -n check-bad
    ✗ pipeline check-bad/search has no status: no controller has looked at it
      ► see the findings about the controller
    ! the status of pipeline check-bad/podinfo is about generation 0, and the Pipeline has generation 1
      ► if this lasts: kubectl logs -n sluice-system deployment/sluice
    ");

    let ran = check(&place, &["-o", "json"]).await;
    assert_eq!(ran.exit, Exit::Faulty);
    let data: Value = serde_json::from_str(&ran.out)?;
    assert_eq!(
        (&data["apiVersion"], &data["kind"]),
        (&json!("view.pipelines.weave.works/v1alpha1"), &json!("Check"))
    );
    assert_eq!(data["view"]["findings"][0]["topic"], "definitions");
    assert!(data["view"]["errors"].as_u64() > Some(5), "{data}");
    Ok(())
}

#[tokio::test]
async fn without_the_definitions_the_fix_installs_them() -> Result<()> {
    let bare = servers().await?.bare.kubeconfig_path();
    let ran = sluice_as(&bare, &["check"]).await;
    assert_eq!(ran.exit, Exit::Faulty, "{ran:?}");
    insta::assert_snapshot!(ran.out, @"
    Definitions
      ✗ the kinds Pipeline and Promotion are not installed in this cluster
        ► sluice crds | kubectl apply --server-side -f -
    Controller
      ✗ no controller was found in namespace sluice-system
        ► kubectl apply --server-side -k deploy; if it runs elsewhere, name its namespace with --system-namespace
    Clocks
      ✔ the clock of this machine agrees with the API server's
    ");
    assert_eq!(ran.err, "✗ 2 errors, no warnings\n");
    Ok(())
}

#[tokio::test]
async fn a_missing_right_is_a_finding() -> Result<()> {
    let place = place("check-rights").await?;
    servers().await?.hub.install_flux_crds().await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, servers().await?.hub.user("guest", None)?)?;
    let ran = sluice_as(&path, &["check", "-n", &place.namespace]).await;
    assert_eq!(ran.exit, Exit::Faulty, "{ran:?}");
    insta::assert_snapshot!(ran.out, @"
    Definitions
      ! not checked: whether the definitions are those of this version; you lack get on customresourcedefinitions.apiextensions.k8s.io
        ► run the check as somebody with this right, or ask the cluster's administrator for it
      ! not checked: whether the admission policy is in force; you lack get on validatingadmissionpolicies.admissionregistration.k8s.io
        ► run the check as somebody with this right, or ask the cluster's administrator for it
    Controller
      ! not checked: the Deployment of the controller; you lack list on deployments.apps in namespace sluice-system
        ► run the check as somebody with this right, or ask the cluster's administrator for it
      ! not checked: whether a replica of the controller acts; you lack list on leases.coordination.k8s.io in namespace sluice-system
        ► run the check as somebody with this right, or ask the cluster's administrator for it
    Your rights
      ✗ guest may not use get, status, explain, history in namespace check-rights: this needs get, list on pipelines.pipelines.weave.works and get, list on promotions.pipelines.weave.works
        ► ask for the ClusterRole sluice-viewer: docs/approvals.md#decide-who-may
      ! guest may not use -w and --wait in namespace check-rights: this needs watch on pipelines.pipelines.weave.works and watch on promotions.pipelines.weave.works
        ► ask for the ClusterRole sluice-viewer: docs/approvals.md#decide-who-may
      ! guest may not use approve, reject in namespace check-rights: this needs patch, approve on promotions.pipelines.weave.works
        ► ask for the ClusterRole sluice-approver: docs/approvals.md#decide-who-may
      ! guest may not use retry in namespace check-rights: this needs patch, retry on promotions.pipelines.weave.works
        ► ask for the ClusterRole sluice-editor: docs/approvals.md#decide-who-may
      ! guest may not use suspend, resume in namespace check-rights: this needs patch on pipelines.pipelines.weave.works
        ► ask for the ClusterRole sluice-editor: docs/approvals.md#decide-who-may
      ! guest may not use events in namespace check-rights: this needs list on events
        ► ask for the ClusterRole view
      ! guest may not use trace, charts --fleet, images --fleet, clusters --fleet: this needs list on pods and get, create on pods/portforward in namespace sluice-system
        ► ask for the ClusterRole sluice-api-client in namespace sluice-system: docs/fleet.md#reach-the-controller
    Flux
      ! not checked: the version of Flux; you lack get on customresourcedefinitions.apiextensions.k8s.io
        ► run the check as somebody with this right, or ask the cluster's administrator for it
      ! not checked: the Deployments of Flux; you lack list on deployments.apps in all namespaces
        ► run the check as somebody with this right, or ask the cluster's administrator for it
    Hooks
      ! not checked: Providers of Flux; you lack list on providers.notification.toolkit.fluxcd.io in namespace check-rights
        ► run the check as somebody with this right, or ask the cluster's administrator for it
      ! not checked: Alerts of Flux; you lack list on alerts.notification.toolkit.fluxcd.io in namespace check-rights
        ► run the check as somebody with this right, or ask the cluster's administrator for it
      ! not checked: Receivers of Flux; you lack list on receivers.notification.toolkit.fluxcd.io in namespace check-rights
        ► run the check as somebody with this right, or ask the cluster's administrator for it
    Pipelines
      ! not checked: pipelines in namespace check-rights; you lack list on pipelines.pipelines.weave.works in namespace check-rights
        ► run the check as somebody with this right, or ask the cluster's administrator for it
    Clocks
      ✔ the clock of this machine agrees with the API server's
    ");
    Ok(())
}

/// Returns a pipeline that sets values of prod in a repository.
fn with_repository(place: &TestNamespace, name: &str, repository: &str) -> Value {
    json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
    "metadata": {"name": name, "namespace": place.namespace},
    "spec": {
        "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": name},
        "promotion": {"strategy": {"commit": {"url": repository}}},
        "environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}, {"name": "prod", "targets": [{"namespace": "prod"}]}],
    }})
}

#[tokio::test]
async fn a_checkout_is_searched_for_the_values_of_its_repository() -> Result<()> {
    let place = place("check-values").await?;
    let repositories = ["https://git.example.com/fleet", "https://git.example.com/other"];
    apply(&[with_repository(&place, "podinfo", repositories[0])]).await?;
    let folder = tempfile::tempdir()?;
    let checkout = folder.path().to_string_lossy().into_owned();
    let values = async |more: &[&str]| check(&place, &[&["--checkout", &checkout], more].concat()).await;
    let marker = format!("{{\"$promotion\": \"{}:podinfo:prod\"}}", place.namespace);

    let ran = values(&[]).await;
    let found = topic(&ran, "Values in the checkout");
    assert!(
        found.contains("✗ prod of pipeline check-values") && found.contains(&marker),
        "{found}{}",
        ran.err
    );
    assert!(found.contains("► docs/setting-values.md"), "{found}");
    assert_eq!(ran.exit, Exit::Faulty);

    std::fs::write(folder.path().join("prod.yaml"), format!("version: 6.1.5 # {marker}\n"))?;
    let found = topic(&values(&[]).await, "Values in the checkout");
    assert_eq!(found, format!("  ✔ {} has 1 value to set, for 1 environment\n", repositories[0]));

    apply(&[with_repository(&place, "same", "https://git.example.com/fleet.git")]).await?;
    std::fs::write(
        folder.path().join("same.yaml"),
        format!("v: 1 # {}\n", marker.replace("podinfo", "same")),
    )?;
    let found = topic(&values(&[]).await, "Values in the checkout");
    assert_eq!(found, format!("  ✔ {} has 2 values to set, for 2 environments\n", repositories[0]));

    apply(&[with_repository(&place, "search", repositories[1])]).await?;
    let ran = values(&[]).await;
    assert_eq!(ran.exit, Exit::Usage, "{}", ran.err);
    assert!(
        ran.err.contains("add --repository and one of https://git.example.com/fleet, https"),
        "{}",
        ran.err
    );
    let found = topic(&values(&["--repository", repositories[0]]).await, "Values in the checkout");
    assert!(
        found.contains("✔") && found.contains(&format!("! not checked: the values in {}", repositories[1])),
        "{found}"
    );
    let ran = values(&["--repository", "https://git.example.com/none"]).await;
    assert_eq!(ran.exit, Exit::NotFound, "{}", ran.err);

    // Who may not read the pipelines learns that.
    let nobody = servers().await?.hub.user("nobody", None)?;
    let kubeconfig = folder.path().join("nobody");
    std::fs::write(&kubeconfig, nobody)?;
    let ran = sluice_as(&kubeconfig, &["check", "-n", &place.namespace, "--checkout", &checkout]).await;
    assert!(
        ran.out.contains("not checked: pipelines") && !ran.out.contains("Values"),
        "{}{}",
        ran.out,
        ran.err
    );
    Ok(())
}

#[tokio::test]
async fn a_hook_with_a_wrong_address_or_without_its_key_is_found() -> Result<()> {
    let place = place("check-hooks").await?;
    servers().await?.hub.install_flux_crds().await?;
    lease(&place, Some("sluice-a"), 1).await?;
    place.pipeline("podinfo", running("6.1.8", "6.1.8")).await?;
    let metadata = |name: &str| json!({"name": name, "namespace": place.namespace});
    let commit = json!({"url": "https://git.example.com/team/fleet.git", "branch": "main"});
    let strategy = json!({"strategy": {"secretRef": {"name": "hooks"}, "commit": commit}});
    let pipelines: Api<Pipeline> = Api::namespaced(place.client.clone(), &place.namespace);
    let patch = Patch::Merge(json!({"spec": {"promotion": strategy}}));
    pipelines.patch("podinfo", &PatchParams::default(), &patch).await?;
    let provider = |name: &str, pipeline: &str, secret: &str| {
        let address = format!("https://sluice.example.com/promotion/{}/{pipeline}/dev", place.namespace);
        json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "metadata": metadata(name),
            "spec": {"type": "generic-hmac", "address": address, "secretRef": {"name": secret}}})
    };
    let alert = |provider: &str| {
        json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert", "metadata": metadata(provider),
            "spec": {"providerRef": {"name": provider}, "eventSources": [{"kind": "HelmRelease", "name": "*"}]}})
    };
    apply(&[
        secret(&place, "hooks", json!({"hmac-key": "secret"})),
        secret(&place, "signing", json!({"token": "secret"})),
        provider("good", "podinfo", "signing"),
        alert("good"),
        provider("keyless", "podinfo", "hooks"),
        alert("keyless"),
        provider("lonely", "podinfo", "signing"),
        provider("typo", "podinf", "signing"),
        alert("typo"),
    ])
    .await?;
    let ran = check(&place, &[]).await;
    assert_eq!(ran.exit, Exit::Faulty, "{ran:?}");
    insta::assert_snapshot!(topic(&ran, "Hooks"), @"
    ✗ the calls of Provider check-hooks/keyless about dev of pipeline check-hooks/podinfo fail: its Secret check-hooks/hooks has no key token, which signs them
      ► print it again: sluice export alert podinfo -n check-hooks -e dev --address URL --show-key
    ✗ Provider check-hooks/typo calls Sluice about pipeline check-hooks/podinf, which does not exist
      ► correct its spec.address to that of podinfo, or delete it
    ! Provider check-hooks/lonely sends nothing about dev of pipeline check-hooks/podinfo: no Alert in its namespace names it
      ► print one: sluice export alert PIPELINE -n NS --address URL; or delete the Provider
    ✔ Provider check-hooks/good calls Sluice about dev of pipeline check-hooks/podinfo, and signs its calls
    ");
    Ok(())
}
