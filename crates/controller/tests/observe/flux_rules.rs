//! The rules for the health and the facets of Flux objects, with statuses that the captured scenario does not
//! have.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_core::fleet::fact::{Owned, ReleaseName};
use sluice_core::observed::Health::{self, Failed, Pending, Progressing, Ready, Suspended};
use sluice_core::revision::Facet;

use crate::support::{SHA, condition, flux_fact, helm_release, kustomization, with};

fn release(status: Value) -> Value {
    with(helm_release("apps", "podinfo", "0.0.0"), "status", status)
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    condition("Ready", status, reason, message, 2)
}

fn chart(object: &Value) -> Option<String> {
    flux_fact(object).facets.get(&Facet::Chart).cloned()
}

#[test]
fn health_follows_from_the_conditions_in_the_order_of_flux() {
    let reconciling = |reason| condition("Reconciling", "True", reason, "at work", 2);
    let stalled = |reason| condition("Stalled", "True", reason, "will not try again", 2);
    let ready_true = || ready("True", "UpgradeSucceeded", "done");
    let ready_false = |reason| ready("False", reason, "went wrong");
    let ready_unknown = || ready("Unknown", "Progressing", "in progress");
    let table: Vec<(Vec<Value>, Health, &str)> = vec![
        (vec![], Pending, "Flux has not reconciled it yet"),
        (
            vec![condition("Released", "True", "InstallSucceeded", "done", 2)],
            Pending,
            "Flux has not reconciled it yet",
        ),
        (vec![ready_true()], Ready, ""),
        (vec![ready_false("RetriesExceeded"), stalled("RetriesExceeded")], Failed, "went wrong"),
        (vec![ready_true(), stalled("AccessDenied")], Failed, "will not try again"),
        (vec![ready_true(), condition("Stalled", "False", "x", "x", 2)], Ready, ""),
        (vec![ready_false("UpgradeFailed")], Failed, "went wrong"),
        (vec![ready_false("BuildFailed"), reconciling("ProgressingWithRetry")], Failed, "went wrong"),
        (
            vec![ready_false("DependencyNotReady"), reconciling("ProgressingWithRetry")],
            Progressing,
            "went wrong",
        ),
        (vec![ready_false("HealthCheckCanceled")], Progressing, "went wrong"),
        (vec![ready_unknown(), reconciling("Progressing")], Progressing, "at work"),
        (vec![ready_unknown()], Progressing, "in progress"),
        (vec![ready_true(), reconciling("Progressing")], Progressing, "at work"),
        (
            vec![
                ready_false("RollbackSucceeded"),
                condition("Remediated", "True", "RollbackSucceeded", "rolled back", 2),
            ],
            Failed,
            "went wrong",
        ),
    ];
    for (conditions, health, message) in table {
        let status = json!({"observedGeneration": 2, "conditions": conditions});
        let verdict = flux_fact(&release(status)).status;
        assert_eq!((verdict.health, verdict.message.as_str()), (health, message), "{conditions:?}");
    }
}

#[test]
fn ready_counts_only_for_the_current_generation() {
    // The object is at generation 2.
    let table: [(Option<i64>, i64, Health); 8] = [
        (Some(2), 2, Ready),
        (Some(1), 1, Progressing),
        (Some(2), 1, Progressing),
        (Some(1), 2, Ready),
        (Some(2), 0, Ready),
        (Some(1), 0, Progressing),
        (None, 0, Progressing),
        (Some(-1), 2, Pending),
    ];
    for (observed, of_ready, health) in table {
        let mut status = json!({"conditions": [condition("Ready", "True", "Succeeded", "done", of_ready)]});
        if let Some(observed) = observed {
            status["observedGeneration"] = observed.into();
        }
        assert_eq!(flux_fact(&release(status.clone())).status.health, health, "{status}");
    }
}

#[test]
fn an_object_that_flux_has_not_reconciled_is_pending() {
    for status in [Value::Null, json!({}), json!({"observedGeneration": -1}), json!({"conditions": []})] {
        for object in [helm_release("apps", "podinfo", "1.0.0"), kustomization("apps", "podinfo", &[])] {
            let found = flux_fact(&with(object, "status", status.clone()));
            assert_eq!(found.status.health, Pending, "{status}");
            assert!(found.facets.is_empty(), "{status}");
            assert_eq!(found.version, "", "{status}");
        }
    }
}

#[test]
fn a_first_reconciliation_that_fails_counts_as_failed_without_an_observed_generation() {
    let status =
        json!({"observedGeneration": -1, "conditions": [ready("False", "BuildFailed", "no such path")]});
    let verdict = flux_fact(&with(kustomization("apps", "podinfo", &[]), "status", status)).status;
    assert_eq!((verdict.health, verdict.message.as_str()), (Failed, "no such path"));
}

