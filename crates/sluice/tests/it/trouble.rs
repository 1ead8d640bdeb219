//! An error of one target shows at that target, with what to do, and changes nothing for other targets and
//! pipelines. It disappears when its cause is fixed, without a restart.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_api::pipeline::Health;

use crate::place::{TestNamespace, error, revision};
use crate::process::Controller;
use crate::{releases, run};

/// Returns a pipeline with these environments.
fn pipeline(namespace: &str, name: &str, targets: &[(&str, &str, Option<&str>)]) -> String {
    let mut text = format!(
        "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}\n  environments:\n"
    );
    for (environment, target_namespace, cluster) in targets {
        let cluster =
            cluster.map(|c| format!(", clusterRef: {{kind: GitopsCluster, name: {c}}}")).unwrap_or_default();
        text +=
            &format!("  - name: {environment}\n    targets: [{{namespace: {target_namespace}{cluster}}}]\n");
    }
    text
}

#[test]
fn an_error_of_one_target_affects_no_other_target_or_pipeline() -> Result<()> {
    run(async {
        let place = TestNamespace::new("trouble").await?;
        let n = place.namespace.as_str();
        let dev = place.leaf("dev");
        releases::create_running(dev, n, "podinfo", "6.1.5").await?;
        releases::create(place.leaf("prod"), n, "podinfo", json!({})).await?;

        place.gitops_cluster("expired", &dev.expired_kubeconfig()?).await?;
        let refused = dev.kubeconfig().replace(&dev.url(), "https://127.0.0.1:9");
        place.gitops_cluster("refused", &refused).await?;
        place.gitops_cluster("forbidden", &dev.user("nobody", None)?).await?;
        place.gitops_cluster("no-key", "x").await?;
        place.secret("wrong-key", &[("config", "x")]).await?;
        let cluster = |name: &str, secret: &str| {
            format!(
                "apiVersion: gitops.weave.works/v1alpha1\nkind: GitopsCluster\nmetadata: {{name: {name}, namespace: {n}}}\nspec: {{secretRef: {{name: {secret}}}}}\n"
            )
        };
        place.apply(&cluster("wrong-key", "wrong-key")).await?;
        place.apply(&cluster("no-secret", "not-there")).await?;
        place.apply(&pipeline(n, "sound", &[("dev", n, Some("dev"))])).await?;
        let troubles = [
            ("missing-cluster", n, Some("not-there"), "there is no GitopsCluster"),
            ("missing-secret", n, Some("no-secret"), "there is no Secret"),
            ("missing-key", n, Some("wrong-key"), "has no kubeconfig: put it under the key value"),
            ("no-kubeconfig", n, Some("no-key"), "cannot be read"),
            ("refused", n, Some("refused"), "refuses the connection"),
            ("expired", n, Some("expired"), "renew"),
            ("forbidden", n, Some("forbidden"), "grant"),
            ("missing-namespace", "not-there", Some("dev"), "there is no namespace not-there"),
            ("missing-object", n, Some("staging"), "there is no HelmRelease podinfo"),
            ("no-status", n, Some("prod"), "Flux has not reconciled it yet"),
        ];
        let mut all: Vec<(&str, &str, Option<&str>)> = vec![("first", n, Some("dev"))];
        all.extend(troubles.iter().map(|(e, ns, c, _)| (*e, *ns, *c)));
        all.push(("last", n, Some("dev")));
        place.apply(&pipeline(n, "podinfo", &all)).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        for (environment, _, _, part) in troubles {
            let has_error = |p: &sluice_api::Pipeline| error(p, environment).contains(part);
            let what = format!("the error of {environment} contains {part:?}");
            place.until("podinfo", &what, has_error).await.map_err(|e| e.context(controller.tail()))?;
        }
        let sound =
            |p: &sluice_api::Pipeline| revision(p, "first") == "6.1.5" && revision(p, "last") == "6.1.5";
        let found = place.until("podinfo", "the healthy targets show 6.1.5", sound).await?;
        let status = found.status.unwrap_or_default();
        ensure!(status.environments["first"].health == Health::Ready);
        ensure!(status.environments["missing-cluster"].health == Health::Unknown);
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
        ensure!(ready.status == "False" && ready.reason == "TargetNotReadable", "{ready:?}");
        let other =
            place.until("sound", "the other pipeline is ready", |p| revision(p, "dev") == "6.1.5").await?;
        let status = other.status.unwrap_or_default();
        ensure!(status.conditions.iter().all(|c| c.type_ != "Ready" || c.status == "True"), "{status:?}");

        // The log says the same, with the cluster as a field.
        let log = std::fs::read_to_string(controller.log())?;
        for cluster in ["refused", "expired"] {
            let field = format!("a cluster cannot be reached cluster=cluster {n}/{cluster} ");
            ensure!(log.contains(&field), "nothing names {cluster}: {}", controller.tail());
        }

        // The causes are fixed, and the targets show their revision without a restart.
        let fixed = Instant::now();
        place.gitops_cluster("not-there", &dev.kubeconfig()).await?;
        place.gitops_cluster("refused", &dev.kubeconfig()).await?;
        place.gitops_cluster("expired", &dev.kubeconfig()).await?;
        place.secret("wrong-key", &[("value.yaml", &dev.kubeconfig())]).await?;
        place.secret("not-there", &[("kubeconfig", &dev.kubeconfig())]).await?;
        for environment in ["missing-cluster", "refused", "expired", "missing-key", "missing-secret"] {
            let seen = |p: &sluice_api::Pipeline| revision(p, environment) == "6.1.5";
            place.until("podinfo", &format!("{environment} shows 6.1.5"), seen).await?;
        }
        println!("all targets were shown after {:?}", fixed.elapsed());
        ensure!(fixed.elapsed() < Duration::from_secs(45), "it took {:?}", fixed.elapsed());
        Ok(())
    })
}
