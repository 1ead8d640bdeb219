//! The API of a real controller, asked by users with different rights: what each one sees is what RBAC of the hub allows.

use std::net::TcpListener;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use serde_json::{Value, json};
use sluice_testkit::{Scratch, eventually};

use crate::page::{Person, rule};
use crate::place::{SOON, TestNamespace};
use crate::process::Controller;
use crate::{people, releases, run};

/// A user of the hub, with a kubeconfig.
pub(crate) struct User {
    kubeconfig: Scratch,
    /// The flags that say how commands reach the controller.
    reach: Vec<String>,
}

impl User {
    /// Creates a user that may do what these rules say, in the test's namespace.
    pub(crate) async fn new(
        place: &TestNamespace,
        name: &str,
        reach: [&str; 2],
        rules: Value,
    ) -> Result<User> {
        let n = &place.namespace;
        let text = place.shared.hub.service_account(n, name).await?;
        people::allow(place, name, rules).await?;
        User::with(&text, reach)
    }

    /// Returns a user with this kubeconfig.
    pub(crate) fn with(kubeconfig: &str, reach: [&str; 2]) -> Result<User> {
        let scratch = Scratch::new("user")?;
        std::fs::write(scratch.path().join("config"), kubeconfig)?;
        Ok(User { kubeconfig: scratch, reach: reach.map(str::to_owned).into() })
    }

    /// Runs a command as this user, and returns its exit code, output and errors.
    pub(crate) fn sluice(&self, args: &[&str]) -> Result<(i32, String, String)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(args).args(&self.reach).arg("--kubeconfig").arg(self.kubeconfig.path().join("config"));
        let output = command.env("NO_COLOR", "1").env_remove("SLUICE_SERVER").output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr)))
    }

    /// Waits until a command succeeds with an output that has all of these parts.
    pub(crate) async fn until(&self, args: &[&str], parts: &[&str]) -> Result<String> {
        eventually(SOON, || async {
            let (code, out, err) = self.sluice(args)?;
            ensure!(code == 0 && parts.iter().all(|part| out.contains(part)), "{args:?}: {code}: {out}{err}");
            Ok(out)
        })
        .await
    }
}

#[test]
fn each_user_sees_the_clusters_and_objects_that_rbac_allows() -> Result<()> {
    run(async {
        let place = TestNamespace::new("api").await?;
        let n = place.namespace.clone();
        for leaf in ["dev", "prod"] {
            releases::create(place.leaf(leaf), &n, "podinfo", json!({})).await?;
            releases::runs(
                place.leaf(leaf),
                &n,
                "podinfo",
                if leaf == "dev" { "6.1.6" } else { "6.1.5" },
                true,
            )
            .await?;
        }
        releases::create_running(&place.shared.hub, &n, "shop", "1.0.0").await?;
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "by-hand", "namespace": n},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "x", "image": "nginx:1.27.0"}]}}}});
        place.leaf("prod").apply_yaml(&deployment.to_string()).await?;

        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let api = format!("--api-addr={address}");
        let controller = Controller::start(&place.shared.hub, &n, &[&api, "--observe=all"])?;
        let address = format!("http://{address}");
        let server = ["--server", &*address];
        let clusters = |names: &[&str]| {
            json!({"apiGroups": ["gitops.weave.works"], "resources": ["gitopsclusters"], "verbs": ["get"],
                "resourceNames": names})
        };
        let releases =
            json!({"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": ["get"]});
        let prod = User::new(&place, "prod", server, json!([clusters(&["prod"])])).await?;
        let both = User::new(&place, "both", server, json!([clusters(&["dev", "prod"]), releases])).await?;
        let nobody = User::new(&place, "nobody", server, json!([])).await?;

        // No pipeline names any of the clusters.
        let charts = ["charts", "--fleet", "-n", &n];
        let seen = both.until(&charts, &["6.1.6", "6.1.5", "shop"]).await;
        let seen = seen.with_context(|| controller.tail())?;
        ensure!(seen.contains(&format!("{n}/dev")) && seen.contains("hub"), "{seen}");
        let seen = prod.until(&charts, &["6.1.5"]).await?;
        ensure!(!seen.contains("6.1.6") && !seen.contains("shop"), "{seen}");
        let (code, out, err) = nobody.sluice(&charts)?;
        ensure!(
            code == 0 && out.is_empty() && err.contains("you need the right to get its GitopsCluster"),
            "{code} {out}{err}"
        );

        let clusters = ["clusters", "--fleet", "-n", &n];
        both.until(&clusters, &[&format!("{n}/dev"), "Up"]).await?;

        let seen =
            prod.until(&["images", "nginx", "--fleet", "-n", &n], &["Deployment/by-hand", "1.27.0"]).await?;
        ensure!(seen.lines().count() == 2, "{seen}");

        let on = format!("{n}/prod");
        let trace = ["trace", "helmrelease/podinfo", "-n", &n, "--on", &on];
        prod.until(
            &trace,
            &["HelmRelease/podinfo", "Desired:", "Actual:         6.1.5", "HelmRepository/podinfo"],
        )
        .await?;
        for user in [&nobody, &prod] {
            let (code, _, err) = user.sluice(&["trace", "helmrelease/shop", "-n", &n])?;
            ensure!(code == 3 && err.contains("or you may not get it"), "{code} {err}");
        }
        both.until(&["trace", "helmrelease/shop", "-n", &n], &["HelmRelease/shop", "1.0.0"]).await?;

        // A certificate signs in at the hub only.
        let certificate = User::with(&place.shared.hub.kubeconfig(), server)?;
        let (code, _, err) = certificate.sluice(&charts)?;
        ensure!(
            code == 4 && err.contains("has no token") && err.contains("kubectl create token"),
            "{code} {err}"
        );
        let forged = place.shared.hub.service_account(&n, "nobody").await?.replace("token: \"", "token: \"x");
        let (code, _, err) =
            User::with(&forged.replace("token: ey", "token: xey"), server)?.sluice(&charts)?;
        ensure!(code == 4 && err.contains("does not accept the token"), "{code} {err}");
        let nowhere = ["--server", "http://127.0.0.1:1"];
        let nowhere = User::with(&place.shared.hub.service_account(&n, "nobody").await?, nowhere)?;
        let (code, _, err) = nowhere.sluice(&charts)?;
        ensure!(code == 4 && err.contains("leave out --server and SLUICE_SERVER"), "{code} {err}");
        Ok(())
    })
}

