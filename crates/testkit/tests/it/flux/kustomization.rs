use super::watch::statuses;
use super::{condition, fixture, merge, reason, revision, shape, until};
use crate::run;
use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use sluice_testkit::{FileChange, FluxFailure, WAIT_TIMEOUT, eventually};
use std::time::Duration;

fn manifest(tag: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: podinfo}}
spec:
  selector: {{matchLabels: {{app: podinfo}}}}
  template:
    metadata: {{labels: {{app: podinfo}}}}
    spec: {{containers: [{{name: podinfo, image: 'ghcr.io/stefanprodan/podinfo:{tag}'}}]}}
"
    )
}

fn object(namespace: &str, more: &str) -> String {
    format!(
        "
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: podinfo, namespace: {namespace}}}
spec: {{interval: 30s, path: ./apps, prune: true, sourceRef: {{kind: GitRepository, name: fleet}} {more}}}
"
    )
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n";

#[test]
fn statuses_are_written_in_the_order_of_flux() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        let repo = fixture.repository("ks-steps", &[("apps/d.yaml", &manifest("6.1.5"))]).await?;
        fixture.cluster.apply_yaml(&object("ks-steps", "")).await?;
        let api = fixture.api("Kustomization", "ks-steps").await?;
        let first = revision(&repo)?;
        let before = until(&api, "podinfo", |s| s["lastAppliedRevision"] == first.as_str()).await?;
        assert_eq!(before.finalizers(), ["finalizers.fluxcd.io"]);

        repo.commit("main", "raise", &[("apps/d.yaml", &manifest("6.1.6"))])?;
        let second = revision(&repo)?;
        let observed =
            statuses(&api, "podinfo", &before, |s| s["lastAppliedRevision"] == second.as_str()).await?;
        let progress = &observed[0];
        assert_eq!(reason(progress, "Ready"), "Unknown/Progressing");
        assert_eq!(reason(progress, "Reconciling"), "True/Progressing");
        assert_eq!(progress["lastAttemptedRevision"], second.as_str());
        assert_eq!(progress["lastAppliedRevision"], first.as_str());
        let done = observed.last().context("no status")?;
        assert_eq!(reason(done, "Ready"), "True/ReconciliationSucceeded");
        assert_eq!(condition(done, "Ready")["message"], format!("Applied revision: {second}"));
        assert_eq!(shape(done), shape(&captured_upgraded()));
        assert_eq!(done["history"].as_array().map(Vec::len), Some(2));

        let deployments = fixture.api("Deployment", "ks-steps").await?;
        // The Deployment was available with the first version too: the generation shows that the new one is rolled out.
        let rolled_out = |s: &Value| {
            s["observedGeneration"] == 2 && reason(s, "Available") == "True/MinimumReplicasAvailable"
        };
        let deployment = until(&deployments, "podinfo", rolled_out).await?;
        assert_eq!(deployment.labels()["kustomize.toolkit.fluxcd.io/name"], "podinfo");
        assert_eq!(deployment.labels()["kustomize.toolkit.fluxcd.io/namespace"], "ks-steps");
        let managers: Vec<_> = deployment.managed_fields().iter().filter_map(|m| m.manager.clone()).collect();
        ensure!(managers == ["kustomize-controller", "kube-controller-manager"], "{managers:?}");
        Ok(())
    })
}

/// A status captured from kustomize-controller after an upgrade.
fn captured_upgraded() -> Value {
    json!({
        "conditions": [{
            "lastTransitionTime": "", "message": "", "observedGeneration": 1, "reason": "", "status": "",
            "type": "",
        }],
        "history": [{
            "digest": "", "firstReconciled": "", "lastReconciled": "", "lastReconciledDuration": "",
            "lastReconciledStatus": "", "metadata": {"revision": ""}, "totalReconciliations": 1,
        }],
        "inventory": {"entries": [{"id": "", "v": ""}]},
        "lastAppliedRevision": "",
        "lastAttemptedRevision": "",
        "observedGeneration": 1,
    })
}

