//! Explains in sentences why an environment gets a revision or why it does not, and what to do next. It uses only
//! what the controller has recorded. The first sentence is the cause.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::pipeline::{Pipeline, TargetStatus};
use sluice_api::promotion::{Phase, Promotion, PromotionStatus};
use sluice_core::Time;
use sluice_core::observed::Health;
use sluice_core::promotion::GateKind;
use sluice_core::revision::shortened;

use crate::change::without_command;
use crate::explanation_draft::Draft;
use crate::explanation_text::{
    NEXT_ATTEMPT, deadline_sentence, named_once, retry_command, sentence, without_flux_command,
};
pub use crate::explanation_text::{with_short_checksums, without_next_attempt};
use crate::place::Place;
use crate::progress::waits_for_person;
use crate::request_checks;
pub use crate::situation::Situation;

/// Why an environment (or target) gets a revision, or why it does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The environment, or `environment/target`.
    pub environment: String,
    /// The revision that it runs, if all of its targets run the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// The worst health of its targets.
    pub health: Health,
    /// The situation.
    pub situation: Situation,
    /// The promotion in progress, or the one that failed; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<String>,
    /// The sentences, the cause first.
    pub sentences: Vec<String>,
    /// Commands that a person can run now, in the order of their use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// When the next automatic try begins, if one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Since when the first sentence is so: since the promotion is in its phase, or the target has its health. Absent if that is
    /// not recorded, and of an environment in which nothing waits, moves or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

impl Explanation {
    /// Returns the heading of the sentences, with the words for what the environment runs.
    pub fn heading(&self, runs: &str) -> String {
        let since = self.since.map(|since| format!("; {} since {since}", self.situation.words()));
        format!("{}: {runs}, {}{}", self.environment, self.health, since.unwrap_or_default())
    }
}

/// Explains all environments of a pipeline, in their order. `promotions` are those of its namespace.
pub fn explain<P: Borrow<Promotion>>(
    pipeline: &Pipeline,
    promotions: &[P],
    now: Timestamp,
) -> Vec<Explanation> {
    let places = Place::all(pipeline);
    let mut by_environment = PlacesByEnvironment::new();
    for place in &places {
        let is_ready = place.targets().all(|target| target.ready);
        by_environment.entry(&place.environment.name).or_default().push((place, is_ready));
    }
    places.iter().map(|place| one(place, &by_environment, promotions, now)).collect()
}

/// All places of each environment, the environment itself or its targets, and whether all targets of the place are ready.
type PlacesByEnvironment<'a> = BTreeMap<&'a str, Vec<(&'a Place<'a>, bool)>>;

/// How many predecessors of a place, and how many targets of a predecessor, get a sentence. A pipeline may have 15
/// predecessors with 128 targets each for each of 2,048 places.
const MAX_NAMED: usize = 5;

/// Keeps what is said of an environment, or of this `environment/target`. If all targets are promoted into together, what is
/// said of the environment is said of each.
pub(crate) fn retain_explanations(explanations: &mut Vec<Explanation>, wanted: &str) {
    let (whole, within) = (wanted.split_once('/').map(|(whole, _)| whole), format!("{wanted}/"));
    explanations.retain(|explanation| {
        let of = explanation.environment.as_str();
        of == wanted || of.starts_with(&within) || whole == Some(of)
    });
}

fn one<P: Borrow<Promotion>>(
    place: &Place<'_>,
    places: &PlacesByEnvironment<'_>,
    promotions: &[P],
    now: Timestamp,
) -> Explanation {
    let mut draft = Draft::new();
    let current = place.current(promotions);
    if controller_has_reported(place, &mut draft) {
        suspension(place, &mut draft);
        let status = current.map(|promotion| promotion.status.clone().unwrap_or_default());
        if let (Some(promotion), Some(status)) = (current, &status) {
            draft.added_since = since_of(promotion);
            promotion_sentences(place, promotion, status, now, &mut draft);
            draft.added_since = None;
        }
        note(place, status.as_ref(), &mut draft);
        if current.is_none() {
            predecessors(place, places, &mut draft);
        }
        own_targets(place, status.as_ref(), &mut draft);
    }
    let Draft { situation, sentences, mut next, until, since, .. } = draft;
    next.dedup();
    let sentences = sentences.iter().map(|sentence| with_short_checksums(sentence)).collect();
    Explanation {
        environment: place.name(),
        runs: place.revision().map(String::from),
        health: place.targets().map(|target| target.health).max().unwrap_or(Health::Unknown),
        since,
        situation,
        promotion: current.and_then(|promotion| promotion.metadata.name.clone()),
        sentences,
        next,
        until,
    }
}

