//! What a signed event proves about a target that cannot be read. Pure: the event and what stands go
//! in, what shall stand comes out. Events may come late, twice and again long after; order is theirs
//! to tell, by their time and the version of the object that they speak of.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use sluice_api::hook_key;
use sluice_api::lenient::Lenient;
use sluice_api::pipeline::{Environment, Health, Observe, Pipeline, Report, Target};
use sluice_core::revision::Facet;
use sluice_core::value;

use super::event::{Event, Meaning, NO_REVISION};
use super::status_change::{Change, MAX_TEXT};
use crate::observe::reported::{self, Reports};
use crate::translate;

/// How far ahead of ours the clock of a cluster may be.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// How long ago something may have happened that is news: Flux gives an event up within two minutes,
/// and clocks differ. What is older is a call that somebody kept.
const OLD: SignedDuration = SignedDuration::from_mins(60);
/// What a revision is made of, in the metadata of Flux.
const REVISION: &str = "revision";
const APP: &str = "app-version";
const DIGEST: &str = "oci-digest";
/// The longest reason, in bytes: that of the API server's own events.
const WORD: usize = 128;
/// The longest appVersion, in bytes.
const WORDS: usize = 256;
/// What all reports of a pipeline may take together, in bytes of JSON: etcd takes 1.5 MB for an object,
/// and one that has grown beyond that has no status written any more.
pub const ROOM: usize = 512 << 10;
/// The highest version that is told from others: what the API server keeps as it is.
const MOST: u64 = (1 << 53) - 1;

/// The reports that an event is for: those of its object in each target with `observe: Push` that has
/// its namespace and its cluster.
pub fn keys(pipeline: &Pipeline, environment: &str, event: &Event) -> BTreeSet<String> {
    let object = &event.involved_object;
    let member = (object.kind.as_str(), object.name.as_str());
    let mut keys = BTreeSet::new();
    for of in pipeline.spec.environments.iter().filter(|e| e.name == environment) {
        for (target, name) in of.targets.iter().zip(of.target_names()) {
            let its = target.observe == Observe::Push
                && target.namespace == object.namespace
                && is_from(pipeline, of, target, event.metadata("cluster"))
                && reported::members(pipeline.spec.app_ref.as_ref(), target).contains(&member);
            if its {
                keys.insert(reported::key(environment, &name, member));
            }
        }
    }
    keys
}

/// The name of the key that signs the reports of the cluster of this name in an event; `None` if no target with
/// `observe: Push` in the environment is on that cluster.
pub fn key(pipeline: &Pipeline, environment: &str, said: Option<&str>) -> Option<String> {
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    let of = pipeline.spec.environments.iter().find(|e| e.name == environment)?;
    let is_its = |target: &&Target| target.observe == Observe::Push && is_from(pipeline, of, target, said);
    let target = of.targets.iter().find(is_its)?;
    target.cluster_ref.as_ref().map(|cluster| hook_key::report_key(cluster, home))
}

/// Whether what an event says of its cluster names that of a target: by namespace and name, or by the name
/// alone where that is one cluster's only. What may be from either of two proves nothing of one.
fn is_from(pipeline: &Pipeline, of: &Environment, target: &Target, said: Option<&str>) -> bool {
    let Some((said, cluster)) = said.zip(target.cluster_ref.as_ref()) else {
        return false;
    };
    let home = pipeline.metadata.namespace.as_deref().unwrap_or_default();
    match said.split_once('/') {
        Some((namespace, name)) => cluster.name == name && cluster.namespace_or(home) == namespace,
        None => of.name_of_cluster(cluster, home) == said,
    }
}

/// Why an event is no evidence whatever it says: what to mend.
///
/// # Errors
/// It has no time, one that is not ours, or it says itself that it is about something else.
pub fn check(pipeline: &Pipeline, environment: &str, event: &Event, now: Timestamp) -> Result<(), String> {
    let (namespace, name) = (pipeline.metadata.namespace.as_deref(), pipeline.metadata.name.as_deref());
    let own = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
    for (key, wanted) in [("pipeline", own.as_str()), ("environment", environment)] {
        if let Some(said) = event.metadata(key).filter(|said| *said != wanted) {
            return Err(format!(
                "the event says that it is for {key} {said}, and was sent to {wanted}: correct the Provider's address \
                 or the Alert's eventMetadata (sluice export alert writes both)"
            ));
        }
    }
    let Some(at) = event.timestamp else {
        return Err("the event has no timestamp: only events of Flux's own controllers are taken".into());
    };
    let age = now.duration_since(at);
    if age < -AHEAD {
        return Err(format!("the event is of {at}, and here it is {now}: correct the clock of its cluster"));
    }
    if age > OLD {
        return Err(format!(
            "the event is of {at}, more than an hour ago, and proves nothing about now: if the clock of its cluster \
             is right, flux reconcile makes a new one"
        ));
    }
    if event.meaning() == Meaning::Deployed && event.revision().is_none() {
        return Err(NO_REVISION.into());
    }
    let is_release = event.involved_object.kind == "HelmRelease";
    let of_revision = if is_release { Facet::Chart } else { Facet::Source };
    for (key, facet) in [(REVISION, of_revision), (DIGEST, Facet::Digest)] {
        if let Some(Err(why)) = event.metadata(key).map(|value| value::check(&facet, value)) {
            return Err(format!("the event's {key} is no value that Flux gives: {why}"));
        }
    }
    // Whoever makes a chart may write any words there.
    for (key, said, most) in
        [("reason", event.reason.as_str(), WORD), (APP, event.metadata(APP).unwrap_or_default(), WORDS)]
    {
        if said.len() > most || said.contains(value::is_unsafe) {
            return Err(format!(
                "the event's {key} is too long, or no words: up to {most} bytes on one line"
            ));
        }
    }
    Ok(())
}

