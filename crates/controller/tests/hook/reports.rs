//! The reports of targets with `observe: Push`: which events are accepted, in which order they are applied, and
//! what the target's status is then.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_api::lenient::{self, Lenient};
use sluice_api::pipeline::{Health, Report};
use sluice_controller::hook::event::ReceivedEvent;
use sluice_controller::hook::promotion::{EventVerdict, classify};
use sluice_controller::hook::report::{self, MAX_REPORTS_BYTES, check, names, stale, unreadable_part};
use sluice_controller::hook::status_change::StatusChange;
use sluice_controller::observe::reported::{self, Reports};
use sluice_core::observed;
use sluice_core::observed::ObservedTarget;
use sluice_core::revision::Facet;

const NOW: &str = "2026-11-21T12:00:00Z";

fn pipeline(kind: &str, tracks: &[&str]) -> Pipeline {
    let group = if kind == "HelmRelease" { "helm" } else { "kustomize" };
    let push = |cluster: &str| {
        json!({"namespace": "podinfo", "observe": "Push", "name": cluster,
        "clusterRef": {"kind": "GitopsCluster", "name": cluster, "namespace": "fleet"}})
    };
    let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"},
        "spec": {
            "appRef": {"apiVersion": format!("{group}.toolkit.fluxcd.io/v1"), "kind": kind, "name": "podinfo"},
            "tracks": tracks,
            "environments": [
                {"name": "dev", "targets": [{"namespace": "podinfo"}]},
                {"name": "prod", "targets": [push("eu"), push("us")]}]}});
    serde_json::from_value(object).unwrap()
}

/// Returns an event `second` seconds after [`NOW`], about a version of the object.
fn event(reason: &str, revision: &str, second: i64, version: u64) -> ReceivedEvent {
    let kind = if reason.starts_with("Reconciliation") { "Kustomization" } else { "HelmRelease" };
    let group = if kind == "HelmRelease" { "helm" } else { "kustomize" };
    let at = NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second);
    serde_json::from_value(json!({
        "involvedObject": {"kind": kind, "namespace": "podinfo", "name": "podinfo",
            "apiVersion": format!("{group}.toolkit.fluxcd.io/v1"), "resourceVersion": version.to_string()},
        "severity": if reason.ends_with("Failed") { "error" } else { "info" },
        "timestamp": at, "message": format!("{reason} {revision}"), "reason": reason,
        "metadata": {"revision": revision, "app-version": format!("app-{revision}"), "cluster": "eu"}}))
    .unwrap()
}

/// Returns the report after an event that arrives an hour after [`NOW`].
fn updated(before: Option<&Report>, event: &ReceivedEvent) -> Option<Report> {
    report::updated(before, event, NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_hours(1))
}

fn with_metadata(mut event: ReceivedEvent, key: &str, value: &str) -> ReceivedEvent {
    event.metadata.insert(key.into(), value.into());
    event
}

#[test]
fn an_event_is_a_report_of_the_target_whose_object_namespace_and_cluster_it_names() {
    let podinfo = pipeline("HelmRelease", &[]);
    let good = event("UpgradeSucceeded", "6.1.8", 0, 1);
    let only = |event: &ReceivedEvent| names(&podinfo, "prod", event).into_iter().collect::<Vec<_>>();
    assert_eq!(only(&good), ["prod/eu/HelmRelease/podinfo"]);
    assert_eq!(only(&with_metadata(good.clone(), "cluster", "fleet/us")), ["prod/us/HelmRelease/podinfo"]);
    assert_eq!(classify(&podinfo, "prod", &good), EventVerdict::Report);
    assert_eq!(classify(&podinfo, "prod", &event("UpgradeFailed", "6.1.8", 0, 1)), EventVerdict::Report);
    assert_eq!(classify(&podinfo, "prod", &event("DriftCorrected", "6.1.8", 0, 1)), EventVerdict::Ignored);
    // For a target that the controller watches, the same event makes the controller reconcile the pipeline.
    assert_eq!(classify(&podinfo, "dev", &good), EventVerdict::Reconcile);
    let wrong = |event: &ReceivedEvent| match classify(&podinfo, "prod", event) {
        EventVerdict::Invalid(why) => why,
        other => panic!("{other:?}"),
    };
    for cluster in ["", "ap", "other/eu", "eu/", "fleet/ap"] {
        let why = wrong(&with_metadata(good.clone(), "cluster", cluster));
        assert!(why.contains("set cluster: eu or us in"), "{cluster}: {why}");
    }
    let mut elsewhere = good.clone();
    elsewhere.involved_object.namespace = "other".into();
    assert!(wrong(&elsewhere).contains("is not part of environment prod"));
    let mut another = good;
    another.involved_object.name = "other".into();
    assert!(wrong(&another).contains("is not part of environment prod"));
}