/// Returns since when a promotion is in its phase.
fn since_of(promotion: &Promotion) -> Option<Time> {
    let recorded = promotion.status.as_ref().and_then(|status| status.entered(status.phase));
    let created = || Some(Time::exact(promotion.metadata.creation_timestamp.as_ref()?.0));
    recorded.or_else(|| created().filter(|_| promotion.phase() == Phase::Pending))
}

/// Adds a sentence if the controller has not reported on the latest spec. Returns false if it has reported nothing
/// at all on this environment.
fn controller_has_reported(place: &Place<'_>, draft: &mut Draft) -> bool {
    let pipeline = place.pipeline;
    let generation = pipeline.metadata.generation.unwrap_or_default();
    let seen = pipeline.status.as_ref().map_or(0, |status| status.observed_generation);
    if place.status.is_none() {
        draft.add(
            Situation::Unknown,
            "The controller has not reported on this environment yet. If this lasts, check that the controller runs: \
             kubectl get pods -n sluice-system",
        );
        return false;
    }
    if seen < generation {
        draft.add(
            Situation::Unknown,
            "The controller has not seen the last change of the Pipeline yet. If this lasts, check that the \
             controller runs: kubectl get pods -n sluice-system",
        );
    }
    true
}

fn suspension(place: &Place<'_>, draft: &mut Draft) {
    if place.pipeline.spec.suspend && place.policy.is_some() && !place.after.is_empty() {
        draft.add(Situation::Blocked, "The pipeline is suspended: nothing is promoted until it is resumed.");
        draft.next.push(format!("sluice resume {}", arguments(place.pipeline)));
    }
}

/// `NAME -n NAMESPACE`, as all commands take it.
fn arguments(pipeline: &Pipeline) -> String {
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    format!("{name} -n {}", pipeline.metadata.namespace.as_deref().unwrap_or("default"))
}

fn promotion_sentences(
    place: &Place<'_>,
    promotion: &Promotion,
    status: &PromotionStatus,
    now: Timestamp,
    draft: &mut Draft,
) {
    let (revision, here) = (&promotion.spec.revision, place.name());
    let promotion_name = promotion.metadata.name.as_deref().unwrap_or_default();
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or("default");
    let retry = || format!("sluice retry {promotion_name} -n {namespace}");
    match status.phase {
        Phase::Pending => {
            let is_blind = unreadable(place, promotion, draft);
            pending(status, (revision, &here), promotion, is_blind, draft);
        }
        Phase::Promoting if status.message.is_empty() && status.reason.is_empty() => {
            draft.add(Situation::Moving, format!("{revision} is being delivered into {here}."));
        }
        Phase::Promoting => {
            let situation = if ends_alone(status) { Situation::Waiting } else { Situation::Blocked };
            draft.add(
                situation,
                format!("The delivery of {revision} into {here} failed{}", because(&status.message)),
            );
            draft.advise(situation, &status.reason);
            attempts(status, now, draft);
            draft.next.extend((!RETRY_IS_USELESS.contains(&status.reason.as_str())).then(retry));
        }
        Phase::Proposed => {
            let request = status.change_request.as_ref();
            let link = request.map(|request| named_once(request, &status.message)).unwrap_or_default();
            let situation =
                if request.is_some_and(waits_for_person) { Situation::Blocked } else { Situation::Waiting };
            draft.add(
                situation,
                format!("{revision} waits in change request {link}{}", because(&status.message)),
            );
            draft.sentences.extend(request.and_then(request_checks::sentence));
        }
        Phase::Delivered => {
            let why = because(&status.message);
            let sentence = format!("{revision} is delivered, and {here} does not run it yet{why}");
            draft.add(Situation::Moving, sentence);
            draft.advise(Situation::Moving, &status.reason);
            let deadline = place.deadline(status).filter(|at| **at > now);
            draft.sentences.extend(deadline.map(|at| deadline_sentence(revision, &here, at)));
        }
        Phase::Failed => {
            draft.add(Situation::Blocked, format!("{revision} failed in {here}{}", because(&status.message)));
            draft.advise(Situation::Blocked, &status.reason);
            draft.next.extend((status.reason != "Tampered").then(retry));
        }
        Phase::Rejected => {
            draft.add(Situation::Blocked, rejected(revision, &here, &status.message));
            draft.next.push(retry());
        }
        Phase::Succeeded | Phase::Superseded | Phase::Cancelled => {}
    }
}

