//! One pipeline: first why it does not move, then its environments with their targets, then its history.

use std::sync::Arc;

use jiff::Timestamp;
use maud::{Markup, html};
use sluice_api::promotion::Phase;
use sluice_api::{Pipeline, Promotion};
use sluice_core::Time;
use sluice_core::access::Caller;
use sluice_view::change::without_command_of;
use sluice_view::explain::{Explanation, Situation, explain, with_short_checksums, without_next_attempt};
use sluice_view::history::{Entry, history};
use sluice_view::object_name::ObjectName;
use sluice_view::pipeline_screen::PipelineScreen;

use super::action_buttons::{buttons, may_not};
use super::environment_graph::{ShownPromotions, graph};
use super::frame::{Group, Page, Part, Section};
use super::pipeline_row::{application, nothing_waits};
use super::shape::{Shape, badge, icon};
use super::{links, words};
use crate::board::ShownPipeline;
use crate::find::find_pipeline;
use crate::hub::Hub;
use crate::person_action::{EDITOR, PersonAction, who_has};
use crate::problem::Problem;
use crate::rights::{MissingRights, missing_pipeline_right};
use crate::state::Api;

/// How many promotions of the past the page shows.
const SHOWN_HISTORY: usize = 20;

pub(super) async fn page<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    object: &ObjectName,
) -> Result<Page, Problem> {
    let shown = find_pipeline(api, caller, object).await?;
    let pipeline = shown.stored.whole();
    let explained = explain(&pipeline, &shown.promotions, Timestamp::now());
    let rights = rights(api, caller, object, &shown, &explained).await?;
    let actions = api.actions.then_some(&rights);
    let object_name = (object.namespace.as_str(), Some(object.name.as_str()));
    let no_edit = missing_pipeline_right(&api.hub, caller, "update", object_name).await?;
    let mut parts = vec![
        Part::new("head", &head(&pipeline, &shown.screen, (actions, no_edit.as_deref()))),
        Part::new("answers", &answers(&pipeline, &shown, &explained, actions)),
        Part::new("graph", &graph(&pipeline, &shown.screen, &on_lines(&shown, &explained))),
    ];
    let entries = history(&object.name, None, &shown.promotions);
    parts.push(Part::new("history", &past(object, &entries)));
    let groups = vec![Group::new("", parts)];
    Ok(Page { title: object.name.clone(), section: Section::Pipelines, groups })
}

async fn rights<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    object: &ObjectName,
    shown: &ShownPipeline,
    explained: &[Explanation],
) -> Result<MissingRights, Problem> {
    let mut rights = MissingRights::default();
    if !api.actions {
        return Ok(rights);
    }
    let ObjectName { namespace, name } = object;
    rights.ask(&api.hub, caller, ("pipelines", namespace, name), &["patch"]).await?;
    for promotion in explained.iter().filter_map(|explained| promotion_of(shown, explained)) {
        rights.ask_promotion(&api.hub, caller, promotion).await?;
    }
    Ok(rights)
}

fn head(
    pipeline: &Pipeline,
    screen: &PipelineScreen,
    (actions, no_edit): (Option<&MissingRights>, Option<&str>),
) -> Markup {
    let (namespace, name) = (&screen.namespace, &screen.name);
    let action = if screen.suspended { PersonAction::Resume } else { PersonAction::Suspend };
    let no_action = actions.and_then(|rights| rights.of(name, action.verbs()));
    html! {
        p.crumbs { a href="/" { "Pipelines" } " / " (namespace) }
        div.title {
            h1 { (name) }
            @if screen.suspended { (badge(Shape::Suspended, "Suspended")) }
            span.quieter { (application(pipeline)) }
            @if no_edit.is_none() { a.button href=(links::edit(namespace, name)) { "Edit" } }
            @if actions.is_some() && no_action.is_none() {
                a.button href={ "/pipelines/" (namespace) "/" (name) "/" (action.word()) } { (action.title()) " …" }
            }
        }
        p.small.quiet {
            a href=(links::objects(namespace, name)) { "Objects" } " · "
            a href=(links::triggers(namespace, name)) { "What starts it" } " · "
            a href=(links::history(namespace, name)) { "History" }
        }
        @if let Some(right) = no_edit.or(no_action) {
            p.small.quiet {
                "You may not " (may_not_change(no_edit, no_action.map(|_| action))) " this pipeline: you do not have " (right) ". "
                (who_has(EDITOR))
            }
        }
        @if let Some(trouble) = &screen.trouble { p.problem { (trouble) } }
        @if let Some(summarized) = &screen.summarized { p.small { (summarized) } }
    }
}

/// Returns the words for what a person may not do with a pipeline.
fn may_not_change(no_edit: Option<&str>, no_action: Option<PersonAction>) -> String {
    match (no_edit, no_action) {
        (Some(_), Some(action)) => format!("edit or {}", action.word()),
        (None, Some(action)) => action.word().into(),
        _ => "edit".into(),
    }
}

/// Returns the promotions that the graph shows on its lines.
fn on_lines<'a>(shown: &'a ShownPipeline, explained: &'a [Explanation]) -> ShownPromotions<'a> {
    let mut on_lines = ShownPromotions::default();
    for explained in explained {
        let environment = explained.environment.as_str();
        if let Some(promotion) = promotion_of(shown, explained) {
            on_lines.current.insert(environment, promotion);
        }
        let brought_this = |promotion: &&Arc<Promotion>| {
            promotion.spec.place() == environment
                && promotion.phase() == Phase::Succeeded
                && Some(&promotion.spec.revision) == explained.runs.as_ref()
        };
        let last = shown.promotions.iter().filter(brought_this);
        if let Some(last) = last.max_by_key(|promotion| promotion.metadata.creation_timestamp.clone()) {
            on_lines.last.insert(environment, last);
        }
    }
    on_lines
}