#[test]
fn an_event_must_name_the_namespace_of_a_cluster_if_two_have_the_same_name() {
    let mut podinfo = pipeline("HelmRelease", &[]);
    let targets = &mut podinfo.spec.environments[1].targets;
    for (target, namespace) in targets.iter_mut().zip(["fleet", "other"]) {
        let cluster = target.cluster_ref.as_mut().unwrap();
        (cluster.name, cluster.namespace) = ("eu".into(), Some(namespace.into()));
    }
    let good = event("UpgradeSucceeded", "6.1.8", 0, 1);
    // Otherwise, the revision of one cluster would be proven for both.
    let EventVerdict::Invalid(why) = classify(&podinfo, "prod", &good) else {
        panic!("an event without the namespace was accepted")
    };
    assert!(why.contains("set cluster: fleet/eu or other/eu in"), "{why}");
    let named = with_metadata(good, "cluster", "other/eu");
    assert_eq!(
        names(&podinfo, "prod", &named).into_iter().collect::<Vec<_>>(),
        ["prod/us/HelmRelease/podinfo"]
    );
}

#[test]
fn an_event_of_another_time_or_target_or_with_invalid_values_is_rejected() {
    let podinfo = pipeline("HelmRelease", &[]);
    let good = event("UpgradeSucceeded", "6.1.8", 0, 1);
    let at = |seconds: i64| {
        let now = NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds);
        check(&podinfo, "prod", &good, now)
    };
    // An event is accepted from a minute before its time to an hour after it.
    for (seconds, wanted) in
        [(-61, "correct the clock"), (-60, ""), (0, ""), (3600, ""), (3601, "more than an hour ago")]
    {
        match at(seconds) {
            Ok(()) => assert_eq!(wanted, "", "{seconds}"),
            Err(why) => assert!(!wanted.is_empty() && why.contains(wanted), "{seconds}: {why}"),
        }
    }
    let now = NOW.parse().unwrap();
    let refused = |event: &ReceivedEvent| check(&podinfo, "prod", event, now).unwrap_err();
    assert!(
        refused(&with_metadata(good.clone(), "pipeline", "apps/other")).contains("for pipeline apps/other")
    );
    assert!(refused(&with_metadata(good.clone(), "environment", "dev")).contains("for environment dev"));
    check(
        &podinfo,
        "prod",
        &with_metadata(with_metadata(good.clone(), "pipeline", "apps/podinfo"), "environment", "prod"),
        now,
    )
    .unwrap();
    assert!(refused(&with_metadata(good.clone(), "revision", "")).contains("no revision"));
    for (key, value) in [
        ("revision", "1.0 # x"),
        ("revision", "../../etc"),
        ("oci-digest", "a/b"),
        ("revision", "1\n2"),
        ("revision", &*"1".repeat(257)),
        ("oci-digest", "sha256:`x`"),
        ("app-version", "1\u{1b}[31m"),
        ("app-version", "1\u{200b}"),
        ("app-version", &*"é".repeat(129)),
    ] {
        assert!(
            refused(&with_metadata(good.clone(), key, value)).contains(&format!("the event's {key} is ")),
            "{value}"
        );
    }
    check(&podinfo, "prod", &with_metadata(good.clone(), "app-version", "1.0 (Ätna)"), now).unwrap();
    for reason in ["x".repeat(129), "x".repeat(1_500_000), "Upgrade\u{1b}[31mSucceeded".into()] {
        assert!(
            refused(&ReceivedEvent { reason, ..good.clone() }).contains("the event's reason is too long")
        );
    }
    check(&podinfo, "prod", &ReceivedEvent { reason: "x".repeat(128), ..good.clone() }, now).unwrap();
    assert!(refused(&ReceivedEvent { timestamp: None, ..good }).contains("no timestamp"));
}