#[test]
fn a_broken_build_fails_and_recovers_with_the_next_commit() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        let repo = fixture.repository("ks-broken", &[("apps/m.yaml", MAP)]).await?;
        fixture.cluster.apply_yaml(&object("ks-broken", "")).await?;
        let api = fixture.api("Kustomization", "ks-broken").await?;
        let good = revision(&repo)?;
        until(&api, "podinfo", |s| s["lastAppliedRevision"] == good.as_str()).await?;

        repo.commit("main", "break", &[("apps/broken.yaml", "a: [b\n")])?;
        let failed = until(&api, "podinfo", |s| reason(s, "Ready") == "False/BuildFailed").await?;
        let status = &failed.data["status"];
        assert_eq!(reason(status, "Reconciling"), "True/ProgressingWithRetry");
        assert_eq!(status["lastAppliedRevision"], good.as_str());
        assert_eq!(status["lastAttemptedRevision"], revision(&repo)?);

        repo.commit_changes("main", "fix", &[FileChange::Remove("apps/broken.yaml")])?;
        let fixed = revision(&repo)?;
        until(&api, "podinfo", |s| s["lastAppliedRevision"] == fixed.as_str()).await?;
        Ok(())
    })
}

#[test]
fn failed_health_checks_fail_it_and_removing_the_failure_recovers_it() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.repository("ks-health", &[("apps/d.yaml", &manifest("6.1.8"))]).await?;
        fixture.flux.fail("Kustomization", "ks-health", "podinfo", "6.1.8", FluxFailure::NeverHealthy);
        let applied =
            fixture.cluster.apply_yaml(&object("ks-health", ", wait: true, timeout: 5s")).await?.remove(0);
        let api = fixture.api("Kustomization", "ks-health").await?;
        let has_failed = |s: &Value| reason(s, "Ready") == "False/HealthCheckFailed";
        let observed = statuses(&api, "podinfo", &applied, has_failed).await?;
        ensure!(observed.iter().any(|s| reason(s, "Healthy") == "Unknown/Progressing"), "{observed:#?}");
        let failed = until(&api, "podinfo", has_failed).await?;
        let message = condition(&failed.data["status"], "Ready")["message"].as_str().unwrap_or_default();
        ensure!(message.ends_with("[Deployment/ks-health/podinfo status: 'InProgress']"), "{message}");
        assert_eq!(failed.data["status"]["history"][0]["lastReconciledStatus"], "HealthCheckFailed");
        ensure!(failed.data["status"]["lastAppliedRevision"].is_null());

        fixture.flux.heal("Kustomization", "ks-health", "podinfo");
        let healed = until(&api, "podinfo", |s| reason(s, "Ready") == "True/ReconciliationSucceeded").await?;
        assert_eq!(reason(&healed.data["status"], "Healthy"), "True/Succeeded");
        Ok(())
    })
}

#[test]
fn without_wait_it_is_ready_before_its_deployment() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.repository("ks-nowait", &[("apps/d.yaml", &manifest("6.1.8"))]).await?;
        fixture.flux.fail("Kustomization", "ks-nowait", "podinfo", "", FluxFailure::NeverHealthy);
        fixture.cluster.apply_yaml(&object("ks-nowait", "")).await?;
        let api = fixture.api("Kustomization", "ks-nowait").await?;
        until(&api, "podinfo", |s| reason(s, "Ready") == "True/ReconciliationSucceeded").await?;
        let deployments = fixture.api("Deployment", "ks-nowait").await?;
        until(&deployments, "podinfo", |s| reason(s, "Progressing") == "True/ReplicaSetUpdated").await?;
        fixture.flux.heal("Kustomization", "ks-nowait", "podinfo");
        until(&deployments, "podinfo", |s| s["availableReplicas"] == 1).await?;
        Ok(())
    })
}

#[test]
fn the_other_failures_have_the_reasons_of_flux() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        let repo = fixture.repository("ks-fail", &[("apps/m.yaml", MAP)]).await?;
        fixture.cluster.apply_yaml(&object("ks-fail", "")).await?;
        let api = fixture.api("Kustomization", "ks-fail").await?;
        let failures = [
            (FluxFailure::BuildFailed, "False/BuildFailed"),
            (FluxFailure::UpgradeFailed, "False/ReconciliationFailed"),
            (FluxFailure::HealthCheckFailed, "False/HealthCheckFailed"),
            (FluxFailure::Stalled, "False/AccessDenied"),
        ];
        for (number, (failure, expected)) in failures.into_iter().enumerate() {
            let good = revision(&repo)?;
            until(&api, "podinfo", |s| s["lastAppliedRevision"] == good.as_str()).await?;
            fixture.flux.fail("Kustomization", "ks-fail", "podinfo", "", failure);
            repo.commit("main", "next", &[("apps/m.yaml", &format!("{MAP}data: {{n: '{number}'}}\n"))])?;
            let failed = until(&api, "podinfo", |s| reason(s, "Ready") == expected).await?;
            let stalled = condition(&failed.data["status"], "Stalled")["status"] == "True";
            ensure!(stalled == (failure == FluxFailure::Stalled), "{failure:?}");
            fixture.flux.heal("Kustomization", "ks-fail", "podinfo");
        }
        let last = revision(&repo)?;
        until(&api, "podinfo", |s| s["lastAppliedRevision"] == last.as_str()).await?;
        Ok(())
    })
}