#[test]
fn a_suspended_object_says_how_to_resume_it_and_its_last_message() {
    let object = || helm_release("apps", "podinfo", "6.1.8");
    let annotation = "kustomize.toolkit.fluxcd.io/reconcile";
    let suspended = "Flux does not reconcile it: resume it with flux resume; its last message: \
                     Helm upgrade succeeded";
    let disabled = "Flux does not reconcile it: remove kustomize.toolkit.fluxcd.io/reconcile: disabled from it; \
                    its last message: Helm upgrade succeeded";
    let table = [
        (with(object(), "spec/suspend", true.into()), Suspended, suspended),
        (with(object(), "metadata/annotations", json!({annotation: "disabled"})), Suspended, disabled),
        (with(object(), "metadata/labels", json!({annotation: "disabled"})), Suspended, disabled),
        (with(object(), "metadata/annotations", json!({annotation: "enabled"})), Ready, ""),
        (with(object(), "spec/suspend", false.into()), Ready, ""),
    ];
    for (object, health, message) in table {
        let found = flux_fact(&object);
        assert_eq!((found.status.health, found.status.message.as_str()), (health, message));
        assert_eq!(found.version, "6.1.8");
    }
}

#[test]
fn an_object_that_is_being_deleted_is_progressing_even_if_it_is_suspended() {
    let object = with(helm_release("apps", "podinfo", "1.0.0"), "spec/suspend", true.into());
    let object = with(object, "metadata/deletionTimestamp", "2026-11-21T09:00:00Z".into());
    let verdict = flux_fact(&object).status;
    assert_eq!((verdict.health, verdict.message.as_str()), (Progressing, "it is being deleted"));
}

#[test]
fn the_chart_facet_is_the_deployed_chart() {
    let snapshot = |version: i64, status: &str, chart: &str| json!({"version": version, "status": status, "chartVersion": chart});
    let table: Vec<(Value, Option<&str>)> = vec![
        // v2beta1
        (json!({"lastAppliedRevision": "6.1.5", "lastAttemptedRevision": "6.1.6"}), Some("6.1.5")),
        // v2beta2 has both; the history is what Helm has deployed
        (
            json!({"lastAppliedRevision": "6.1.5", "history": [snapshot(2, "deployed", "6.1.6")]}),
            Some("6.1.6"),
        ),
        // v2: the attempted chart is not deployed
        (
            json!({"lastAttemptedRevision": "6.1.7",
                "history": [snapshot(3, "failed", "6.1.7"), snapshot(2, "deployed", "6.1.6")]}),
            Some("6.1.6"),
        ),
        (json!({"lastAttemptedRevision": "6.1.7", "history": [snapshot(1, "failed", "6.1.7")]}), None),
        (json!({"history": [snapshot(1, "uninstalled", "6.1.7")]}), None),
        // rolled back: version N+1 is the old chart again
        (
            json!({"lastAttemptedRevision": "6.1.7", "history": [
                snapshot(4, "deployed", "6.1.6"), snapshot(3, "failed", "6.1.7"), snapshot(2, "superseded", "6.1.6")]}),
            Some("6.1.6"),
        ),
        // the newest number counts, in any order
        (
            json!({"history": [snapshot(9, "deployed", "1.0.9"), snapshot(10, "deployed", "1.0.10")]}),
            Some("1.0.10"),
        ),
        // a chart from an OCI artifact, and one with values files
        (json!({"history": [snapshot(1, "deployed", "6.6.1+0cc9a8446c95")]}), Some("6.6.1")),
        (json!({"lastAppliedRevision": "6.0.3+1"}), Some("6.0.3")),
        (json!({"history": [snapshot(1, "deployed", "1.0.0-1234567")]}), Some("1.0.0-1234567")),
    ];
    for (status, expected) in table {
        assert_eq!(chart(&release(status.clone())).as_deref(), expected, "{status}");
    }
}

#[test]
fn a_rolled_back_release_has_the_old_chart_and_has_failed() {
    let status = json!({
        "observedGeneration": 2,
        "conditions": [
            ready("False", "RollbackSucceeded", "Helm rollback to previous release podinfo/podinfo.v2 succeeded"),
            condition("Released", "False", "UpgradeFailed", "Helm upgrade failed", 2),
            condition("Remediated", "True", "RollbackSucceeded", "Helm rollback succeeded", 2),
        ],
        "history": [
            {"version": 4, "status": "deployed", "chartVersion": "6.1.6", "action": "rollback"},
            {"version": 3, "status": "failed", "chartVersion": "6.1.7"},
        ],
        "lastAttemptedRevision": "6.1.7",
    });
    let found = flux_fact(&release(status));
    assert_eq!((found.status.health, found.version.as_str()), (Failed, "6.1.6"));
}