#[test]
fn an_older_success_does_not_replace_a_newer_report() {
    let first = updated(None, &event("UpgradeSucceeded", "6.1.8", 0, 10)).unwrap();
    assert_eq!(
        (first.health, first.revision.as_str(), first.app.as_str()),
        (Health::Ready, "6.1.8", "app-6.1.8")
    );
    let back = updated(Some(&first), &event("UpgradeSucceeded", "6.1.7", 60, 20)).unwrap();
    assert_eq!(back.revision, "6.1.7");
    for late in [
        event("UpgradeSucceeded", "6.1.8", 0, 10),
        event("UpgradeSucceeded", "6.1.8", 59, 99),
        event("UpgradeFailed", "6.1.8", 30, 15),
        event("UpgradeSucceeded", "6.1.7", 60, 20),
        event("UpgradeSucceeded", "6.1.8", 60, 19),
    ] {
        assert_eq!(updated(Some(&back), &late), None, "{late:?}");
    }
    // Of two events in the same second, the event about the later version is newer. Of two events about the same
    // version, the failure is newer.
    assert!(updated(Some(&back), &event("UpgradeSucceeded", "6.1.9", 60, 21)).is_some());
    assert!(updated(Some(&back), &event("UpgradeFailed", "6.1.9", 60, 20)).is_some());
    assert_eq!(updated(Some(&back), &event("DriftCorrected", "6.1.9", 90, 30)), None);
}

/// The stored report was made while the clocks of the hub and of a leaf were a day ahead.
#[test]
fn a_stored_time_ahead_of_the_clock_delays_no_report_and_permits_no_replay() {
    let now: Timestamp = NOW.parse().unwrap();
    let day = SignedDuration::from_hours(24).as_secs();
    let stored = |seconds: i64, version: u64| {
        let event = event("UpgradeSucceeded", "6.1.8", seconds, version);
        report::updated(None, &event, now + SignedDuration::from_secs(seconds)).unwrap()
    };
    for (why, stored_report, second, reason, version, counts) in [
        ("later by its version", stored(day, 10), 0, "UpgradeSucceeded", 11, true),
        ("later in the course of one version", stored(day, 10), 0, "UpgradeFailed", 10, true),
        ("without a version", stored(day, 10), 0, "UpgradeSucceeded", 0, true),
        ("after a report without a version", stored(day, 0), 0, "UpgradeSucceeded", 1, true),
        ("the same again", stored(day, 10), day, "UpgradeSucceeded", 10, false),
        ("of an earlier version", stored(day, 10), 0, "UpgradeSucceeded", 9, false),
        ("just ahead of the tolerance", stored(61, 10), 0, "UpgradeSucceeded", 11, true),
        ("within the tolerance", stored(60, 10), 0, "UpgradeSucceeded", 11, false),
        ("within the tolerance, and later", stored(60, 10), 61, "UpgradeSucceeded", 9, true),
        ("of the past", stored(-60, 10), -61, "UpgradeSucceeded", 11, false),
    ] {
        let event = event(reason, "6.1.9", second, version);
        assert_eq!(report::updated(Some(&stored_report), &event, now).is_some(), counts, "{why}");
    }
    // The accepted report has the current time, with which the following events are compared.
    let next =
        report::updated(Some(&stored(day, 10)), &event("UpgradeSucceeded", "6.1.9", 0, 11), now).unwrap();
    assert_eq!(next.time.to_string(), NOW);
    assert_eq!(report::updated(Some(&next), &event("UpgradeSucceeded", "6.1.8", -1, 12), now), None);
}

#[test]
fn a_report_that_cannot_be_read_is_not_replaced() {
    let mut object = json!(pipeline("HelmRelease", &[]));
    let report = json!({"time": NOW, "version": 7, "health": "Ready"});
    let other = json!({"time": NOW, "health": "Splendid"});
    let mut found = |status: Value, cluster: &str| {
        object["status"] = status;
        let read: Lenient<Pipeline> = lenient::from_value(object.clone()).unwrap();
        let event = with_metadata(event("UpgradeSucceeded", "6.1.9", 0, 9), "cluster", cluster);
        unreadable_part(&read, "prod", &event).map(str::to_owned)
    };
    let (eu, us) = ("prod/eu/HelmRelease/podinfo", "prod/us/HelmRelease/podinfo");
    let reports = json!({"reports": {eu: report, us: other}});
    assert_eq!(found(reports.clone(), "eu"), None, "the unreadable report is of another cluster");
    let part = found(reports, "us").unwrap();
    assert!(part.starts_with(&format!("status.reports.{us}")) && part.contains("`Splendid`"), "{part}");
    assert!(found(json!({"reports": 7}), "eu").is_some());
    assert!(found(json!("none"), "eu").is_some());
    assert_eq!(found(json!({"summary": 7}), "eu"), None);
}