/// What a sentence adds about its cause.
fn because(message: &str) -> String {
    if message.is_empty() { ".".into() } else { format!(": {message}") }
}

/// The sentence about a revision that a person has rejected.
fn rejected(revision: &str, here: &str, message: &str) -> String {
    match message.starts_with("rejected by ") {
        true => format!("{revision} was {message} ({here})"),
        false => format!("{revision} was rejected for {here}{}", because(message)),
    }
}

/// The failures that usually end without a person.
const ENDS_ALONE: [&str; 6] =
    ["BranchContended", "EventUnanswered", "GaveWay", "Stopped", "Timeout", "Unreachable"];
/// The failures that another try would only meet again: the server's limit, a suspension, or a closed gate.
const RETRY_IS_USELESS: [&str; 2] = ["RateLimited", "Stopped"];
/// How often a failure of `ENDS_ALONE` is tried again before a person has to look: for about a minute.
const TRIES_ALONE: u32 = 5;

/// Whether a failed delivery needs no person: Sluice tries it again, and it may succeed then.
fn ends_alone(status: &PromotionStatus) -> bool {
    let reason = status.reason.as_str();
    reason == "RateLimited" || (ENDS_ALONE.contains(&reason) && status.attempts < TRIES_ALONE)
}

/// The text of the controller's note if no target of an environment can be read.
const NO_TARGET: &str = "no target can be read";

/// Adds why a pending promotion waits if no target of its place can be read, and returns true in this case: Sluice then
/// delivers nothing, whether the promotion is approved or not.
fn unreadable(place: &Place<'_>, promotion: &Promotion, draft: &mut Draft) -> bool {
    let is_unreadable = |target: &TargetStatus| target.health == Health::Unknown && !target.error.is_empty();
    let Some(first) = place.targets().next().filter(|_| place.targets().all(is_unreadable)) else {
        return false;
    };
    // The controller's note about the environment is the same text, and is then not repeated.
    let revision = &promotion.spec.revision;
    draft.add(Situation::Blocked, format!("{revision} waits: {NO_TARGET}: {}", first.error));
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or("default");
    draft.next.push(format!("sluice check -n {namespace}"));
    true
}

/// Adds what a pending promotion waits for. If no target can be read (`is_blind`), no command for an approval is added.
fn pending(
    status: &PromotionStatus,
    (revision, here): (&str, &str),
    promotion: &Promotion,
    is_blind: bool,
    draft: &mut Draft,
) {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or("default");
    let closed: Vec<_> = status.gates.iter().filter(|gate| !gate.open).collect();
    let can_be_approved = closed.iter().any(|gate| GateKind::named(&gate.name).is_some());
    for gate in &closed {
        let message = if gate.message.is_empty() { "waits" } else { &gate.message };
        // The command is among those to run next.
        let message = without_command(message, promotion);
        draft.add(Situation::Blocked, format!("{revision} {message}"));
    }
    match is_blind {
        true if can_be_approved => {
            let sentence = "Nothing is delivered until a target can be read, also after an approval.";
            draft.add(Situation::Blocked, sentence);
        }
        false if can_be_approved => draft.next.push(format!("sluice approve {name} -n {namespace}")),
        _ => {}
    }
    // It waits for more than its gates: the controller's note about the environment is the same text.
    let waits_for_proof = status.message.starts_with(&format!("{revision} waits: "));
    if waits_for_proof {
        draft.add(Situation::Blocked, status.message.clone());
    } else if closed.is_empty() && !is_blind {
        let why = if status.message.is_empty() { "it waits for its turn" } else { &status.message };
        draft.add(Situation::Moving, format!("{revision} is about to be delivered into {here}: {why}"));
    }
}