#[test]
fn flux_and_events_are_asked_with_the_rights_of_the_caller() -> Result<()> {
    run(async {
        let place = TestNamespace::new("api-act").await?;
        let (n, hub) = (&place.namespace, &place.shared.hub);
        releases::create_running(hub, n, "shop", "1.0.0").await?;
        let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "shop", "namespace": n},
            "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "shop"},
                "environments": [{"name": "dev", "targets": [{"namespace": n}]}]}});
        hub.apply_yaml(&pipeline.to_string()).await?;
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "name": "shop",
            "namespace": n});
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "shop-1", "namespace": n},
            "involvedObject": object, "reason": "ClusterLost", "type": "Warning", "message": "why"});
        hub.apply_yaml(&event.to_string()).await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let controller = Controller::start(hub, n, &[&format!("--api-addr={address}"), "--api-actions"])?;
        let base = format!("http://{address}");
        let see = [rule("pipelines", &["get"]), rule("promotions", &["get"])];
        let flux = json!({"apiGroups": ["helm.toolkit.fluxcd.io", "source.toolkit.fluxcd.io"], "resources": ["*"],
            "verbs": ["get", "list", "patch"]});
        let act = [flux, json!({"apiGroups": [""], "resources": ["events"], "verbs": ["list"]})];
        let viewer = Person::new(&place, &base, "viewer", json!(see)).await?;
        let operator = Person::new(&place, &base, "operator", json!([&see[..], &act].concat())).await?;
        let blind = Person::new(&place, &base, "blind", json!(act)).await?;
        let path = format!("/pipelines/{n}/shop");
        let events = format!("{path}/events");
        eventually(SOON, || async {
            let (status, answer) = operator.ask(&events).await?;
            ensure!(
                status == StatusCode::OK && answer["items"][0]["reason"] == "ClusterLost",
                "{status} {answer}"
            );
            Ok(())
        })
        .await
        .with_context(|| controller.tail())?;
        ensure!(viewer.ask(&events).await?.0 == StatusCode::FORBIDDEN);
        ensure!(blind.ask(&events).await?.0 == StatusCode::NOT_FOUND);

        let reconcile = format!("{path}/reconcile");
        let requested = || async {
            let release = releases::get(hub, n, "shop").await?;
            let annotations = release.metadata.annotations.unwrap_or_default();
            Ok::<_, anyhow::Error>(annotations.contains_key("reconcile.fluxcd.io/requestedAt"))
        };
        ensure!(blind.call(&reconcile, &json!({})).await?.0 == StatusCode::NOT_FOUND);
        let (status, answer) = viewer.call(&reconcile, &json!({})).await?;
        ensure!(status == StatusCode::OK && answer.contains("is forbidden"), "{status} {answer}");
        ensure!(!requested().await?, "somebody without the right has requested it");
        let (status, answer) = operator.call(&reconcile, &json!({"environment": "dev"})).await?;
        ensure!(status == StatusCode::OK && requested().await?, "{status} {answer}");
        Ok(())
    })
}