#[test]
fn a_failure_keeps_the_revision_that_ran_and_has_the_message() {
    let ran = updated(None, &event("UpgradeSucceeded", "6.1.8", 0, 10)).unwrap();
    let failed = updated(Some(&ran), &event("UpgradeFailed", "6.1.9", 10, 11)).unwrap();
    assert_eq!((failed.health, failed.revision.as_str()), (Health::Failed, "6.1.8"));
    assert_eq!((failed.message.as_str(), failed.reason.as_str()), ("UpgradeFailed 6.1.9", "UpgradeFailed"));
    // A rollback is no success. After a success, no part of the failure is left.
    assert_eq!(updated(Some(&failed), &event("RollbackSucceeded", "6.1.8", 12, 12)), None);
    let success = updated(Some(&failed), &event("UpgradeSucceeded", "6.1.9", 20, 13)).unwrap();
    assert_eq!(
        (success.health, success.message.as_str(), success.revision.as_str()),
        (Health::Ready, "", "6.1.9")
    );
}

#[test]
fn the_message_of_a_failure_has_no_characters_that_control_a_terminal() {
    let mut event = event("UpgradeFailed", "6.1.9", 0, 1);
    event.message = "failed:\n\u{1b}[2J\u{9b}1A\u{202e}gnp\u{200b}.exe\u{7f}".into();
    assert_eq!(updated(None, &event).unwrap().message, "failed:\n[2J1Agnp.exe");
}

#[test]
fn a_release_with_tests_is_ready_when_its_tests_have_succeeded() {
    let tested = updated(None, &event("TestSucceeded", "6.1.8", 0, 10)).unwrap();
    assert_eq!(tested.health, Health::Ready);
    let released = updated(Some(&tested), &event("UpgradeSucceeded", "6.1.9", 10, 11)).unwrap();
    assert_eq!((released.health, released.revision.as_str()), (Health::Progressing, "6.1.9"));
    let good = updated(Some(&released), &event("TestSucceeded", "6.1.9", 10, 11)).unwrap();
    assert_eq!(good.health, Health::Ready);
    let bad = updated(Some(&released), &event("TestFailed", "6.1.9", 10, 11)).unwrap();
    assert_eq!(bad.health, Health::Failed);
    // After another release without a test result, the release has no tests any more.
    let untested = updated(Some(&released), &event("UpgradeSucceeded", "6.2.0", 20, 12)).unwrap();
    assert_eq!((untested.health, untested.tests), (Health::Ready, false));
}

fn shown(podinfo: &Pipeline, reports: &Reports) -> ObservedTarget {
    reported::observe(podinfo, "prod", &podinfo.spec.environments[1].targets[0], "eu", reports)
}

fn reports(podinfo: &Pipeline, event: &ReceivedEvent) -> Reports {
    names(podinfo, "prod", event).into_iter().map(|key| (key, updated(None, event).unwrap())).collect()
}

