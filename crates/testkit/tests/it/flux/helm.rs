use super::watch::statuses;
use super::{condition, fixture, merge, reason, shape, until};
use crate::run;
use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_testkit::FluxFailure;

fn object(namespace: &str, version: &str, more: &str) -> String {
    format!(
        "
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: podinfo, namespace: {namespace}}}
spec:
  interval: 30s
  chart:
    spec: {{chart: podinfo, version: {version}, sourceRef: {{kind: HelmRepository, name: podinfo}}}}
  {more}
"
    )
}

fn deployed(version: &str) -> impl Fn(&Value) -> bool {
    let version = version.to_owned();
    move |s| {
        let last = &s["history"][0];
        last["status"] == "deployed"
            && last["chartVersion"] == version.as_str()
            && condition(s, "Ready")["status"] == "True"
    }
}

fn version(version: &str) -> Value {
    json!({"spec": {"chart": {"spec": {"version": version}}}})
}

#[test]
fn statuses_are_written_in_the_order_of_flux() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.cluster.namespace("hr-steps").await?;
        fixture.cluster.apply_yaml(&object("hr-steps", "6.1.5", "")).await?;
        let api = fixture.api("HelmRelease", "hr-steps").await?;
        let installed = until(&api, "podinfo", deployed("6.1.5")).await?;
        assert_eq!(reason(&installed.data["status"], "Released"), "True/InstallSucceeded");
        assert_eq!(installed.data["status"]["history"][0]["action"], "install");

        merge(&api, "podinfo", version("6.1.6")).await?;
        let observed = statuses(&api, "podinfo", &installed, deployed("6.1.6")).await?;
        let progress =
            observed.iter().find(|s| reason(s, "Reconciling") == "True/Progressing").context("progress")?;
        assert_eq!(reason(progress, "Ready"), "Unknown/Progressing");
        assert_eq!(condition(progress, "Ready")["message"], "Running 'upgrade' action with timeout of 5m0s");
        assert_eq!(progress["lastAttemptedRevision"], "6.1.6");
        assert_eq!(progress["history"][0]["chartVersion"], "6.1.5");
        assert_eq!(progress["observedGeneration"], 1);
        let done = observed.last().context("no status")?;
        let message = "Helm upgrade succeeded for release hr-steps/podinfo.v2 with chart podinfo@6.1.6";
        assert_eq!(condition(done, "Ready")["message"], message);
        assert_eq!(done["history"][1]["status"], "superseded");
        assert_eq!(done["observedGeneration"], 2);
        assert_eq!(shape(done), shape(&captured_upgraded()));

        let deployment = fixture.api("Deployment", "hr-steps").await?.get("podinfo").await?;
        assert_eq!(deployment.labels()["helm.toolkit.fluxcd.io/name"], "podinfo");
        let image = &deployment.data["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image, "ghcr.io/stefanprodan/podinfo:6.1.6");
        Ok(())
    })
}

/// A status captured from helm-controller after an upgrade.
fn captured_upgraded() -> Value {
    json!({
        "conditions": [{
            "lastTransitionTime": "", "message": "", "observedGeneration": 1, "reason": "", "status": "",
            "type": "",
        }],
        "helmChart": "",
        "history": [{
            "action": "", "apiVersion": "", "appVersion": "", "chartName": "", "chartVersion": "",
            "configDigest": "", "digest": "", "firstDeployed": "", "lastDeployed": "", "name": "",
            "namespace": "", "status": "", "version": 1,
        }],
        "inventory": {"entries": [{"id": "", "v": ""}]},
        "lastAttemptedConfigDigest": "",
        "lastAttemptedGeneration": 1,
        "lastAttemptedReleaseAction": "",
        "lastAttemptedReleaseActionDuration": "",
        "lastAttemptedRevision": "",
        "observedGeneration": 1,
        "storageNamespace": "",
    })
}

#[test]
fn a_failed_upgrade_keeps_the_old_release_and_removing_the_failure_recovers_it() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.cluster.namespace("hr-fail").await?;
        fixture.cluster.apply_yaml(&object("hr-fail", "6.1.6", "")).await?;
        let api = fixture.api("HelmRelease", "hr-fail").await?;
        until(&api, "podinfo", deployed("6.1.6")).await?;
        fixture.flux.fail("HelmRelease", "hr-fail", "podinfo", "6.1.7", FluxFailure::BuildFailed);
        merge(&api, "podinfo", version("6.1.7")).await?;
        let failed = until(&api, "podinfo", |s| reason(s, "Ready") == "False/UpgradeFailed").await?;
        let status = &failed.data["status"];
        assert_eq!(reason(status, "Released"), "False/UpgradeFailed");
        assert_eq!((&status["failures"], &status["lastAttemptedRevision"]), (&json!(1), &json!("6.1.7")));
        assert_eq!(status["history"][0]["chartVersion"], "6.1.6");

        fixture.flux.heal("HelmRelease", "hr-fail", "podinfo");
        until(&api, "podinfo", deployed("6.1.7")).await?;

        fixture.flux.fail("HelmRelease", "hr-fail", "podinfo", "6.1.8", FluxFailure::Stalled);
        merge(&api, "podinfo", version("6.1.8")).await?;
        let stalled = until(&api, "podinfo", |s| reason(s, "Stalled") == "True/RetriesExceeded").await?;
        assert_eq!(stalled.data["status"]["history"][0]["status"], "failed");
        fixture.flux.heal("HelmRelease", "hr-fail", "podinfo");
        until(&api, "podinfo", deployed("6.1.8")).await?;
        Ok(())
    })
}

