//! The reports of targets with `observe: Push`: what a signed event proves about such a target. Pure: new reports
//! are computed from the event and the stored reports. Events may arrive late, in any order and more than once, so
//! their order is that of their own times and of their objects' resource versions.

use sluice_core::Time;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use sluice_api::hook_key;
use sluice_api::lenient::Lenient;
use sluice_api::pipeline::{Environment, Health, Observe, Pipeline, Report, Target};
use sluice_core::revision::Facet;
use sluice_core::value_check;

use super::event::{Meaning, NO_REVISION, ReceivedEvent};
use super::status_change::{MAX_TEXT, StatusChange};
use crate::observe::reported::{self, Reports};

/// How far the clock of a cluster may be ahead of this replica's clock.
const MAX_CLOCK_AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// How old an accepted event may be. Flux tries to send an event for at most two minutes, and clocks differ. An
/// older event is probably a replayed call.
const MAX_EVENT_AGE: SignedDuration = SignedDuration::from_mins(60);
/// The names of the parts of a revision in the metadata of Flux's events.
const REVISION: &str = "revision";
const APP: &str = "app-version";
const DIGEST: &str = "oci-digest";
/// The longest reason, in bytes: that of the API server's own events.
const MAX_REASON_BYTES: usize = 128;
/// The longest appVersion, in bytes.
const MAX_APP_VERSION_BYTES: usize = 256;
/// The largest size of all reports of a pipeline together, in bytes of JSON. etcd accepts objects up to 1.5 MB,
/// and the status of a larger one could not be written any more.
pub const MAX_REPORTS_BYTES: usize = 512 << 10;
/// The highest resource version that is stored: the API server does not change integers up to this one.
const MAX_VERSION: u64 = (1 << 53) - 1;

/// Returns the names of the reports that an event updates: those of its object in each target with `observe: Push`
/// that has the event's namespace and cluster.
pub fn names(pipeline: &Pipeline, environment: &str, event: &ReceivedEvent) -> BTreeSet<String> {
    let object = &event.involved_object;
    let member = (object.kind.as_str(), object.name.as_str());
    let mut names = BTreeSet::new();
    for spec in pipeline.spec.environments.iter().filter(|e| e.name == environment) {
        for (target, target_name) in spec.targets.iter().zip(spec.target_names()) {
            let is_updated = target.observe == Observe::Push
                && target.namespace == object.namespace
                && is_on_cluster(pipeline, spec, target, event.metadata("cluster"))
                && reported::members(pipeline.spec.app_ref.as_ref(), target).contains(&member);
            if is_updated {
                names.insert(reported::key(environment, &target_name, member));
            }
        }
    }
    names
}

/// Returns the name of the key that signs the reports of a cluster, by the cluster's name in an event; `None` if
/// no target with `observe: Push` in the environment is on that cluster.
pub fn key_name(pipeline: &Pipeline, environment: &str, cluster: Option<&str>) -> Option<String> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let spec = pipeline.spec.environments.iter().find(|e| e.name == environment)?;
    let is_pushed_from =
        |target: &&Target| target.observe == Observe::Push && is_on_cluster(pipeline, spec, target, cluster);
    let target = spec.targets.iter().find(is_pushed_from)?;
    target.cluster_ref.as_ref().map(|cluster| hook_key::report_key(cluster, home))
}

/// Returns true if the cluster in an event is that of a target. The event names it by namespace and name, or by
/// the name alone if only one cluster of the environment has that name.
fn is_on_cluster(pipeline: &Pipeline, spec: &Environment, target: &Target, named: Option<&str>) -> bool {
    let Some((named, cluster)) = named.zip(target.cluster_ref.as_ref()) else {
        return false;
    };
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    match named.split_once('/') {
        Some((namespace, name)) => cluster.name == name && cluster.namespace_or(home) == namespace,
        None => spec.name_of_cluster(cluster, home) == named,
    }
}

