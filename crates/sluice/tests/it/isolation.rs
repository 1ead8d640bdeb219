//! Three leaf clusters: one frozen (it accepts connections and never answers), one that refuses connections, and
//! one that works. Changes on the working cluster show in the status without a delay.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sluice_testkit::ControlPlane;

use crate::place::{TestNamespace, error, revision};
use crate::process::Controller;
use crate::{releases, run};

fn pipeline(namespace: &str, name: &str, clusters: &[&str]) -> String {
    let targets: Vec<String> = clusters
        .iter()
        .map(|c| format!("{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: {c}}}}}"))
        .collect();
    format!(
        "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}\n  \
         environments: [{{name: dev, targets: [{}]}}]\n",
        targets.join(", ")
    )
}

#[test]
fn a_frozen_and_a_refusing_cluster_delay_no_other_cluster() -> Result<()> {
    run(async {
        let place = TestNamespace::new("isolation").await?;
        let n = place.namespace.as_str();
        // Own clusters, since the shared ones must not be frozen.
        let plane = ControlPlane::start().await?;
        let (frozen, refused) = tokio::try_join!(plane.cluster("frozen"), plane.cluster("refused"))?;
        for (name, cluster) in [("frozen", &frozen), ("refused", &refused)] {
            cluster.install_flux_crds().await?;
            cluster.namespace(n).await?;
            releases::create_running(cluster, n, "podinfo", "1.0.0").await?;
            place.gitops_cluster(name, &cluster.kubeconfig()).await?;
        }
        let dev = place.leaf("dev");
        releases::create_running(dev, n, "podinfo", "1.0.0").await?;
        place.apply(&pipeline(n, "mixed", &["frozen", "refused", "dev"])).await?;
        place.apply(&pipeline(n, "sound", &["dev"])).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("mixed", "all show 1.0.0", |p| revision(p, "dev") == "1.0.0").await?;

        frozen.freeze()?;
        refused.stop();
        let mut took = Vec::new();
        for i in 1..=25 {
            let version = format!("1.0.{i}");
            let changed = Instant::now();
            releases::runs(dev, n, "podinfo", &version, true).await?;
            for name in ["sound", "mixed"] {
                let seen = |p: &sluice_api::Pipeline| {
                    let status = p.status.clone().unwrap_or_default();
                    let environment = status.environments.get("dev").cloned().unwrap_or_default();
                    environment.targets.last().is_some_and(|t| t.revision.as_deref() == Some(&version))
                };
                place.until(name, &format!("{name} shows {version}"), seen).await?;
            }
            took.push(changed.elapsed());
            // The failures are detected meanwhile: a probe takes seconds to time out.
            tokio::time::sleep_until((changed + Duration::from_millis(800)).into()).await;
        }
        took.sort();
        println!("25 changes showed after {took:?}");
        // If a change waited for the frozen cluster, it would take at least the timeout of five seconds. Two
        // changes may take that long on a busy machine.
        ensure!(took[22] < Duration::from_secs(4), "the changes took {took:?}; {}", controller.tail());
        let lost = |p: &sluice_api::Pipeline| {
            let status = p.status.clone().unwrap_or_default();
            let targets = &status.environments["dev"].targets;
            targets[0].error.contains("no answer") && targets[1].error.contains("refuses the connection")
        };
        place.until("mixed", "the frozen and the refusing cluster have an error", lost).await?;

        frozen.thaw()?;
        refused.start().await?;
        let back = Instant::now();
        let version = "1.0.0";
        let seen = |p: &sluice_api::Pipeline| {
            let status = p.status.clone().unwrap_or_default();
            status.environments["dev"].targets[..2].iter().all(|t| t.revision.as_deref() == Some(version))
        };
        place.until("mixed", "both are back", seen).await?;
        println!("both were back after {:?}", back.elapsed());
        ensure!(back.elapsed() < Duration::from_secs(45), "it took {:?}", back.elapsed());
        let sound = place.pipelines().get("sound").await?;
        ensure!(error(&sound, "dev").is_empty());
        Ok(())
    })
}