#[test]
fn pods_that_never_start_fail_the_upgrade_after_its_timeout() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.cluster.namespace("hr-health").await?;
        fixture.flux.fail("HelmRelease", "hr-health", "podinfo", "6.1.8", FluxFailure::NeverHealthy);
        fixture.cluster.apply_yaml(&object("hr-health", "6.1.8", "timeout: 5s")).await?;
        let api = fixture.api("HelmRelease", "hr-health").await?;
        let failed = until(&api, "podinfo", |s| reason(s, "Ready") == "False/InstallFailed").await?;
        let message = condition(&failed.data["status"], "Ready")["message"].as_str().unwrap_or_default();
        ensure!(message.contains("Deployment/hr-health/podinfo not ready"), "{message}");
        fixture.flux.heal("HelmRelease", "hr-health", "podinfo");
        until(&api, "podinfo", deployed("6.1.8")).await?;
        Ok(())
    })
}

#[test]
fn values_make_a_new_release_and_other_fields_do_not() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.cluster.namespace("hr-values").await?;
        fixture.cluster.apply_yaml(&object("hr-values", "1.0.0", "values: {image: {tag: '2.0'}}")).await?;
        let api = fixture.api("HelmRelease", "hr-values").await?;
        until(&api, "podinfo", deployed("1.0.0")).await?;
        merge(&api, "podinfo", json!({"spec": {"values": {"image": {"tag": "2.1"}}}})).await?;
        until(&api, "podinfo", |s| s["history"][0]["version"] == 2 && deployed("1.0.0")(s)).await?;
        let deployment = fixture.api("Deployment", "hr-values").await?.get("podinfo").await?;
        let image = &deployment.data["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image, "ghcr.io/stefanprodan/podinfo:2.1");

        merge(&api, "podinfo", json!({"spec": {"interval": "1m"}})).await?;
        let confirmed = until(&api, "podinfo", |s| s["observedGeneration"] == 3).await?;
        assert_eq!(confirmed.data["status"]["history"][0]["version"], 2);
        assert_eq!(condition(&confirmed.data["status"], "Ready")["observedGeneration"], 3);
        Ok(())
    })
}

#[test]
fn a_chart_from_oci_carries_its_digest_and_one_from_git_its_own_version() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        let chart = "apiVersion: v2\nname: podinfo\nversion: 6.1.5\nappVersion: v6\n";
        let repo = fixture.repository("hr-sources", &[("charts/podinfo/Chart.yaml", chart)]).await?;
        let yaml = "
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: podinfo, namespace: hr-sources}
spec: {interval: 1m, url: 'oci://ghcr.io/stefanprodan/charts/podinfo', ref: {tag: 6.6.1}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: from-oci, namespace: hr-sources}
spec: {interval: 1m, chartRef: {kind: OCIRepository, name: podinfo}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: from-git, namespace: hr-sources}
spec:
  interval: 1m
  chart: {spec: {chart: ./charts/podinfo, sourceRef: {kind: GitRepository, name: fleet}}}
";
        fixture.cluster.apply_yaml(yaml).await?;
        let api = fixture.api("HelmRelease", "hr-sources").await?;
        let released = until(&api, "from-oci", |s| condition(s, "Ready")["status"] == "True").await?;
        let last = &released.data["status"]["history"][0];
        let version = last["chartVersion"].as_str().unwrap_or_default();
        ensure!(version.starts_with("6.6.1+") && version.len() == 6 + 12, "{version}");
        ensure!(last["ociDigest"].as_str().is_some_and(|d| d.starts_with("sha256:")), "{last}");

        until(&api, "from-git", deployed("6.1.5")).await?;
        let file = "charts/podinfo/Chart.yaml";
        repo.commit("main", "raise", &[(file, &chart.replace("6.1.5", "6.1.6"))])?;
        let released = until(&api, "from-git", deployed("6.1.6")).await?;
        assert_eq!(released.data["status"]["history"][0]["appVersion"], "v6");
        Ok(())
    })
}
