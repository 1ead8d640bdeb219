//! `explain`: one row for each reason why an environment does not get a revision.

use serde_json::json;
use sluice_api::{Pipeline, Promotion};
use sluice_view::explain::{Situation, explain};

use crate::fixture::{now, pipeline, promotion, runs, target};

/// Returns the explanation of prod, as lines.
fn prod(pipeline: &Pipeline, promotions: &[Promotion]) -> String {
    let all = explain(pipeline, promotions, now());
    let prod = all.iter().find(|e| e.environment == "prod").unwrap();
    let next = prod.next.iter().map(|command| format!("► {command}"));
    let until = prod.until.iter().map(|until| format!("◎ {until}"));
    let lines: Vec<String> = prod.sentences.iter().cloned().chain(next).chain(until).collect();
    format!("{:?}\n{}", prod.situation, lines.join("\n"))
}

fn behind() -> Pipeline {
    pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.5", "Ready"),
    }))
}

/// The same, with what the controller has noted about prod.
fn behind_with_note(message: &str) -> Pipeline {
    let mut noted = behind();
    let environments = &mut noted.status.as_mut().unwrap().environments;
    environments.get_mut("prod").unwrap().message = message.into();
    noted
}

#[test]
fn an_environment_that_runs_what_was_proven_has_nothing_to_wait_for() {
    let even = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.8", "Ready"),
    }));
    let ended = promotion("prod", 1, json!({"phase": "Succeeded"}));
    insta::assert_snapshot!(prod(&even, &[ended]), @r"
    UpToDate
    prod runs 6.1.8, as staging does.
    ");
    let first = &explain::<Promotion>(&even, &[], now())[0];
    assert_eq!(first.situation, Situation::Observed, "{first:?}");
}

