//! Commands that ask the controller without `--server`: a port-forward through the API server of the hub, with the rights
//! of the user, to a real controller.

use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluice_testkit::json_schema::differences;
use sluice_testkit::{KubeletStandIn, Scratch};

use crate::api::User;
use crate::place::{SOON, TestNamespace};
use crate::process::Controller;
use crate::{releases, run};

/// A right in the namespace of the controller.
fn right(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
}

/// The rules of the ClusterRole `sluice-api-client`.
fn rules_of_role() -> Result<Value> {
    let people = include_str!("../../../../deploy/people.yaml");
    let roles = sluice_testkit::parse_yaml(people)?;
    let role = roles.into_iter().find(|role| role["metadata"]["name"] == "sluice-api-client");
    Ok(role.context("deploy/people.yaml has no sluice-api-client")?["rules"].clone())
}

/// Returns a kubeconfig that gets the token of this one from a program. Each run adds a line to a file.
fn with_program(kubeconfig: &str, runs: &Path) -> Result<String> {
    let mut value: Value = sluice_testkit::parse_yaml(kubeconfig)?.pop().context("no kubeconfig")?;
    let user = &mut value["users"][0]["user"];
    let credential = json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
        "status": {"token": user["token"], "expirationTimestamp": "2999-01-01T00:00:00Z"}});
    let script = format!("echo run >> '{}'; echo '{credential}'", runs.display());
    *user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", script]}});
    Ok(value.to_string())
}

/// Checks data of a command against the JSON Schema of its kind.
fn is_described(data: &str) -> Result<()> {
    let (data, schema): (Value, _) = (serde_json::from_str(data)?, sluice_cli::json_schema());
    let documents = schema["oneOf"].as_array().context("no documents")?;
    let described = documents.iter().find(|document| document["title"] == data["kind"]);
    let mut found = Vec::new();
    differences(&schema, described.context("no such kind")?, &data, "", &mut found);
    ensure!(data["view"].as_array().is_some_and(|rows| !rows.is_empty()), "{data}");
    ensure!(found.is_empty(), "{found:#?}");
    Ok(())
}

#[test]
fn without_server_the_controller_is_asked_through_the_hub() -> Result<()> {
    run(async {
        let place = TestNamespace::new("tunnel").await?;
        let n = place.namespace.clone();
        releases::create_running(place.leaf("prod"), &n, "podinfo", "6.1.5").await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let api = format!("--api-addr={address}");
        let controller = Controller::start(&place.shared.hub, &n, &[&api, "--observe=all"])?;
        let node = KubeletStandIn::start(&place.shared.hub, &n).await?;
        node.controller_pod(&n, "first-starting", &["controller", "--api-addr=127.0.0.1:1"], false).await?;
        node.controller_pod(&n, "running", &["controller", &api], true).await?;

        let clusters = json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"],
            "resourceNames": ["prod"]});
        let reach = ["--system-namespace", n.as_str()];
        let mut rules = rules_of_role()?;
        rules.as_array_mut().context("no rules")?.push(clusters);
        let jane = User::new(&place, "jane", reach, rules).await?;
        let hub = &place.shared.hub;
        let server = format!("http://{address}");
        let local = User::with(&hub.service_account(&n, "jane").await?, ["--server", &server])?;

        let on = format!("{n}/prod");
        for command in [
            &["charts", "--fleet"][..],
            &["clusters", "--fleet"],
            &["trace", "helmrelease/podinfo", "--on", &on],
        ] {
            let args = [command, &["-n", &n, "-o", "json"]].concat();
            let described = || async { is_described(&jane.until(&args, &["kind"]).await?) };
            sluice_testkit::eventually(SOON, described).await.with_context(|| controller.tail())?;
        }
        for (args, part) in [
            (&["charts", "--fleet", "-n", &n][..], "6.1.5"),
            (&["clusters", "--fleet", "-n", &n], "Up"),
            (&["trace", "helmrelease/podinfo", "-n", &n, "--on", &on, "-o", "json"], "HelmRelease/podinfo"),
        ] {
            // The API server reads new roles by a watch, a moment later. Other tests create objects on the cluster.
            let same = || async {
                let expected = local.until(args, &[part]).await?;
                let seen = jane.until(args, &[part]).await?;
                ensure!(seen == expected, "{args:?}: {seen} is not {expected}");
                Ok(())
            };
            sluice_testkit::eventually(SOON, same).await.with_context(|| controller.tail())?;
        }
        let (code, _, err) = jane.sluice(&["trace", "helmrelease/shop", "-n", &n, "--on", &on])?;
        ensure!(code == 3 && err.contains("or you may not get it"), "{code} {err}");

        check_asks_the_controller(&place, &on).await?;
        // The workload of the check has an image.
        let images = || async {
            is_described(
                &jane.until(&["images", "--fleet", "-n", &n, "-o", "json"], &["helm-controller"]).await?,
            )
        };
        sluice_testkit::eventually(SOON, images).await.with_context(|| controller.tail())?;

        // A login program runs once: it may ask the person, or be slow.
        let runs = Scratch::new("login-program")?;
        let runs = runs.path().join("runs");
        let logs_in = User::with(&with_program(&hub.service_account(&n, "jane").await?, &runs)?, reach)?;
        let (code, out, err) = logs_in.sluice(&["clusters", "--fleet", "-n", &n])?;
        let count = std::fs::read_to_string(&runs)?.lines().count();
        ensure!(code == 0 && out.contains("Up") && count == 1, "{count} runs: {code} {out}{err}");

        // A certificate reaches the pod, but the API needs a token.
        let certificate = User::with(&hub.kubeconfig(), reach)?;
        let (code, _, err) = certificate.sluice(&["charts", "--fleet"])?;
        ensure!(code == 4 && err.contains("has no token"), "{code} {err}");
        Ok(())
    })
}