#[test]
fn a_chart_from_an_oci_artifact_has_a_version_and_a_digest() {
    let status = json!({"history": [{"version": 1, "status": "deployed", "chartVersion": "6.6.1+0cc9a8446c95",
        "ociDigest": "sha256:0cc9a8446c95", "appVersion": "6.6.0"}]});
    let facets = flux_fact(&release(status)).facets;
    let expected = [
        (Facet::Chart, "6.6.1".to_string()),
        (Facet::App, "6.6.0".into()),
        (Facet::Digest, "sha256:0cc9a8446c95".into()),
    ];
    assert_eq!(facets, expected.into());
}

#[test]
fn the_tag_and_digest_of_an_oci_revision_are_read_in_all_forms_of_flux() {
    let sum = "3b6cdcc7adcc9a84d3214ee1c029543789d90b5ae69debe9efa3f66e982875de";
    let digest = format!("sha256:{sum}");
    let table = [
        (format!("6.1.8@sha256:{sum}"), Some("6.1.8"), Some(&digest), "6.1.8"),
        (format!("sha256:{sum}"), None, Some(&digest), "sha256:3b6cdcc7"),
        (format!("6.1.8/{sum}"), Some("6.1.8"), Some(&digest), "6.1.8"),
        (sum.to_string(), None, Some(&digest), "3b6cdcc7"),
        ("latest".into(), Some("latest"), None, "latest"),
    ];
    for (revision, tag, digest, version) in table {
        let object =
            with(kustomization("apps", "podinfo", &[]), "spec/sourceRef/kind", "OCIRepository".into());
        let found = flux_fact(&with(object, "status/lastAppliedRevision", revision.clone().into()));
        assert_eq!(found.facets.get(&Facet::Tag).map(String::as_str), tag, "{revision}");
        assert_eq!(found.facets.get(&Facet::Digest), digest, "{revision}");
        assert_eq!(found.facets.get(&Facet::Source), Some(&revision));
        assert_eq!(found.version, version, "{revision}");
    }
}

#[test]
fn the_commit_behind_the_applied_artifact_is_read() {
    let object = kustomization("apps", "podinfo", &[]);
    assert_eq!(flux_fact(&object).origin_revision, None);
    let built = with(object, "status/lastAppliedOriginRevision", "6.7.1@sha1:45".into());
    assert_eq!(flux_fact(&built).origin_revision.as_deref(), Some("6.7.1@sha1:45"));
}

#[test]
fn a_git_revision_is_shortened_in_all_forms_of_flux() {
    let table = [
        (format!("main@sha1:{SHA}"), "main@sha1:6a19e380"),
        (format!("feature/x@sha1:{SHA}"), "feature/x@sha1:6a19e380"),
        (format!("v1.2.3@sha1:{SHA}"), "v1.2.3@sha1:6a19e380"),
        (format!("refs/heads/main@sha1:{SHA}"), "refs/heads/main@sha1:6a19e380"),
        (format!("sha1:{SHA}"), "sha1:6a19e380"),
        (format!("main/{SHA}"), "main/6a19e380"),
        (SHA.to_string(), "6a19e380"),
        ("main@sha1:abc".into(), "main@sha1:abc"),
    ];
    for (revision, version) in table {
        let object = with(
            kustomization("apps", "podinfo", &[]),
            "status/lastAppliedRevision",
            revision.clone().into(),
        );
        let v1beta2 = with(object.clone(), "apiVersion", "kustomize.toolkit.fluxcd.io/v1beta2".into());
        for object in [object, v1beta2] {
            let found = flux_fact(&object);
            assert_eq!(found.version, version);
            // The facet, which is compared, is not shortened.
            assert_eq!(found.facets, [(Facet::Source, revision.clone())].into());
            assert_eq!(found.status.health, Ready);
        }
    }
}

#[test]
fn health_checks_of_all_workloads_cover_them_as_waiting_does() {
    let checks = |names: &[&str]| {
        let one = |name: &&str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "apps", "name": name});
        Value::from(names.iter().map(one).collect::<Vec<_>>())
    };
    let made = ["apps_web_apps_Deployment", "apps_db_apps_Deployment", "apps_conf__ConfigMap"];
    let object = || kustomization("apps", "podinfo", &made);
    assert!(!flux_fact(&object()).covers_owned);
    assert!(flux_fact(&with(object(), "spec/wait", true.into())).covers_owned);
    assert!(!flux_fact(&with(object(), "spec/healthChecks", checks(&["web"]))).covers_owned);
    assert!(flux_fact(&with(object(), "spec/healthChecks", checks(&["web", "db"]))).covers_owned);
}