#[test]
fn a_closed_gate_names_the_command_that_opens_it() {
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval: sluice approve -n apps podinfo-prod-1"});
    let pending = promotion("prod", 1, json!({"phase": "Pending", "gates": [gate]}));
    insta::assert_snapshot!(prod(&behind(), &[pending]), @r"
    Blocked
    6.1.8 waits for approval
    ► sluice approve podinfo-prod-1 -n apps
    ");
}

#[test]
fn an_approved_promotion_whose_proof_is_gone_is_not_about_to_be_delivered() {
    let says = "6.1.8 waits: it is not proven in staging, and 6.1.7 is older";
    let gate = json!({"name": "Approval", "open": true, "message": "approved by jane"});
    let pending = promotion("prod", 1, json!({"phase": "Pending", "message": says, "gates": [gate]}));
    assert_eq!(prod(&behind(), &[pending]), format!("Blocked\n{says}"));
}

#[test]
fn a_promotion_that_started_again_comes_before_newer_ones_that_have_ended() {
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval: sluice approve -n apps podinfo-prod-1"});
    let pending = promotion("prod", 1, json!({"phase": "Pending", "gates": [gate]}));
    let superseded = promotion("prod", 2, json!({"phase": "Superseded"}));
    let alone = prod(&behind(), std::slice::from_ref(&pending));
    assert_eq!(prod(&behind(), &[pending, superseded]), alone);
}

#[test]
fn a_failed_delivery_says_the_cause_and_when_it_is_tried_again() {
    let status = json!({"phase": "Promoting", "attempts": 3, "nextAttempt": "2026-11-21T12:02:30Z",
        "message": "cannot push to https://git.example.com/fleet.git: authentication failed"});
    insta::assert_snapshot!(prod(&behind(), &[promotion("prod", 1, status)]), @r"
    Blocked
    The delivery of 6.1.8 into prod failed: cannot push to https://git.example.com/fleet.git: authentication failed
    It was tried 3 times. The next attempt is in 2 minutes.
    ► sluice retry podinfo-prod-1 -n apps
    ◎ 2026-11-21T12:02:30Z
    ");
}

/// The status of the Pipeline is older than that of the Promotion.
#[test]
fn an_approved_promotion_does_not_wait_for_an_approval() {
    let pipeline = behind_with_note("6.1.8 waits for approval: sluice approve -n apps podinfo-prod-1");
    let gate = json!({"name": "Approval", "open": true});
    let status =
        json!({"phase": "Promoting", "gates": [gate], "attempts": 1, "message": "no file has the marker"});
    let explained = prod(&pipeline, &[promotion("prod", 1, status)]);
    assert!(!explained.contains("waits for approval"), "{explained}");
    assert!(explained.contains("no file has the marker"), "{explained}");
}

#[test]
fn an_open_change_request_is_named_with_what_it_waits_for() {
    let request = json!({"number": 7, "url": "https://git.example.com/fleet/pulls/7", "state": "open",
        "branch": "sluice/apps/podinfo/prod", "headCommit": "c0ffee"});
    let status =
        json!({"phase": "Proposed", "changeRequest": request, "message": "waits for the check build"});
    insta::assert_snapshot!(prod(&behind(), &[promotion("prod", 1, status)]), @r"
    Blocked
    6.1.8 waits in change request #7 (https://git.example.com/fleet/pulls/7): waits for the check build
    ");
}

#[test]
fn a_delivery_that_goes_on_alone_needs_no_person() {
    let situation = |status: serde_json::Value| {
        let all = explain(&behind(), &[promotion("prod", 1, status)], now());
        all.iter().find(|e| e.environment == "prod").unwrap().situation
    };
    let failed = |reason: &str, attempts: u32| {
        situation(json!({"phase": "Promoting", "reason": reason, "message": "why", "attempts": attempts}))
    };
    assert_eq!(situation(json!({"phase": "Promoting"})), Situation::Moving);
    assert_eq!(failed("NoMarker", 1), Situation::Blocked);
    assert_eq!(failed("Unreachable", 1), Situation::Waiting);
    assert_eq!(failed("Unreachable", 5), Situation::Blocked);
    assert_eq!(failed("RateLimited", 5), Situation::Waiting);
    let proposed = |merge: &str, state: &str| {
        situation(
            json!({"phase": "Proposed", "changeRequest": {"number": 7, "url": "https://git.example.com/7",
            "state": state, "branch": "b", "headCommit": "c", "strategy": {"type": "github",
            "url": "https://git.example.com/fleet.git", "secretRef": {"name": "s"}, "merge": merge}}}),
        )
    };
    assert_eq!(proposed("Never", "open"), Situation::Blocked);
    assert_eq!(proposed("WhenGreen", "open"), Situation::Waiting);
    assert_eq!(proposed("Never", "merged"), Situation::Waiting);
}

#[test]
fn an_environment_that_is_only_observed_says_that_it_differs() {
    let observed = |runs_prod: &str| {
        let mut pipeline = pipeline(json!({
            "dev": runs("dev", "6.3.0", "Ready"),
            "staging": runs("staging", "6.3.0", "Ready"),
            "prod": runs("prod", runs_prod, "Ready"),
        }));
        pipeline.spec.promotion = None;
        pipeline.spec.environments.iter_mut().for_each(|environment| environment.promotion = None);
        pipeline
    };
    assert_eq!(
        prod(&observed("6.2.0"), &[]),
        "Differs\nprod runs 6.2.0, staging 6.3.0; Sluice only observes this pipeline."
    );
    assert!(prod(&observed("6.3.0"), &[]).starts_with("Observed\n"));
    // Other environments of the pipeline are promoted into.
    let mut mixed = observed("6.2.0");
    mixed.spec.environments[1].promotion = behind().spec.promotion.map(Box::new);
    assert!(prod(&mixed, &[]).ends_with("prod runs 6.2.0, staging 6.3.0; Sluice only observes prod."));
}

#[test]
fn a_delivered_revision_that_flux_cannot_apply_says_why_first() {
    let says = "6.1.8 does not arrive in prod: Kustomization flux-system/fleet is Failed (flux get kustomizations fleet -n \
                flux-system): kustomize build failed: MalformedYAMLError";
    let mut noted = behind();
    noted.status.as_mut().unwrap().environments.get_mut("prod").unwrap().message = says.into();
    let status = json!({"phase": "Delivered", "reason": "Committed",
        "message": "committed as 1eabc9a4; waits for the targets to run it"});
    insta::assert_snapshot!(prod(&noted, &[promotion("prod", 1, status)]), @r"
    Blocked
    6.1.8 does not arrive in prod: Kustomization flux-system/fleet is Failed: kustomize build failed: MalformedYAMLError
    6.1.8 is delivered, and prod does not run it yet: committed as 1eabc9a4; waits for the targets to run it
    ► flux get kustomizations fleet -n flux-system
    ");
}

#[test]
fn headlines_have_short_checksums_and_each_address_once() {
    let sha = "1eabc9a41ca088515cab83f1cce49eb43e84b67f";
    let url = format!("https://git.example.com/fleet/commit/{sha}");
    let says = format!("committed as {sha}, {url}; waits for the targets to run it");
    let delivered = promotion("prod", 1, json!({"phase": "Delivered", "message": says}));
    let says = prod(&behind(), &[delivered]);
    assert!(says.contains(&format!(": committed as 1eabc9a4, {url}; waits")), "{says}");

    let url = "https://git.example.com/fleet/pulls/7";
    let status = json!({"phase": "Proposed", "message": format!("waits for {url} to be merged"),
        "changeRequest": {"number": 7, "url": url, "state": "open", "branch": "b", "headCommit": "c"}});
    let says = prod(&behind(), &[promotion("prod", 1, status)]);
    assert_eq!(says, format!("Blocked\n6.1.8 waits in change request #7: waits for {url} to be merged"));
}

#[test]
fn a_broken_target_of_a_first_environment_is_the_cause() {
    let broken = target("dev", "6.1.8", "Failed", "HelmRelease/podinfo is Failed: timed out");
    let failed = pipeline(json!({
        "dev": {"health": "Failed", "revision": "6.1.8", "targets": [broken]},
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.8", "Ready"),
    }));
    let dev = &explain::<Promotion>(&failed, &[], now())[0];
    assert_eq!(dev.situation, Situation::Blocked);
    assert_eq!(dev.sentences[0], "Target dev is Failed: HelmRelease/podinfo is Failed: timed out");
}

#[test]
fn a_delivered_revision_waits_for_flux() {
    let status = json!({"phase": "Delivered", "message": "commit 1eabc9a4; waits for the targets to run it"});
    insta::assert_snapshot!(prod(&behind(), &[promotion("prod", 1, status)]), @r"
    Moving
    6.1.8 is delivered, and prod does not run it yet: commit 1eabc9a4; waits for the targets to run it
    ");
}

#[test]
fn a_failed_or_rejected_revision_needs_a_person() {
    for (phase, expected) in
        [("Failed", "6.1.8 failed in prod: why"), ("Rejected", "6.1.8 was rejected for prod: why")]
    {
        let ended = promotion("prod", 1, json!({"phase": phase, "message": "why"}));
        let said = prod(&behind(), &[ended]);
        assert_eq!(said, format!("Blocked\n{expected}\n► sluice retry podinfo-prod-1 -n apps"));
    }
}

#[test]
fn a_predecessor_that_is_not_healthy_proves_nothing() {
    let broken = target("staging", "6.1.8", "Failed", "HelmRelease/podinfo: Helm upgrade failed: timed out");
    let held = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": {"health": "Failed", "revision": "6.1.8", "targets": [broken]},
        "prod": runs("prod", "6.1.5", "Ready"),
    }));
    insta::assert_snapshot!(prod(&held, &[]), @r"
    Waiting
    No newer revision is proven in staging: its target staging is Failed since 2026-11-21T11:50:00Z: HelmRelease/podinfo: Helm upgrade failed: timed out
    ");
}

#[test]
fn the_note_of_the_controller_comes_before_its_consequences() {
    let noted =
        behind_with_note("6.1.8 waits: no workload here has the same kind and name as a workload in staging");
    insta::assert_snapshot!(prod(&noted, &[]), @r"
    Waiting
    6.1.8 waits: no workload here has the same kind and name as a workload in staging
    staging runs 6.1.8; prod runs 6.1.5.
    ");
}

/// The note about an environment whose targets are promoted into separately begins with the target that has its reason.
#[test]
fn a_note_that_needs_a_person_is_about_the_target_that_it_names() {
    let mut separate = behind();
    let strategy = json!({"pull-request": {"type": "github", "url": "https://github.com/a/b", "baseBranch": "main",
        "per": "Target", "secretRef": {"name": "fleet"}}});
    let targets = json!([{"name": "eu", "namespace": "eu"}, {"name": "us", "namespace": "us"}]);
    let prod = separate.spec.environments.last_mut().unwrap();
    prod.targets = serde_json::from_value(targets).unwrap();
    prod.promotion = serde_json::from_value(json!({"strategy": strategy})).unwrap();
    let targets = json!([target("eu", "6.1.5", "Ready", ""), target("us", "6.1.8", "Ready", "")]);
    for (reason, message, of_us) in [
        ("Ended", "eu: 6.1.8 was promoted before, and something else runs here now", Situation::Waiting),
        ("Tampered", "the record of 6.1.8 was changed", Situation::Blocked),
    ] {
        let prod = separate.status.as_mut().unwrap().environments.get_mut("prod").unwrap();
        prod.targets = serde_json::from_value(targets.clone()).unwrap();
        (prod.reason, prod.message) = (reason.into(), message.into());
        let all = explain::<Promotion>(&separate, &[], now());
        let situations: Vec<_> = all.iter().map(|e| (e.environment.as_str(), e.situation)).skip(2).collect();
        assert_eq!(situations, [("prod/eu", Situation::Blocked), ("prod/us", of_us)], "{reason}");
    }
}

#[test]
fn a_target_that_cannot_be_read_blocks_and_says_why() {
    let lost =
        target("prod", "6.1.5", "Unknown", "cluster fleet/prod refuses the connection: start its API server");
    let blind = pipeline(json!({
        "dev": runs("dev", "6.1.5", "Ready"),
        "staging": runs("staging", "6.1.5", "Ready"),
        "prod": {"health": "Unknown", "revision": "6.1.5", "targets": [lost]},
    }));
    insta::assert_snapshot!(prod(&blind, &[]), @r"
    Blocked
    Target prod is Unknown: cluster fleet/prod refuses the connection: start its API server
    prod runs 6.1.5, as staging does.
    ");
}

#[test]
fn no_approval_is_suggested_while_no_target_can_be_read() {
    let why = "cluster fleet/prod refuses the connection: start its API server";
    let lost = |name: &str| target(name, "6.1.5", "Unknown", why);
    let prod_with = |targets: serde_json::Value| {
        let mut pipeline = pipeline(json!({
            "dev": runs("dev", "6.1.8", "Ready"),
            "staging": runs("staging", "6.1.8", "Ready"),
            "prod": {"health": "Unknown", "revision": "6.1.5", "targets": targets},
        }));
        let environments = &mut pipeline.status.as_mut().unwrap().environments;
        environments.get_mut("prod").unwrap().message = format!("6.1.8 waits: no target can be read: {why}");
        pipeline
    };
    let gate = json!({"name": "Approval", "open": false, "message": "waits for approval: sluice approve -n apps podinfo-prod-1"});
    let pending = promotion("prod", 1, json!({"phase": "Pending", "gates": [gate]}));
    insta::assert_snapshot!(prod(&prod_with(json!([lost("eu"), lost("us")])), std::slice::from_ref(&pending)), @r"
    Blocked
    6.1.8 waits: no target can be read: cluster fleet/prod refuses the connection: start its API server
    6.1.8 waits for approval
    Nothing is delivered until a target can be read, also after an approval.
    ► sluice check -n apps
    ");
    // A gate that has opened changes nothing: the promotion is not about to be delivered.
    let open = promotion("prod", 1, json!({"phase": "Pending"}));
    insta::assert_snapshot!(prod(&prod_with(json!([lost("eu")])), &[open]), @r"
    Blocked
    6.1.8 waits: no target can be read: cluster fleet/prod refuses the connection: start its API server
    ► sluice check -n apps
    ");
    // One target can be read, so an approval has an effect.
    let mut one = prod_with(json!([lost("eu"), target("us", "6.1.5", "Ready", "")]));
    one.status.as_mut().unwrap().environments.get_mut("prod").unwrap().message = String::new();
    insta::assert_snapshot!(prod(&one, &[pending]), @r"
    Blocked
    6.1.8 waits for approval
    Target eu of prod is Unknown: cluster fleet/prod refuses the connection: start its API server
    ► sluice approve podinfo-prod-1 -n apps
    ");
}

#[test]
fn a_suspended_pipeline_says_so_first() {
    let mut suspended = behind();
    suspended.spec.suspend = true;
    let said = prod(&suspended, &[]);
    insta::assert_snapshot!(said, @r"
    Blocked
    The pipeline is suspended: nothing is promoted until it is resumed.
    staging runs 6.1.8; prod runs 6.1.5.
    ► sluice resume podinfo -n apps
    ");
}

#[test]
fn without_a_status_the_explanation_points_to_the_controller() {
    let mut silent = behind();
    silent.status = None;
    let all = explain::<Promotion>(&silent, &[], now());
    assert!(all.iter().all(|e| e.situation == Situation::Unknown), "{all:?}");
    let mut old = behind();
    old.metadata.generation = Some(3);
    let said = prod(&old, &[]);
    assert!(said.starts_with("Unknown\nThe controller has not seen the last change"), "{said}");
}

#[test]
fn promotions_of_other_pipelines_do_not_count() {
    let mut other = promotion("prod", 1, json!({"phase": "Failed", "message": "why"}));
    other.spec.pipeline = "search".into();
    let said = prod(&behind(), &[other]);
    assert!(!said.contains("failed"), "{said}");
}

#[test]
fn an_environment_without_a_revision_says_why() {
    let no_revision = |mut target: serde_json::Value| {
        target["revision"] = json!(null);
        json!({"health": target["health"], "targets": [target]})
    };
    let with = |staging: serde_json::Value, prod: serde_json::Value| {
        pipeline(json!({"dev": runs("dev", "6.1.8", "Ready"), "staging": staging, "prod": prod}))
    };
    // Nothing in staging has what the pipeline tracks: the pipeline never moves.
    let mut silent = with(no_revision(target("staging", "", "Ready", "")), runs("prod", "6.1.5", "Ready"));
    silent.spec.tracks = vec!["source".into()];
    insta::assert_snapshot!(prod(&silent, &[]), @r"
    Blocked
    Target staging of staging is Ready and has no revision: nothing that runs there has what the pipeline tracks (source). Correct spec.tracks of the Pipeline.
    ");
    let why = "there is no GitopsCluster fleet/prod: create it, or correct the target's clusterRef";
    let mut blind = with(runs("staging", "6.1.8", "Ready"), no_revision(target("prod", "", "Unknown", why)));
    blind.status.as_mut().unwrap().environments.get_mut("prod").unwrap().message =
        format!("6.1.8 waits: no target can be read: {why}");
    insta::assert_snapshot!(prod(&blind, &[]), @r"
    Blocked
    6.1.8 waits: no target can be read: there is no GitopsCluster fleet/prod: create it, or correct the target's clusterRef
    staging runs 6.1.8.
    It is not known what prod runs.
    ");
    let targets = [target("eu", "6.1.8", "Ready", ""), target("us", "6.1.7", "Ready", "")];
    let differ = with(json!({"health": "Ready", "targets": targets}), runs("prod", "6.1.5", "Ready"));
    insta::assert_snapshot!(prod(&differ, &[]), @r"
    Waiting
    The targets of staging run different revisions.
    ");
}

/// A pipeline of 16 environments, each after all before it, with 128 targets each that are promoted into separately.
fn huge() -> Pipeline {
    let name = |e: usize| format!("e{e:02}-{}", "x".repeat(50));
    let targets = |e: usize| (0..128).map(move |t| (format!("t{t:03}"), format!("{}-{t}", name(e))));
    let environments: Vec<_> = (0..16)
        .map(|e| {
            let targets: Vec<_> =
                targets(e).map(|(name, namespace)| json!({"name": name, "namespace": namespace})).collect();
            let after: Vec<_> = (0..e).map(name).collect();
            json!({"name": name(e), "targets": targets, "after": after})
        })
        .collect();
    let statuses: serde_json::Map<_, _> = (0..16)
        .map(|e| {
            let target = |(name, namespace): (String, String)| json!({"name": name, "namespace": namespace, "ready": false, "health": "Failed"});
            (name(e), json!({"targets": targets(e).map(target).collect::<Vec<_>>()}))
        })
        .collect();
    let strategy = json!({"pull-request": {"type": "github", "url": "https://github.com/a/b", "baseBranch": "main", "per": "Target", "secretRef": {"name": "fleet"}}});
    let mut huge = pipeline(json!({}));
    let spec = json!({"appRef": huge.spec.app_ref, "environments": environments, "promotion": {"strategy": strategy}});
    huge.spec = serde_json::from_value(spec).unwrap();
    huge.status = Some(serde_json::from_value(json!({"environments": statuses})).unwrap());
    huge
}

#[test]
fn a_pipeline_with_many_predecessors_and_targets_is_explained_in_few_sentences() {
    let all = explain::<Promotion>(&huge(), &[], now());
    assert_eq!(all.len(), 16 * 128);
    let bytes: usize = all.iter().flat_map(|place| &place.sentences).map(String::len).sum();
    assert!(bytes < 4 << 20, "{bytes} bytes");
    let last = &all.last().unwrap().sentences;
    assert!(
        last.iter().any(|s| s == "It has 1915 further predecessors, which are not named here."),
        "{last:?}"
    );
}

#[test]
fn a_predecessor_that_is_not_ready_is_named_before_those_that_are() {
    let names: Vec<String> = (0..7).map(|n| format!("dev-{n}")).collect();
    let all: Vec<_> = names.iter().map(String::as_str).chain(["prod"]).collect();
    let environments: Vec<_> = all.iter().map(|name| json!({"name": name, "targets": [{"namespace": name}], "after": if *name == "prod" { &names[..] } else { &[] }})).collect();
    let status = |name: &str| runs(name, "6.1.8", if name == "dev-6" { "Failed" } else { "Ready" });
    let mut broad = pipeline(
        all.iter().map(|name| (name.to_string(), status(name))).collect::<serde_json::Map<_, _>>().into(),
    );
    broad.spec.environments = serde_json::from_value(json!(environments)).unwrap();
    let said = prod(&broad, &[]);
    let cause = "Waiting\nNo newer revision is proven in dev-6: its target dev-6 is Failed";
    assert!(said.starts_with(cause) && said.contains("It has 2 further predecessors"), "{said}");
}

#[test]
fn an_explanation_says_since_when_it_is_so() {
    let since = |pipeline: &Pipeline, promotions: &[Promotion], environment: &str| {
        let all = explain(pipeline, promotions, now());
        let of = all.iter().find(|e| e.environment == environment).unwrap();
        of.heading("6").split_once("; ").map(|(_, since)| since.to_owned()).unwrap_or_default()
    };
    let proposed = json!({"phase": "Proposed", "times": {"Pending": "2026-11-21T11:02:00Z", "Proposed": "2026-11-21T11:03:00Z"}});
    let failed = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": {"health": "Failed", "revision": "6.1.8", "targets": [target("staging", "6.1.8", "Failed", "CrashLoopBackOff")]},
        "prod": runs("prod", "6.1.5", "Ready"),
    }));
    let text = |situation: &str, at: &str| format!("{situation} since 2026-11-21T{at}Z");
    let mut suspended = behind();
    suspended.spec.suspend = true;
    for (pipeline, promotions, environment, at) in [
        (behind(), vec![promotion("prod", 1, proposed)], "prod", text("waiting", "11:03:00")),
        // Nothing was recorded of it yet.
        (behind(), vec![promotion("prod", 1, json!({}))], "prod", text("moving", "11:01:00")),
        (failed, vec![], "staging", text("needs a person", "11:50:00")),
        // The time of the suspension is not recorded.
        (suspended, vec![promotion("prod", 1, json!({}))], "prod", String::new()),
        (behind(), vec![], "dev", String::new()),
    ] {
        assert_eq!(since(&pipeline, &promotions, environment), at, "{environment}");
    }
}

#[test]
fn a_delivered_revision_says_when_it_fails() {
    let fails = |timeout: Option<&str>, delivered: &str| {
        let mut waits = behind();
        waits.spec.environments[2].promotion.as_mut().unwrap().timeout = timeout.map(String::from);
        let status = json!({"phase": "Delivered", "times": {"Delivered": delivered}, "message": "committed"});
        let told = prod(&waits, &[promotion("prod", 1, status)]);
        told.lines().find(|line| line.starts_with("6.1.8 fails at")).unwrap_or_default().to_owned()
    };
    let at = |time: &str| format!("6.1.8 fails at {time} unless prod runs it healthily by then.");
    assert_eq!(fails(None, "2026-11-21T11:55:00Z"), at("2026-11-21T12:25:00Z"));
    assert_eq!(fails(Some("1h30m"), "2026-11-21T11:55:00Z"), at("2026-11-21T13:25:00Z"));
    // The controller is about to say it.
    assert_eq!(fails(Some("5m"), "2026-11-21T11:55:00Z"), "");
}