/// `sluice check` says which Flux runs on a cluster, as far as the controller has observed it.
async fn check_asks_the_controller(place: &TestNamespace, on: &str) -> Result<()> {
    let n = &place.namespace;
    let labels = json!({"app": "helm-controller"});
    let containers = json!([{"name": "manager", "image": "ghcr.io/fluxcd/helm-controller:v1.4.3"}]);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "helm-controller", "namespace": n},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}});
    place.leaf("prod").apply_yaml(&deployment.to_string()).await?;
    let clusters = json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get", "list"]});
    let mut rules = rules_of_role()?;
    rules.as_array_mut().context("no rules")?.push(clusters);
    let user = User::new(place, "doctor", ["--system-namespace", n], rules).await?;
    let parts = [
        format!("✔ {on} runs helm-controller 1.4.3"),
        format!("! helm-controller before 1.5 on {on} does not list"),
        format!("! deployment/helm-controller in namespace {n} on {on} is Progressing"),
        "may use trace, charts --fleet, images --fleet, clusters --fleet\n".to_string(),
    ];
    sluice_testkit::eventually(SOON, || async {
        // The user may not read pipelines, for example: other findings do not matter here.
        let (_, out, err) = user.sluice(&["check", "-n", n])?;
        ensure!(parts.iter().all(|part| out.contains(part)), "{out}{err}");
        Ok(())
    })
    .await
}

#[test]
fn each_missing_right_is_named() -> Result<()> {
    run(async {
        let place = TestNamespace::new("tunnel-rights").await?;
        let n = place.namespace.clone();
        let node = KubeletStandIn::start(&place.shared.hub, &n).await?;
        node.controller_pod(&n, "sluice", &["controller", "--api-addr=127.0.0.1:1"], true).await?;
        let reach = ["--system-namespace", n.as_str()];
        let list = right("pods", &["list"]);
        for (name, rules, lack) in [
            ("nothing", json!([]), "list on pods"),
            ("lists", json!([list]), "get on pods/portforward"),
            ("gets", json!([list, right("pods/portforward", &["get"])]), "create on pods/portforward"),
            ("creates", json!([list, right("pods/portforward", &["create"])]), "get on pods/portforward"),
        ] {
            let user = User::new(&place, name, reach, rules).await?;
            let sentence = format!("you lack {lack} in namespace {n}: ");
            sluice_testkit::eventually(SOON, || async {
                let (code, out, err) = user.sluice(&["clusters", "--fleet"])?;
                ensure!(code == 4 && out.is_empty(), "{name}: {code} {out}{err}");
                ensure!(
                    err.contains(&sentence) && err.contains("ClusterRole sluice-api-client"),
                    "{name}: {err}"
                );
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
}

#[test]
fn an_api_that_cannot_be_reached_says_why() -> Result<()> {
    run(async {
        let place = TestNamespace::new("tunnel-broken").await?;
        let hub = &place.shared.hub;
        let node = KubeletStandIn::start(hub, &place.namespace).await?;
        let lost = KubeletStandIn::start(hub, &format!("{}-lost", place.namespace)).await?;
        let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let namespace = |state: &str| format!("{}-{state}", place.namespace);
        for (state, node, address, ready) in [
            ("starting", &node, "127.0.0.1:8083", false),
            ("off", &node, "0", true),
            ("refused", &node, &*closed, true),
            ("lost", &lost, "127.0.0.1:8083", true),
        ] {
            hub.namespace(&namespace(state)).await?;
            let api = format!("--api-addr={address}");
            node.controller_pod(&namespace(state), "sluice", &["controller", &api], ready).await?;
        }
        drop(lost);
        for (state, parts) in [
            (
                "absent",
                &["no pod of the controller is in namespace", "--system-namespace", "kubectl apply"][..],
            ),
            ("starting", &["is ready", "kubectl describe pods"]),
            ("off", &["--api-addr=0"]),
            ("refused", &["sluice: error forwarding port", "refused", "--api-addr in the Deployment"]),
            ("lost", &["cannot forward a port to pod", "error dialing backend", "kubectl port-forward -n"]),
        ] {
            let user = User::with(&hub.kubeconfig(), ["--system-namespace", &namespace(state)])?;
            let (code, out, err) = user.sluice(&["clusters", "--fleet"])?;
            let complete = parts.iter().all(|part| err.contains(part)) && err.contains(&namespace(state));
            ensure!(
                code == 4 && out.is_empty() && complete && err.lines().count() == 2,
                "{state}: {code} {out}{err}"
            );
        }
        Ok(())
    })
}