#[test]
fn suspended_it_does_nothing_and_objects_removed_from_git_are_pruned() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        let files = [("apps/d.yaml", &*manifest("1")), ("apps/m.yaml", MAP)];
        let repo = fixture.repository("ks-prune", &files).await?;
        fixture.cluster.apply_yaml(&object("ks-prune", "")).await?;
        let api = fixture.api("Kustomization", "ks-prune").await?;
        let maps = fixture.api("ConfigMap", "ks-prune").await?;
        let first = revision(&repo)?;
        until(&api, "podinfo", |s| s["lastAppliedRevision"] == first.as_str()).await?;
        maps.get("extra").await?;

        merge(&api, "podinfo", json!({"spec": {"suspend": true}})).await?;
        repo.commit_changes("main", "drop", &[FileChange::Remove("apps/m.yaml")])?;
        let second = revision(&repo)?;
        let sources = fixture.api("GitRepository", "ks-prune").await?;
        until(&sources, "fleet", |s| s["artifact"]["revision"] == second.as_str()).await?;
        assert_eq!(api.get("podinfo").await?.data["status"]["lastAttemptedRevision"], first.as_str());

        merge(&api, "podinfo", json!({"spec": {"suspend": false}})).await?;
        until(&api, "podinfo", |s| s["lastAppliedRevision"] == second.as_str()).await?;
        ensure!(maps.get_opt("extra").await?.is_none(), "not pruned");

        let annotation = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}});
        merge(&api, "podinfo", annotation).await?;
        until(&api, "podinfo", |s| s["lastHandledReconcileAt"] == "now").await?;

        api.delete("podinfo", &DeleteParams::default()).await?;
        eventually(WAIT_TIMEOUT, || async {
            ensure!(api.get_opt("podinfo").await?.is_none(), "still there");
            Ok(())
        })
        .await?;
        let deployments = fixture.api("Deployment", "ks-prune").await?;
        ensure!(deployments.get_opt("podinfo").await?.is_none(), "not removed with its owner");
        Ok(())
    })
}

#[test]
fn nothing_is_written_while_nothing_changes() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        let repo = fixture.repository("ks-rest", &[("apps/d.yaml", &manifest("1"))]).await?;
        fixture.cluster.apply_yaml(&object("ks-rest", "")).await?;
        let api = fixture.api("Kustomization", "ks-rest").await?;
        let deployments = fixture.api("Deployment", "ks-rest").await?;
        let sources = fixture.api("GitRepository", "ks-rest").await?;
        let applied = revision(&repo)?;
        until(&api, "podinfo", |s| s["lastAppliedRevision"] == applied.as_str()).await?;
        until(&deployments, "podinfo", |s| s["availableReplicas"] == 1).await?;
        let versions = async || {
            let objects =
                [api.get("podinfo").await?, deployments.get("podinfo").await?, sources.get("fleet").await?];
            anyhow::Ok(objects.map(|o| o.metadata.resource_version))
        };
        let before = versions().await?;
        // Longer than all intervals and delays of the stand-in. There is no condition to wait for.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(versions().await?, before);
        assert_eq!(repo.requests(), Default::default(), "Flux's requests must not be counted");
        Ok(())
    })
}

#[test]
fn an_unreadable_source_has_a_reason() -> Result<()> {
    run(async {
        let fixture = fixture().await?;
        fixture.repository("ks-source", &[("apps/m.yaml", MAP)]).await?;
        let sources = fixture.api("GitRepository", "ks-source").await?;
        until(&sources, "fleet", |s| reason(s, "Ready") == "True/Succeeded").await?;
        merge(&sources, "fleet", json!({"spec": {"ref": {"branch": "none"}}})).await?;
        let failed = until(&sources, "fleet", |s| reason(s, "Ready") == "False/GitOperationFailed").await?;
        let status = &failed.data["status"];
        let message = condition(status, "Ready")["message"].as_str().unwrap_or_default();
        ensure!(message.contains("couldn't find remote ref \"none\""), "{message}");
        assert_eq!(reason(status, "FetchFailed"), "True/GitOperationFailed");
        ensure!(!status["artifact"].is_null(), "the old artifact was removed");
        Ok(())
    })
}