fn attempts(status: &PromotionStatus, now: Timestamp, draft: &mut Draft) {
    let Some(time) = status.next_attempt else { return };
    let seconds = time.as_second().saturating_sub(now.as_second());
    let tries = match status.attempts {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    let when = match seconds {
        ..=0 => "due now.".to_owned(),
        1..120 => format!("in {seconds} seconds."),
        _ => format!("in {} minutes.", seconds / 60),
    };
    draft.add(Situation::Waiting, format!("It was tried {tries}.{NEXT_ATTEMPT}{when}"));
    draft.until = Some(time);
}

/// What the controller has noted about the environment, unless the promotion says the same.
fn note(place: &Place<'_>, promotion: Option<&PromotionStatus>, draft: &mut Draft) {
    let Some(message) = place.status.map(|status| status.message.as_str()).filter(|m| !m.is_empty()) else {
        return;
    };
    let is_repeated =
        draft.sentences.iter().any(|sentence| sentence.contains(message) || message.contains(sentence));
    let of_promotion = promotion.is_some_and(|status| {
        status.gates.iter().any(|gate| !gate.message.is_empty() && message.contains(&gate.message))
            || !status.message.is_empty() && message.contains(&status.message)
    });
    // The pipeline's status is written later than that of the promotion.
    let is_from_before = message.contains("sluice approve")
        && promotion.is_some_and(|status| {
            status.phase == Phase::Promoting && status.gates.iter().all(|gate| gate.open)
        });
    if !is_repeated && !of_promotion && !is_from_before {
        let is_lost = message.contains(NOT_APPLIED);
        let names_cause = [NO_TARGET, CLOSE_BY_HAND].iter().any(|text| message.contains(text));
        let needs_person = is_lost || names_cause || place.note_needs_person();
        let situation = if needs_person { Situation::Blocked } else { Situation::Waiting };
        let (message, command) = without_flux_command(message);
        draft.add_trouble(situation, sentence(&message));
        draft.next.extend(command);
        if draft.next.is_empty() && place.note_needs_person() {
            draft.next.extend(retry_command(&message));
        }
        if is_lost {
            // The note says more than the general advice.
            draft.sentences.retain(|sentence| !sentence.starts_with("If this takes long,"));
        }
    }
}

/// The text of the controller's note if Flux does not apply what was delivered.
const NOT_APPLIED: &str = " does not arrive in ";
/// The text of the controller about a change request that Sluice cannot close.
const CLOSE_BY_HAND: &str =
    " stays open: the pipeline names another repository or branch now; close it by hand";

/// Explains why the predecessors offer nothing newer, for an environment without a current promotion.
fn predecessors(place: &Place<'_>, places: &PlacesByEnvironment<'_>, draft: &mut Draft) {
    let here = place.name();
    if place.after.is_empty() {
        return draft.add(
            Situation::Observed,
            format!(
                "{here} is a first environment: people, CI or Flux change it, and Sluice only observes it."
            ),
        );
    }
    if place.policy.is_none() {
        return observed(place, places, draft);
    }
    let before = || place.after.iter().filter_map(|name| places.get(name)).flatten();
    let unready = before().filter(|(_, is_ready)| !is_ready);
    let ready = before().filter(|(_, is_ready)| *is_ready);
    for (before, _) in unready.chain(ready).take(MAX_NAMED) {
        predecessor(before, place, draft);
    }
    let further = before().count().saturating_sub(MAX_NAMED);
    if further > 0 {
        draft.add(
            Situation::Waiting,
            format!("It has {further} further predecessors, which are not named here."),
        );
    }
}

/// Explains an environment without a policy: what it runs and what its predecessors run, if that differs.
fn observed(place: &Place<'_>, places: &PlacesByEnvironment<'_>, draft: &mut Draft) {
    let here = place.name();
    let before = place.after.iter().filter_map(|name| places.get(name)).flatten();
    let others: Vec<String> = match place.revision() {
        None => Vec::new(),
        Some(runs) => before
            .filter_map(|(before, _)| {
                Some((before.name(), before.revision().filter(|other| *other != runs)?))
            })
            .map(|(name, other)| format!("{name} {}", shortened(other)))
            .take(MAX_NAMED)
            .collect(),
    };
    let spec = &place.pipeline.spec;
    let is_all = spec.environments.iter().all(|environment| spec.policy(environment).is_none());
    match place.revision().filter(|_| !others.is_empty()) {
        Some(runs) => draft.add(
            Situation::Differs,
            format!(
                "{here} runs {}, {}; Sluice only observes {}.",
                shortened(runs),
                others.join(", "),
                if is_all { "this pipeline" } else { here.as_str() }
            ),
        ),
        None => draft.add(
            Situation::Observed,
            format!("{here} has no promotion in the spec: Sluice observes it and writes nothing into it."),
        ),
    }
}

fn predecessor(before: &Place<'_>, place: &Place<'_>, draft: &mut Draft) {
    let (from, here) = (before.name(), place.name());
    let unready: Vec<&TargetStatus> = before.targets().filter(|target| !target.ready).collect();
    for target in unready.iter().take(MAX_NAMED) {
        let detail = if target.error.is_empty() { String::new() } else { format!(": {}", target.error) };
        let since = target.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        draft.add(
            Situation::Waiting,
            format!(
                "No newer revision is proven in {from}: its target {} is {}{since}{detail}",
                target.name, target.health
            ),
        );
    }
    if unready.len() > MAX_NAMED {
        let further = unready.len() - MAX_NAMED;
        let text = format!("In {from}, {further} further targets are not ready.");
        draft.add(Situation::Waiting, text);
    }
    if !unready.is_empty() {
        return;
    }
    match (before.revision(), place.revision()) {
        (Some(proven), Some(runs)) if proven == runs => {
            draft.add(Situation::UpToDate, format!("{here} runs {runs}, as {from} does."));
        }
        (Some(proven), Some(runs)) => {
            draft.add(Situation::Waiting, format!("{from} runs {proven}; {here} runs {runs}."));
        }
        (Some(proven), None) => {
            draft.add(Situation::Waiting, format!("{from} runs {proven}."));
            no_revision(place, draft);
        }
        (None, _) => no_revision(before, draft),
    }
}

/// Explains why a place has no revision that all of its targets run.
fn no_revision(place: &Place<'_>, draft: &mut Draft) {
    let here = place.name();
    let Some(silent) = place.targets().find(|target| target.revision.is_none()) else {
        return draft.add(Situation::Waiting, format!("The targets of {here} run different revisions."));
    };
    // The error of an unreadable target has a sentence of its own.
    if !silent.ready {
        return draft.add(Situation::Waiting, format!("It is not known what {here} runs."));
    }
    let tracked = match place.pipeline.spec.tracks.join(", ") {
        none if none.is_empty() => String::new(),
        facets => format!(" ({facets})"),
    };
    draft.add(
        Situation::Blocked,
        format!(
            "Target {} of {here} is Ready and has no revision: nothing that runs there has what the pipeline \
             tracks{tracked}. Correct spec.tracks of the Pipeline.",
            silent.name
        ),
    );
}

/// What is wrong with the targets of the environment itself.
fn own_targets(place: &Place<'_>, promotion: Option<&PromotionStatus>, draft: &mut Draft) {
    let environment = place.environment.name.as_str();
    let message = promotion.map(|status| status.message.as_str()).unwrap_or_default();
    let unreadable = draft.sentences.iter().find(|sentence| sentence.contains(NO_TARGET)).cloned();
    let unreadable = unreadable.unwrap_or_default();
    for target in place.targets().filter(|target| !target.error.is_empty()) {
        if !message.contains(&target.error) && !unreadable.ends_with(&target.error) {
            let of = if target.name == environment { String::new() } else { format!(" of {environment}") };
            let text = format!("Target {}{of} is {}: {}", target.name, target.health, target.error);
            let situation = match target.health {
                Health::Failed | Health::Unknown => Situation::Blocked,
                _ => Situation::Waiting,
            };
            draft.added_since = target.since;
            draft.add_trouble(situation, text);
        }
    }
}