/// Checks that an event can be stored as a report.
///
/// # Errors
/// When the event is for another pipeline or environment, too old, ahead of this replica's clock, or has a value
/// of another form than Flux's: what is wrong, and what to fix.
pub fn check(
    pipeline: &Pipeline,
    environment: &str,
    event: &ReceivedEvent,
    now: Timestamp,
) -> Result<(), String> {
    let (namespace, name) = (pipeline.metadata.namespace.as_deref(), pipeline.metadata.name.as_deref());
    let own = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
    for (key, wanted) in [("pipeline", own.as_str()), ("environment", environment)] {
        if let Some(other) = event.metadata(key).filter(|named| *named != wanted) {
            return Err(format!(
                "the event is for {key} {other}, and was sent to {wanted}: correct the Provider's address or the \
                 Alert's eventMetadata (sluice export alert writes both)"
            ));
        }
    }
    let Some(at) = event.timestamp else {
        return Err("the event has no timestamp: only events of Flux's own controllers are accepted".into());
    };
    let age = now.duration_since(at);
    if age < -MAX_CLOCK_AHEAD {
        return Err(format!(
            "the event's timestamp is {at}, and the time here is {now}: correct the clock of its cluster"
        ));
    }
    if age > MAX_EVENT_AGE {
        return Err(format!(
            "the event's timestamp is {at}, more than an hour ago, so it proves nothing about now: if the clock of \
             its cluster is right, send a new event with flux reconcile"
        ));
    }
    if event.meaning() == Meaning::Deployed && event.revision().is_none() {
        return Err(NO_REVISION.into());
    }
    let is_release = event.involved_object.kind == "HelmRelease";
    let of_revision = if is_release { Facet::Chart } else { Facet::Source };
    for (key, facet) in [(REVISION, of_revision), (DIGEST, Facet::Digest)] {
        if let Some(Err(why)) = event.metadata(key).map(|value| value_check::check(&facet, value)) {
            return Err(format!("the event's {key} is no value that Flux sends: {why}"));
        }
    }
    // The author of a chart chooses its appVersion freely.
    let app = event.metadata(APP).unwrap_or_default();
    for (key, text, most) in
        [("reason", event.reason.as_str(), MAX_REASON_BYTES), (APP, app, MAX_APP_VERSION_BYTES)]
    {
        if text.len() > most || text.contains(value_check::is_unsafe) {
            return Err(format!(
                "the event's {key} is too long or has invisible characters: write up to {most} bytes on one line"
            ));
        }
    }
    Ok(())
}

/// Returns the report after an event; `None` if the event is not newer than the stored report, or reports neither
/// success nor failure. A failure keeps the revision that ran before. If the stored time is ahead of `now`, a
/// wrong clock has made it, so the resource version decides which is newer.
pub fn updated(before: Option<&Report>, event: &ReceivedEvent, now: Timestamp) -> Option<Report> {
    let meaning = event.meaning();
    let at = event.timestamp?;
    let version = event.involved_object.resource_version.parse::<u64>().unwrap_or_default().min(MAX_VERSION);
    let blank = Report::default();
    let last = before.unwrap_or(&blank);
    let tested = event.is_test_result();
    // After two releases in a row without a test result, the object has no tests any more.
    let untested = meaning == Meaning::Deployed && last.health == Health::Progressing;
    let tests = tested || (last.tests && !untested);
    let health = match meaning {
        Meaning::Nothing => return None,
        Meaning::Failed => Health::Failed,
        Meaning::Deployed if tests && event.involved_object.kind == "HelmRelease" && !tested => {
            Health::Progressing
        }
        Meaning::Deployed => Health::Ready,
    };
    // Events with the same time and version are ordered by the course of a release: it is released, its tests
    // succeed, something fails.
    let order = |health: Health| match health {
        Health::Progressing => 1,
        Health::Ready => 2,
        _ => 3,
    };
    let stored = before.map(|b| (b.time, b.version, order(b.health)));
    let is_old = stored.is_some_and(|(time, stored_version, stored_order)| {
        let is_older = (version, order(health)) <= (stored_version, stored_order);
        match time.duration_since(now) > MAX_CLOCK_AHEAD {
            true => is_older && version > 0,
            false => at.as_second() < time.as_second() || at.as_second() == time.as_second() && is_older,
        }
    });
    if is_old {
        return None;
    }
    let message = match health {
        Health::Ready => String::new(),
        Health::Progressing => {
            "it is released, and no event has reported yet that its tests succeeded".into()
        }
        _ => crate::record::safe_message(&event.message, MAX_TEXT),
    };
    let deployed_or = |key: &str, last: &str| match meaning {
        Meaning::Deployed => event.metadata(key).unwrap_or_default().to_string(),
        _ => last.to_string(),
    };
    Some(Report {
        time: Time::to_second(at),
        version,
        health,
        reason: event.reason.clone(),
        message,
        revision: deployed_or(REVISION, &last.revision),
        app: deployed_or(APP, &last.app),
        digest: deployed_or(DIGEST, &last.digest),
        tests,
    })
}

