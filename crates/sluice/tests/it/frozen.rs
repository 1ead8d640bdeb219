//! A leaf cluster that accepts connections and never answers: each view of the API and each command that reads answers
//! without waiting for it, before and after the controller has noticed.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use reqwest::Client;
use serde_json::json;

use crate::answers::{create_pipeline, views};
use crate::api::User;
use crate::page::Person;
use crate::place::{TestNamespace, error, revision};
use crate::process::Controller;
use crate::proxied_cluster::behind_proxy;
use crate::{people, run};

/// An answer that waits for the cluster takes at least the timeout of five seconds.
const LONGEST_ANSWER: Duration = Duration::from_secs(4);

/// The commands that read objects of the hub. The name in capital letters is that of the test.
const OF_HUB: [&str; 12] = [
    "get pipelines",
    "get promotions",
    "get targets podinfo",
    "status podinfo",
    "explain podinfo",
    "explain PROMOTION",
    "tree podinfo",
    "history podinfo",
    "events podinfo",
    "charts",
    "images",
    "clusters",
];
/// The commands that ask the controller. The name in capital letters is that of the namespace.
const OF_CONTROLLER: [&str; 6] = [
    "charts --fleet",
    "images --fleet",
    "clusters --fleet",
    "triggers podinfo -n NS",
    "trace helmrelease/podinfo -n NS",
    "trace helmrelease/podinfo -n NS --on NS/frozen",
];

#[test]
fn each_view_and_command_answers_while_a_cluster_does_not() -> Result<()> {
    run(async {
        let place = TestNamespace::new("stalled").await?;
        let n = place.namespace.clone();
        let (proxy, kubeconfig) = behind_proxy(place.leaf("dev"))?;
        create_pipeline(&place, "frozen", &kubeconfig).await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let api = format!("--api-addr={address}");
        let controller = Controller::start(&place.shared.hub, &n, &[&api, "--observe=all"])?;
        let server = format!("http://{address}");
        let rules = json!([
            {"apiGroups": ["pipelines.weave.works", "gitops.weave.works"], "resources": ["*"], "verbs": ["get", "list"]},
            {"apiGroups": ["helm.toolkit.fluxcd.io", "source.toolkit.fluxcd.io", "notification.toolkit.fluxcd.io",
                "image.toolkit.fluxcd.io"], "resources": ["*"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        ]);
        let asks_hub = User::new(&place, "jane", ["-n", &n], rules.clone()).await?;
        let asks_controller =
            User::with(&place.shared.hub.service_account(&n, "jane").await?, ["--server", &server])?;
        let token = people::token(&place, "viewer", rules).await?;
        place.until("podinfo", "it was observed", |p| revision(p, "prod") == "6.1.6").await?;
        place.until_promotions("podinfo", "prod", &["6.1.7 Pending"]).await?;
        let promotions = place.promotions().list(&Default::default()).await?;
        let promotion = promotions.items.first().context("no promotion")?.name_any();
        asks_controller.until(&["charts", "--fleet"], &["6.1.6"]).await?;

        proxy.stall(true);
        let http = Client::new();
        for is_noticed in [false, true] {
            if is_noticed {
                let has_error = |p: &_| error(p, "prod").contains("no answer");
                place.until("podinfo", "the error of the frozen cluster", has_error).await?;
            }
            // What is about this cluster alone says that it cannot be reached, from when the controller notices.
            let is_right = |asked: &str, is_shown: bool| match asked.contains("/frozen") {
                true => !is_noticed || !is_shown,
                false => is_shown,
            };
            for view in views(&n, "frozen", &promotion) {
                let begun = Instant::now();
                let request = http.get(format!("{server}/api/v1{view}")).bearer_auth(&token);
                let answer = Person::send(request).await?;
                let (status, took) = (answer.status(), begun.elapsed());
                ensure!(is_right(&view, status.is_success()), "{view}: {status}: {}", answer.text().await?);
                ensure!(took < LONGEST_ANSWER, "{view} took {took:?}: {}", controller.tail());
            }
            let of_hub = OF_HUB.iter().map(|command| (&asks_hub, command));
            for (jane, command) in
                of_hub.chain(OF_CONTROLLER.iter().map(|command| (&asks_controller, command)))
            {
                let line = command.replace("NS", &n).replace("PROMOTION", &promotion);
                let arguments: Vec<&str> = line.split(' ').collect();
                let begun = Instant::now();
                let (code, out, err) = jane.sluice(&arguments)?;
                let took = begun.elapsed();
                // Only HelmReleases are there, and no images.
                let is_shown = code == 0 && (!out.is_empty() || line.starts_with("images"));
                ensure!(is_right(&line, is_shown), "{line}: {code}: {out}{err}");
                ensure!(took < LONGEST_ANSWER, "{line} took {took:?}: {}", controller.tail());
            }
        }
        Ok(())
    })
}