#[test]
fn the_status_of_a_target_follows_from_its_reports() {
    let podinfo = pipeline("HelmRelease", &[]);
    let quiet = shown(&podinfo, &Reports::new());
    assert_eq!((quiet.health(), quiet.workloads().len()), (observed::Health::Unknown, 1));
    assert!(
        quiet.error.is_none() && quiet.complaint().contains("sluice export alert"),
        "{}",
        quiet.complaint()
    );
    let of_digest =
        with_metadata(event("UpgradeSucceeded", "6.1.8+0cc9a8446c95", 0, 1), "oci-digest", "sha256:0cc9");
    let all = reports(&podinfo, &of_digest);
    let target = shown(&podinfo, &all);
    assert_eq!(target.proves(&[]).unwrap().to_string(), "6.1.8");
    let facets = &target.members[0].facets;
    assert_eq!(facets[&Facet::App], "app-6.1.8+0cc9a8446c95");
    assert_eq!(facets[&Facet::Digest], "sha256:0cc9");
    assert_eq!(
        reported::time(&podinfo, "prod", &podinfo.spec.environments[1].targets[0], "eu", &all),
        Some(NOW.parse().unwrap())
    );
    assert_eq!(reported::time(&podinfo, "prod", &podinfo.spec.environments[1].targets[1], "us", &all), None);
    let failed = shown(&podinfo, &reports(&podinfo, &event("UpgradeFailed", "6.1.9", 0, 1)));
    assert_eq!((failed.health(), failed.revision(&[])), (observed::Health::Failed, None));

    let git = event("ReconciliationSucceeded", "main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f", 0, 1);
    let podinfo = pipeline("Kustomization", &[]);
    let target = shown(&podinfo, &reports(&podinfo, &git));
    assert_eq!(target.health(), observed::Health::Unknown);
    assert!(target.complaint().contains("spec.tracks: [source]"), "{}", target.complaint());
    let podinfo = pipeline("Kustomization", &["source"]);
    let target = shown(&podinfo, &reports(&podinfo, &git));
    let tracks = ["source".parse().unwrap()];
    assert_eq!(target.proves(&tracks).unwrap().to_string(), git.revision().unwrap());
    let podinfo = pipeline("Kustomization", &[]);
    let never_ran = shown(&podinfo, &reports(&podinfo, &event("ReconciliationFailed", "", 0, 1)));
    assert_eq!((never_ran.health(), never_ran.revision(&[])), (observed::Health::Failed, None));
    assert!(never_ran.complaint().contains("ReconciliationFailed"), "{}", never_ran.complaint());
    let digest = "3b6cdcc7adcc9a84d3214ee1c029543789d90b5ae69debe9efa3f66e982875de";
    let podinfo = pipeline("Kustomization", &[]);
    let oci = event("ReconciliationSucceeded", &format!("6.7.1@sha256:{digest}"), 0, 1);
    assert_eq!(shown(&podinfo, &reports(&podinfo, &oci)).proves(&[]).unwrap().to_string(), "6.7.1");
}

#[test]
fn the_next_report_removes_the_reports_of_removed_targets() {
    let podinfo = pipeline("HelmRelease", &[]);
    let report = updated(None, &event("UpgradeSucceeded", "6.1.8", 0, 1)).unwrap();
    let names =
        ["prod/eu/HelmRelease/podinfo", "prod/ap/HelmRelease/podinfo", "dev/podinfo/HelmRelease/podinfo"];
    let all: Reports = names.iter().map(|name| (name.to_string(), report.clone())).collect();
    assert_eq!(stale(&podinfo, &all), ["dev/podinfo/HelmRelease/podinfo", "prod/ap/HelmRelease/podinfo"]);
    // Every field is serialized, so a merge patch leaves no part of the earlier report.
    let Value::Object(written) = json!(sluice_api::pipeline::Report::default()) else { panic!() };
    assert_eq!(written.len(), 9);
}

/// Stores the report of an event in the pipeline, or returns why it is rejected.
fn store(podinfo: &mut Pipeline, environment: &str, event: &ReceivedEvent) -> Result<(), String> {
    check(podinfo, environment, event, NOW.parse().unwrap()).unwrap();
    let written = match report::status_change(podinfo, environment, event, NOW.parse().unwrap()) {
        StatusChange::Write(written) => written,
        StatusChange::Rejected(why) => return Err(why),
        other => panic!("{other:?}"),
    };
    let reports = &mut podinfo.status.get_or_insert_default().reports;
    for (key, report) in written["reports"].as_object().unwrap() {
        match serde_json::from_value(report.clone()).unwrap() {
            Some(report) => reports.insert(key.clone(), report),
            None => reports.remove(key),
        };
    }
    Ok(())
}