/// Returns the change that an event makes to the reports of a pipeline. If all of them together are too large,
/// their messages are dropped. If they are too large without messages, the event is rejected.
pub fn status_change(
    pipeline: &Pipeline,
    environment: &str,
    event: &ReceivedEvent,
    now: Timestamp,
) -> StatusChange {
    let none = Reports::new();
    let stored = pipeline.status.as_ref().map_or(&none, |status| &status.reports);
    let update = |name: String| updated(stored.get(&name), event, now).map(|report| (name, report));
    let new: Reports = names(pipeline, environment, event).into_iter().filter_map(update).collect();
    if new.is_empty() {
        return StatusChange::Unchanged;
    }
    let stale = stale(pipeline, stored);
    let mut all = stored.clone();
    all.retain(|name, _| !stale.contains(name));
    all.extend(new);
    if reported::size(&all) > MAX_REPORTS_BYTES {
        all.values_mut().for_each(|report| crate::record::cut(&mut report.message, 0));
    }
    // A change that makes the reports smaller is accepted even if they stay too large.
    if reported::size(&all) > MAX_REPORTS_BYTES.max(reported::size(stored)) {
        return StatusChange::Rejected(format!(
            "there is no room for another report: the reports of this pipeline take {} KiB, which is the most they \
             may take; split the pipeline into two",
            MAX_REPORTS_BYTES >> 10
        ));
    }
    let changed = all.into_iter().filter(|(name, report)| stored.get(name) != Some(report));
    let mut reports: Map<String, Value> = changed.map(|(name, report)| (name, json!(report))).collect();
    reports.extend(stale.into_iter().map(|name| (name, Value::Null)));
    StatusChange::Write(json!({"reports": reports}))
}

/// Returns the unreadable part of a status that belongs to a report which an event would replace. It cannot be
/// decided whether the event is newer than such a report.
pub fn unreadable_part<'a>(
    read: &'a Lenient<Pipeline>,
    environment: &str,
    event: &ReceivedEvent,
) -> Option<&'a str> {
    let names = names(&read.object, environment, event);
    let paths: Vec<String> = names.iter().map(|name| format!("status.reports.{name}")).collect();
    let decides = |part: &&String| {
        let is_in = |path: &str| part.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', ':']));
        let has_all = part.starts_with("status.reports:") || read.object.status.is_none();
        has_all || paths.iter().any(|path| is_in(path))
    };
    read.left_out.iter().find(decides).map(String::as_str)
}

/// Returns the names of the stored reports that belong to no target of the pipeline.
pub fn stale(pipeline: &Pipeline, reports: &Reports) -> Vec<String> {
    let mut known = BTreeSet::new();
    for environment in &pipeline.spec.environments {
        for (target, name) in environment.targets.iter().zip(environment.target_names()) {
            if target.observe == Observe::Push {
                let members = reported::members(pipeline.spec.app_ref.as_ref(), target);
                known.extend(members.into_iter().map(|m| reported::key(&environment.name, &name, m)));
            }
        }
    }
    reports.keys().filter(|key| !known.contains(*key)).cloned().collect()
}