/// The condition Stalled only says that Flux gave up. Helm's cause is in another condition. The statuses are those
/// that helm-controller writes after its last retry.
#[test]
fn a_release_that_flux_gave_up_on_shows_the_cause_of_helm() {
    let cause = "Helm upgrade failed for release apps/podinfo with chart podinfo@6.1.7: timed out";
    let stalled = condition("Stalled", "True", "RetriesExceeded", "Failed to upgrade after 2 attempt(s)", 2);
    let released = condition("Released", "False", "UpgradeFailed", cause, 2);
    let back = "Helm rollback to previous release apps/podinfo.v2 succeeded";
    let failed = json!([ready("False", "UpgradeFailed", cause), stalled, released]);
    let rolled_back = json!([
        ready("False", "RollbackSucceeded", back),
        stalled,
        released,
        condition("Remediated", "True", "RollbackSucceeded", back, 2),
    ]);
    for (conditions, message) in [(failed, cause.to_string()), (rolled_back, format!("{cause}; {back}"))] {
        let status = json!({"observedGeneration": 2, "conditions": conditions,
            "lastAttemptedRevision": "6.1.7+0cc9a8446c95"});
        let fact = flux_fact(&release(status));
        assert_eq!((fact.status.health, fact.status.message.as_str()), (Failed, message.as_str()));
        assert_eq!(fact.gave_up, BTreeMap::from([(Facet::Chart, "6.1.7".to_string())]));
    }
}

#[test]
fn flux_has_given_up_only_on_the_generation_of_the_condition() {
    let status = |generation: i64, stalled: &str| {
        json!({"conditions": [ready("False", "UpgradeFailed", "no"),
            condition("Stalled", stalled, "RetriesExceeded", "gave up", generation)],
            "lastAttemptedRevision": "6.1.7"})
    };
    // The object is at generation 2.
    let table = [(2, "True", Some("6.1.7")), (1, "True", None), (2, "False", None)];
    for (generation, stalled, expected) in table {
        let fact = flux_fact(&release(status(generation, stalled)));
        let chart = fact.gave_up.get(&Facet::Chart).map(String::as_str);
        assert_eq!(chart, expected, "{generation} {stalled}");
    }
}

/// The values are those of the generation that Flux gave up on. The app version is that of the attempted chart,
/// and not of the chart after the rollback.
#[test]
fn the_state_that_flux_gave_up_on_includes_the_images_of_the_values() {
    let old = json!({"name": "podinfo", "namespace": "apps", "version": 3, "status": "deployed",
        "chartVersion": "6.1.6", "appVersion": "6.1.6-app"});
    let attempted = json!({"name": "podinfo", "namespace": "apps", "version": 2, "status": "failed",
        "chartVersion": "6.1.7+0cc9a8446c95", "appVersion": "6.1.7-app"});
    let status = json!({"lastAttemptedRevision": "6.1.7+0cc9a8446c95", "lastAttemptedRevisionDigest": "sha256:aa",
        "history": [old, attempted], "conditions": [ready("False", "UpgradeFailed", "no"),
            condition("Stalled", "True", "RetriesExceeded", "gave up", 2)]});
    let image = json!({"image": {"repository": "ghcr.io/stefanprodan/podinfo", "tag": "6.1.8"}});
    let fact = flux_fact(&with(release(status), "spec/values", image));
    let expected = [
        (Facet::Chart, "6.1.7"),
        (Facet::App, "6.1.7-app"),
        (Facet::Digest, "sha256:aa"),
        (Facet::Image("ghcr.io/stefanprodan/podinfo".into()), "6.1.8"),
    ];
    assert_eq!(fact.gave_up, expected.map(|(facet, value)| (facet, value.to_string())).into());
}

/// Helm limits names to 53 characters, but a hostile cluster may send longer ones.
#[test]
fn a_release_name_that_is_too_long_is_not_kept() {
    let long = "x".repeat(1 << 20);
    let history = |name: &str| json!({"history": [{"name": name, "namespace": "apps", "version": 1}]});
    let release_name = |object: Value| {
        let fact = flux_fact(&object);
        let Owned::Release(ReleaseName { name, namespace }) = fact.owned else { panic!("{:?}", fact.owned) };
        (name, namespace, fact.release.is_some())
    };
    let expected = |name: &str, in_release| (name.to_string(), "apps".to_string(), in_release);
    assert_eq!(release_name(release(history("web"))), expected("web", false));
    assert_eq!(release_name(release(history(&long))), expected("podinfo", false));
    let (name, namespace, _) =
        release_name(with(release(json!({})), "spec/releaseName", long.clone().into()));
    assert_eq!((name, namespace), Default::default());
    for (annotation, kept) in [("web", true), (long.as_str(), false)] {
        let annotations =
            json!({"meta.helm.sh/release-name": annotation, "meta.helm.sh/release-namespace": "apps"});
        let object = with(release(json!({})), "metadata/annotations", annotations);
        assert_eq!(release_name(object).2, kept);
    }
}