#[test]
fn the_size_of_all_reports_of_a_pipeline_is_limited() {
    let mut podinfo = pipeline("HelmRelease", &[]);
    let one = podinfo.spec.environments[1].targets[0].clone();
    let target = |n: usize| {
        let mut target = one.clone();
        target.name = Some(format!("t{n}"));
        target.cluster_ref.as_mut().unwrap().name = format!("c{n}");
        target
    };
    podinfo.spec.environments[1].targets = (0..128).map(target).collect();
    let mut edge = podinfo.spec.environments[1].clone();
    edge.name = "edge".into();
    podinfo.spec.environments.push(edge);
    let failure_with_long_message = |n: usize| {
        let mut event = with_metadata(event("UpgradeFailed", "6.1.9", 0, 1), "cluster", &format!("c{n}"));
        // Each character takes two bytes in JSON.
        event.message = "\"".repeat(2000);
        event
    };
    for (environment, n) in ["prod", "edge"].into_iter().flat_map(|e| (0..128).map(move |n| (e, n))) {
        store(&mut podinfo, environment, &failure_with_long_message(n)).unwrap();
        let size = reported::size(&podinfo.status.as_ref().unwrap().reports);
        assert!(size <= MAX_REPORTS_BYTES, "{environment} {n}: {size} bytes");
    }
    let health_and_has_long_message = |podinfo: &Pipeline, target: &str| {
        let report = &podinfo.status.as_ref().unwrap().reports[&format!("{target}/HelmRelease/podinfo")];
        (report.health, report.message.len() > 1000)
    };
    // If the reports are too large, all messages are dropped, and the health stays, so that the messages of some
    // clusters do not prevent the reports of others.
    assert_eq!(
        (
            health_and_has_long_message(&podinfo, "prod/t0"),
            health_and_has_long_message(&podinfo, "edge/t127")
        ),
        ((Health::Failed, false), (Health::Failed, true))
    );

    // These are so many reports that they are too large even without messages.
    let many = podinfo.spec.environments[1].targets.clone();
    for e in 0..14 {
        let mut environment = podinfo.spec.environments[1].clone();
        (environment.name, environment.targets) = (format!("e{e}"), many.clone());
        podinfo.spec.environments.push(environment);
    }
    let filled = |e: usize, n: usize| {
        let mut report = podinfo.status.as_ref().unwrap().reports["prod/t0/HelmRelease/podinfo"].clone();
        (report.message, report.app) = (String::new(), "x".repeat(256));
        (format!("e{e}/t{n}/HelmRelease/podinfo"), report)
    };
    let all: Reports =
        (0..10).flat_map(|e| (0..128).map(move |n| (e, n))).map(|(e, n)| filled(e, n)).collect();
    podinfo.status.as_mut().unwrap().reports = all;
    let before = reported::size(&podinfo.status.as_ref().unwrap().reports);
    assert!(before > MAX_REPORTS_BYTES, "{before}");
    let success =
        |n: usize| with_metadata(event("UpgradeSucceeded", "6.2.0", 30, 2), "cluster", &format!("c{n}"));
    let why = store(&mut podinfo, "e13", &success(0)).unwrap_err();
    assert!(why.contains("split the pipeline into two"), "{why}");
    // A report that is smaller than the one it replaces is stored all the same.
    store(&mut podinfo, "e3", &success(0)).unwrap();
    assert!(reported::size(&podinfo.status.as_ref().unwrap().reports) < before);
}

proptest! {
    /// In whatever order and however often events arrive, the stored report is that of the newest.
    #[test]
    fn the_report_depends_neither_on_order_nor_on_repetition(
        mut drawn in prop::collection::vec((0..4usize, 0..3i64, 0..3u64), 1..8),
        seed in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let reasons = ["UpgradeSucceeded", "InstallSucceeded", "UpgradeFailed", "InstallFailed"];
        drawn.sort_unstable();
        drawn.dedup_by_key(|(of, second, version)| (*of / 2, *second, *version));
        let make = |(of, second, version): (usize, i64, u64)| {
            event(reasons[of], &format!("1.{second}.{version}"), second, version)
        };
        let weight = |of: usize| of / 2;
        let mut ordered = drawn.clone();
        ordered.sort_by_key(|(of, second, version)| (*second, *version, weight(*of)));
        let fold = |events: &mut dyn Iterator<Item = ReceivedEvent>| {
            events.fold(None, |stored, event| updated(stored.as_ref(), &event).or(stored))
        };
        let in_order = fold(&mut ordered.iter().copied().map(make)).unwrap();
        let mixed = seed.iter().map(|index| *index.get(&drawn)).chain(ordered.last().copied());
        let mixed = fold(&mut mixed.map(make)).unwrap();
        prop_assert_eq!((in_order.time, in_order.version, in_order.health), (mixed.time, mixed.version, mixed.health));
    }
}