/// What stands after an event; `None` where it is of before what stands, repeats it, or says nothing
/// of how the object is. What failed keeps the revision that ran before. A time that lies ahead of `now` was taken by
/// clocks that were ahead, and orders nothing: then the version of the object does, which no clock makes.
pub fn after(before: Option<&Report>, event: &Event, now: Timestamp) -> Option<Report> {
    let meaning = event.meaning();
    let at = event.timestamp?;
    let version = event.involved_object.resource_version.parse::<u64>().unwrap_or_default().min(MOST);
    let blank = Report::default();
    let last = before.unwrap_or(&blank);
    let tested = event.is_of_tests();
    // Two releases in a row without a word of their tests: they are not tested any more.
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
    // Of two words of one moment about one version, the last in the course of a release counts:
    // it is released, its tests succeed, something fails.
    let weight = |health: Health| match health {
        Health::Progressing => 1,
        Health::Ready => 2,
        _ => 3,
    };
    let stands = before.and_then(|b| Some((b.time.parse::<Timestamp>().ok()?, b.version, weight(b.health))));
    let is_old = stands.is_some_and(|(time, known, weighs)| {
        let is_older = (version, weight(health)) <= (known, weighs);
        match time.duration_since(now) > AHEAD {
            true => is_older && version > 0,
            false => at.as_second() < time.as_second() || at.as_second() == time.as_second() && is_older,
        }
    });
    if is_old {
        return None;
    }
    let mut message = match health {
        Health::Ready => String::new(),
        Health::Progressing => {
            "it is released; the word that its tests have succeeded is still to come".into()
        }
        _ => event.message.clone(),
    };
    crate::record::cut(&mut message, MAX_TEXT);
    let said = |key: &str, otherwise: &str| match meaning {
        Meaning::Deployed => event.metadata(key).unwrap_or_default().to_string(),
        _ => otherwise.to_string(),
    };
    Some(Report {
        time: translate::time(at),
        version,
        health,
        reason: event.reason.clone(),
        message,
        revision: said(REVISION, &last.revision),
        app: said(APP, &last.app),
        digest: said(DIGEST, &last.digest),
        tests,
    })
}

/// What an event changes in the reports of a pipeline. Where they find no more room together, all of them
/// lose their words; where that is too much as well, this one is not kept.
pub fn change(pipeline: &Pipeline, environment: &str, event: &Event, now: Timestamp) -> Change {
    let none = Reports::new();
    let stand = pipeline.status.as_ref().map_or(&none, |status| &status.reports);
    let news = |key: String| after(stand.get(&key), event, now).map(|report| (key, report));
    let new: Reports = keys(pipeline, environment, event).into_iter().filter_map(news).collect();
    if new.is_empty() {
        return Change::Nothing;
    }
    let stale = stale(pipeline, stand);
    let mut all = stand.clone();
    all.retain(|key, _| !stale.contains(key));
    all.extend(new);
    if reported::size(&all) > ROOM {
        all.values_mut().for_each(|report| crate::record::cut(&mut report.message, 0));
    }
    // What makes it smaller is welcome, however much there is.
    if reported::size(&all) > ROOM.max(reported::size(stand)) {
        return Change::Refused(format!(
            "there is no room for another report: those of this pipeline take {} KiB, and that is all there may be: \
             make two pipelines of it",
            ROOM >> 10
        ));
    }
    let changed = all.into_iter().filter(|(key, report)| stand.get(key) != Some(report));
    let mut reports: Map<String, Value> = changed.map(|(key, report)| (key, json!(report))).collect();
    reports.extend(stale.into_iter().map(|key| (key, Value::Null)));
    Change::Write(json!({"reports": reports}))
}

/// The part of a status that cannot be read, if it belongs to a report that an event would replace: nobody can tell
/// then whether the event is the later one.
pub fn unreadable<'a>(read: &'a Lenient<Pipeline>, environment: &str, event: &Event) -> Option<&'a str> {
    let reports: Vec<String> =
        keys(&read.object, environment, event).iter().map(|key| format!("status.reports.{key}")).collect();
    let is_lost = |part: &&String| {
        let is_in = |path: &str| part.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', ':']));
        let is_whole = part.starts_with("status.reports:") || read.object.status.is_none();
        is_whole || reports.iter().any(|path| is_in(path))
    };
    read.left_out.iter().find(is_lost).map(String::as_str)
}

/// The names of reports that no target of the pipeline has any more.
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