/// Returns the promotion that an explanation is about.
fn promotion_of<'a>(shown: &'a ShownPipeline, explained: &Explanation) -> Option<&'a Promotion> {
    let name = explained.promotion.as_ref()?;
    shown.promotions.iter().map(Arc::as_ref).find(|promotion| promotion.metadata.name.as_ref() == Some(name))
}

/// Returns for each environment that something is going on in: what, why, and what a person can do.
fn answers(
    pipeline: &Pipeline,
    shown: &ShownPipeline,
    explained: &[Explanation],
    actions: Option<&MissingRights>,
) -> Markup {
    let is_quiet = |e: &&Explanation| matches!(e.situation, Situation::UpToDate | Situation::Observed);
    let mut worth_saying: Vec<&Explanation> = explained.iter().filter(|e| !is_quiet(e)).collect();
    worth_saying.sort_by_key(|explained| urgency(explained.situation));
    html! {
        @for explained in &worth_saying { (answer(pipeline, shown, explained, actions)) }
        @if worth_saying.is_empty() {
            section.answer.ready-answer { div { p.why { (rest(&shown.screen)) } } }
        }
    }
}

/// Returns what to say of a pipeline in which nothing waits, moves or differs.
fn rest(screen: &PipelineScreen) -> &'static str {
    match nothing_waits(screen) {
        words if words == Situation::UpToDate.words() => "Everything is up to date.",
        _ => "Sluice only observes this pipeline: it has no promotion strategy.",
    }
}

fn urgency(situation: Situation) -> u8 {
    match situation {
        Situation::Blocked => 0,
        Situation::Unknown => 1,
        Situation::Waiting => 2,
        Situation::Moving => 3,
        Situation::Differs => 4,
        Situation::UpToDate | Situation::Observed => 5,
    }
}

fn answer(
    pipeline: &Pipeline,
    shown: &ShownPipeline,
    explained: &Explanation,
    actions: Option<&MissingRights>,
) -> Markup {
    let promotion = promotion_of(shown, explained);
    let phase = promotion.map(|promotion| promotion.phase());
    let shape = Shape::of_situation(explained.situation, explained.health, phase);
    html! {
        section class={ "answer " (shape.name()) "-answer" } {
            div {
                p.why {
                    (icon(shape, explained.situation.words())) " "
                    span.env { (explained.environment) } " "
                    (explained.sentences.first().map(String::as_str).unwrap_or_default())
                }
                @for sentence in explained.sentences.iter().skip(1) { p.small.quiet { (without_next_attempt(sentence)) } }
                @if let Some(promotion) = promotion { (reasons(promotion)) }
                @if let Some(until) = explained.until { p.small.quiet { "The next attempt is " (words::time(until)) } }
                // Commands of Sluice have a button.
                @for command in explained.next.iter().filter(|next| actions.is_none() || next.starts_with("flux ")) {
                    p.small { code { (command) } }
                }
                @if let (Some(rights), Some(promotion)) = (actions, promotion) { (may_not(rights, promotion, pipeline)) }
            }
            @if let Some(promotion) = promotion {
                div.do {
                    @if let Some(rights) = actions { (buttons(rights, promotion, pipeline)) }
                    a.button href=(links::promotion(promotion)) { "Details" }
                }
            }
        }
    }
}

/// Returns when a promotion was started, and why.
fn reasons(promotion: &Promotion) -> Markup {
    let spec = &promotion.spec;
    let mut proven: Vec<&str> = spec.evidence.iter().map(|proof| proof.environment.as_str()).collect();
    proven.dedup();
    html! {
        p.small.quiet {
            @if let Some(created) = &promotion.metadata.creation_timestamp { "Started " (words::time(Time::exact(created.0))) }
            @if !proven.is_empty() { " · proven in " (proven.join(", ")) }
            @if !spec.replaces.is_empty() { " · in place of " (words::revision(&spec.replaces)) }
        }
    }
}

fn past(ObjectName { namespace, name }: &ObjectName, entries: &[Entry]) -> Markup {
    html! {
        section {
            h2 { "Promotions" }
            @if entries.is_empty() {
                p.empty { "Nothing was promoted yet. A promotion starts when an environment runs a new revision healthily." }
            }
            ol.timeline {
                @for entry in entries.iter().take(SHOWN_HISTORY) { (past_entry(namespace, entry)) }
            }
            @if !entries.is_empty() {
                p.small { a href=(links::history(namespace, name)) { "All promotions, by environment" } }
            }
        }
    }
}

/// Returns one promotion of the past or present.
pub(super) fn past_entry(namespace: &str, entry: &Entry) -> Markup {
    let phase = entry.phase.to_string();
    html! {
        li {
            @if let Some(at) = entry.since.or(entry.started) { (words::time(at)) } @else { time {} }
            (icon(Shape::of_phase(entry.phase), &phase))
            div {
                a href={ "/promotions/" (namespace) "/" (entry.name) } {
                    (words::revision(&entry.revision)) " into " (entry.environment)
                }
                " " (phase.to_lowercase())
                @if !entry.by.is_empty() { ", by " (entry.by) }
                @if !entry.message.is_empty() {
                    div.small.quieter { (with_short_checksums(without_command_of(&entry.message, namespace, &entry.name))) }
                }
                @if !entry.replaces.is_empty() { div.small.quieter { "replaces " (words::revision(&entry.replaces)) } }
            }
        }
    }
}
