//! Targets with `observe: Push`, with a polling interval of ten minutes. Calls alone promote a revision: CI asks
//! for it, the forge reports merges, and Flux reports what runs.

use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_testkit::fault_injection::{ApiServerProxy, WriteFault};
use sluice_testkit::{eventually, shared_gitea};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::run;
use crate::strategies::hmac;

const TRIGGER_KEY: &str = "what CI signs with";
const FORGE_KEY: &str = "what Gitea signs with";

/// Returns the key with which Flux on the cluster of an environment signs.
fn report_key(environment: &str) -> String {
    format!("what Flux in {environment} signs with")
}

struct Hooks {
    address: String,
    namespace: String,
    http: reqwest::Client,
}

impl Hooks {
    /// Sends a signed call until the answer is not 503, and returns the status and text of the answer.
    async fn call(&self, path: &str, body: &Value, key: &str) -> Result<(u16, String)> {
        let body = body.to_string();
        let signature = format!("sha256={}", hmac(key.as_bytes(), body.as_bytes()));
        let url = format!("http://{}{path}", self.address);
        eventually(SOON, || async {
            let call = self.http.post(&url).header("x-signature", &signature).body(body.clone());
            let answer = call.send().await?;
            let (status, text) = (answer.status().as_u16(), answer.text().await?);
            ensure!(status != 503, "{text}");
            Ok((status, text))
        })
        .await
    }

    /// Sends the event of Flux on the cluster of an environment about an upgrade `ago` seconds before now.
    async fn report_upgrade(&self, environment: &str, version: &str, ago: i64) -> Result<()> {
        let message = format!("Helm upgrade succeeded for release podinfo with chart podinfo@{version}");
        self.send_event(environment, ("UpgradeSucceeded", "info", &message), version, ago).await
    }

    async fn send_event(
        &self,
        environment: &str,
        (reason, severity, message): (&str, &str, &str),
        version: &str,
        ago: i64,
    ) -> Result<()> {
        let at = Timestamp::now() - SignedDuration::from_secs(ago);
        let event = json!({
            "involvedObject": {"kind": "HelmRelease", "namespace": self.namespace, "name": "podinfo",
                "apiVersion": "helm.toolkit.fluxcd.io/v2"},
            "severity": severity, "timestamp": at, "reason": reason, "message": message,
            "metadata": {"revision": version, "cluster": format!("edge-{environment}")},
            "reportingController": "helm-controller",
        });
        let path = format!("/promotion/{}/podinfo/{environment}", self.namespace);
        let answered = self.call(&path, &event, &report_key(environment)).await?;
        // 200 if the report was stored before, and the answer of the API server was lost.
        ensure!([200, 202].contains(&answered.0), "{environment} at {version}: {answered:?}");
        Ok(())
    }
}

fn pipeline(namespace: &str, url: &str) -> String {
    let environment = |name: &str| {
        format!(
            "{{name: {name}, targets: [{{namespace: {namespace}, observe: Push, \
             clusterRef: {{kind: GitopsCluster, name: edge-{name}}}}}]}}"
        )
    };
    format!(
        r#"
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {{name: podinfo, namespace: {namespace}}}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}
  environments: [{}, {}]
  promotion:
    strategy:
      secretRef: {{name: keys}}
      pull-request: {{type: gitea, url: "{url}", secretRef: {{name: forge}}}}
"#,
        environment("dev"),
        environment("prod")
    )
}

#[test]
fn calls_of_ci_the_forge_and_flux_promote_a_revision_without_polling() -> Result<()> {
    run(async {
        let place = TestNamespace::new("intake").await?;
        let n = place.namespace.as_str();
        let gitea = shared_gitea().await?;
        let file = |environment: &str, version: &str| {
            format!("version: {version} # {{\"$promotion\": \"{n}:podinfo:{environment}\"}}\n")
        };
        let (dev, prod) = (file("dev", "6.1.5"), file("prod", "6.1.5"));
        let repo = gitea.create_repo(n, &[("dev.yaml", &dev), ("prod.yaml", &prod)]).await?;
        place.forge_secret().await?;
        let (dev, prod) = (report_key("dev"), report_key("prod"));
        let keys = [
            ("trigger-key", TRIGGER_KEY),
            ("forge-key", FORGE_KEY),
            ("report-key.edge-dev", &dev),
            ("report-key.edge-prod", &prod),
        ];
        place.secret("keys", &keys).await?;
        place.apply(&pipeline(n, repo.url())).await?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let hook = format!("--hook-addr={address}");
        // So long that no change below is found by polling.
        let flags = [&*hook, "--poll-interval=10m"];
        let conflicts =
            ApiServerProxy::in_front_of(&place.shared.hub, &[WriteFault::Conflict, WriteFault::Lost])?;
        let controller = Controller::start_at(conflicts.kubeconfig_path(), n, &flags, &[])?;
        repo.add_webhook(&format!("http://{address}/forge/{n}/podinfo"), FORGE_KEY).await?;
        let hooks = Hooks { address, namespace: n.into(), http: reqwest::Client::new() };
        // prod reports first: otherwise the revision of dev would be promoted into prod.
        for environment in ["prod", "dev"] {
            eventually(SOON, || hooks.report_upgrade(environment, "6.1.5", 60)).await?;
        }
        let at_rest =
            |p: &sluice_api::Pipeline| revision(p, "dev") == "6.1.5" && revision(p, "prod") == "6.1.5";
        place.until("podinfo", "all report 6.1.5", at_rest).await.with_context(|| controller.tail())?;

        let asked = json!({"revision": "6.1.6", "idempotencyKey": "build-1"});
        let (status, text) = hooks.call(&format!("/trigger/{n}/podinfo"), &asked, TRIGGER_KEY).await?;
        // 200 if the first call was recorded, and the answer of the API server was lost.
        ensure!([200, 202].contains(&status), "{status}: {text}");
        for (environment, ago) in [("dev", 2), ("prod", 1)] {
            let until = async |phase: &str| {
                let found =
                    place.until_promotions("podinfo", environment, &[&format!("6.1.6 {phase}")]).await;
                found.with_context(|| controller.tail())
            };
            until("Proposed").await?;
            let open = repo.pulls("open").await?;
            ensure!(open.len() == 1, "one open pull request, not {open:?}");
            repo.merge(open[0].number).await?;
            until("Delivered").await?;
            ensure!(repo.read("main", &format!("{environment}.yaml"))? == file(environment, "6.1.6"));
            hooks.report_upgrade(environment, "6.1.6", ago).await?;
            until("Succeeded").await?;
        }
        let (status, text) = hooks.call(&format!("/trigger/{n}/podinfo"), &asked, TRIGGER_KEY).await?;
        ensure!(status == 200 && text.contains("Succeeded"), "{status}: {text}");
        ensure!(repo.pulls("all").await?.len() == 2);

        // A message with characters that the API server would reject is stored in a form that it accepts.
        let odd = "boom \u{7f} at \u{9b}\u{feff}\u{fffe}";
        hooks.send_event("dev", ("UpgradeFailed", "error", odd), "6.1.7", 0).await?;
        let failed = |p: &sluice_api::Pipeline| {
            let environments = p.status.clone().unwrap_or_default().environments;
            let targets = environments.get("dev").map(|e| e.targets.clone()).unwrap_or_default();
            targets
                .iter()
                .any(|t| t.health == sluice_api::pipeline::Health::Failed && t.error.contains("boom"))
        };
        place.until("podinfo", "dev has failed", failed).await.with_context(|| controller.tail())?;
        Ok(())
    })
}
