//! The environments of a pipeline as a graph: a card for each, the lines between them, and on the lines what moves or
//! waits. On a narrow screen the graph becomes a list.

use std::collections::BTreeMap;

use maud::{Markup, html};
use sluice_api::pipeline::Pipeline;
use sluice_api::promotion::{Phase, Promotion, PromotionStatus};
use sluice_core::Time;
use sluice_core::promotion::GateKind;
use sluice_view::change::without_command;
use sluice_view::environment_graph::{EdgePiece, EnvironmentPosition, environment_graph};
use sluice_view::explain::with_short_checksums;
use sluice_view::pipeline_screen::{EnvironmentLine, PipelineScreen};
use sluice_view::tree::tree;

use super::shape::{Shape, badge, icon};
use super::strip::{edge, is_behind, runs, whole};
use super::target_list::targets;
use super::{links, words};
use crate::requested_action::closed_gates;

/// The most layers of a graph whose cards have their full width.
const MAX_WIDE_LAYERS: usize = 4;
/// The most layers of a graph that fits into a window. Above a longer one is the strip, which shows it at a glance.
const MAX_DENSE_LAYERS: usize = 6;
/// The most promotions that are shown on the line to an environment. Each of its 128 targets may have one.
const MAX_SHOWN_ON_LINE: usize = 3;
/// The most environments before one that a card names.
const MAX_NAMED: usize = 3;

/// The promotions that the graph shows on its lines.
#[derive(Default)]
pub(super) struct ShownPromotions<'a> {
    /// By environment or `environment/target`: the one in progress, or the one that failed.
    pub current: BTreeMap<&'a str, &'a Promotion>,
    /// By environment or `environment/target`: the one that brought what runs there.
    pub last: BTreeMap<&'a str, &'a Promotion>,
}

/// Returns the graph. An environment that the screen does not have is shown without a state.
pub(super) fn graph(pipeline: &Pipeline, screen: &PipelineScreen, shown: &ShownPromotions<'_>) -> Markup {
    let positions = environment_graph(pipeline);
    let layers = positions.iter().map(|position| position.layer).max().unwrap_or(0);
    let environments = tree(pipeline);
    let strip_above = layers > MAX_DENSE_LAYERS && !screen.environments.is_empty();
    html! {
        @if strip_above { div.graph-strip { (whole(screen)) } }
        div.graph-frame role="region" aria-label="Environments" tabindex="0" {
            ol.graph.dense[layers > MAX_WIDE_LAYERS] role="list" {
                @for (at, (position, environment)) in positions.iter().zip(&environments).enumerate() {
                    @let lines = lines_of(&position.name, screen);
                    @let state = lines.iter().map(|line| edge(line, screen.suspended)).find(|state| !state.is_empty()).unwrap_or("");
                    li role="listitem" {
                        @for piece in &position.pieces { (drawn(piece, state)) }
                        @if !position.drawn_after.is_empty() {
                            @let follows = at.checked_sub(1).is_some_and(|before| position.drawn_after.contains(&positions[before].name));
                            div class=(into(position, state, follows)) { (on_line(&lines, shown)) }
                        }
                        article class={ "card l" (position.layer) " r" (position.row) } id={ "env-" (position.name) } aria-labelledby={ "env-name-" (position.name) } {
                            header {
                                h2 id={ "env-name-" (position.name) } { (position.name) }
                                (after(position))
                                @for line in &lines { (stage(line, screen, lines.len() > 1)) }
                            }
                            (targets(&environment.targets))
                        }
                    }
                }
            }
        }
    }
}

/// Returns the environment, or its targets if each is promoted into separately.
fn lines_of<'a>(environment: &str, screen: &'a PipelineScreen) -> Vec<&'a EnvironmentLine> {
    let is_of = |line: &&EnvironmentLine| line.environment.split('/').next() == Some(environment);
    screen.environments.iter().filter(is_of).collect()
}

/// Returns the classes of the end of the lines that lead to an environment. `follows`: one of the lines comes from the
/// environment that the list has before it.
fn into(position: &EnvironmentPosition, state: &str, follows: bool) -> String {
    let apart = if follows { "" } else { " apart" };
    format!("into l{} r{} {state}{apart}", position.layer, position.row)
}

/// Returns a piece of a line. The browser stretches a curve to the distance of the two rows.
fn drawn(piece: &EdgePiece, state: &str) -> Markup {
    let (top, bottom) = (piece.from.min(piece.to), piece.from.max(piece.to));
    let curve = if piece.from < piece.to { "M0 0C50 0 50 100 100 100" } else { "M0 100C50 100 50 0 100 0" };
    html! {
        div class={ "edge l" (piece.layer) " f" (top) " t" (bottom) " " (state) } aria-hidden="true" {
            @if top == bottom { span.line {} } @else {
                svg viewBox="0 0 100 100" preserveAspectRatio="none" { path d=(curve) vector-effect="non-scaling-stroke" {} }
            }
        }
        @if piece.passes {
            div class={ "lane l" (piece.layer) " r" (piece.to) " " (state) } aria-hidden="true" { span.line {} }
        }
    }
}

/// Returns the environments before one. Where the lines show all of them, only a list needs the words.
fn after(position: &EnvironmentPosition) -> Markup {
    let are_drawn = position.drawn_after.len() == position.after.len();
    html! {
        @if !position.after.is_empty() {
            p.small.quieter.after.drawn[are_drawn] { "after " (position.after.join(", ")) }
        }
    }
}

/// Returns what is on the line to an environment: the promotions in progress, or when what runs there arrived.
fn on_line(lines: &[&EnvironmentLine], shown: &ShownPromotions<'_>) -> Markup {
    let current: Vec<_> = lines
        .iter()
        .filter_map(|line| Some((line, *shown.current.get(line.environment.as_str())?)))
        .collect();
    let last = lines.iter().find_map(|line| shown.last.get(line.environment.as_str()));
    html! {
        @for (line, promotion) in current.iter().take(MAX_SHOWN_ON_LINE) { (moving(line, promotion, lines.len() > 1)) }
        @if current.len() > MAX_SHOWN_ON_LINE { p.small.quieter { "and " (current.len() - MAX_SHOWN_ON_LINE) " more" } }
        @if current.is_empty() && let Some(promotion) = last {
            a.arrived href=(links::promotion(promotion)) {
                (words::revision(&promotion.spec.revision))
                @if let Some(at) = arrived(promotion) { " " (words::time(at)) }
            }
        }
    }
}

fn arrived(promotion: &Promotion) -> Option<Time> {
    promotion.status.as_ref()?.entered(Phase::Succeeded)
}

/// Returns a promotion in progress: what holds it, why, and what opens it.
fn moving(line: &EnvironmentLine, promotion: &Promotion, is_target: bool) -> Markup {
    let status = promotion.status.clone().unwrap_or_default();
    let shape = Shape::of_situation(line.situation, line.health, Some(status.phase));
    html! {
        div class={ "move " (shape.name()) "-move" } {
            a.what href=(links::promotion(promotion)) {
                (icon(shape, line.situation.words())) (words::revision(&promotion.spec.revision))
            }
            @if is_target { p.quiet { (line.environment) } }
            (held_by(promotion, &status))
        }
    }
}

fn held_by(promotion: &Promotion, status: &PromotionStatus) -> Markup {
    let phase = match status.phase {
        Phase::Promoting if !status.message.is_empty() => "delivery failed".into(),
        phase => phase.to_string().to_lowercase(),
    };
    let message = with_short_checksums(without_command(&status.message, promotion));
    let request = status.change_request.as_ref();
    html! {
        @match status.phase {
            Phase::Pending if closed_gates(status).next().is_some() => {
                @for gate in closed_gates(status) {
                    @let why = without_command(&gate.message, promotion);
                    // How to open it follows in words of its own.
                    @let why = why.split("; to deliver it: ").next().unwrap_or(why);
                    p { b { "Gate " (gate.name) } }
                    p.why title=(why) { (with_short_checksums(why)) }
                    @if GateKind::named(&gate.name).is_some() { p.quieter { "Opens when a person approves." } }
                }
            }
            Phase::Proposed => {
                p { "waits for its change request" @if let Some(request) = request { " #" (request.number) } }
                @if !message.is_empty() { p.why title=(message) { (message) } }
                p.quieter { "Continues when it is merged." }
            }
            _ => {
                p { (phase) }
                @if !message.is_empty() { p.why title=(message) { (message) } }
            }
        }
        @if let Some(next) = status.next_attempt { p.quieter { "Next attempt " (words::time(next)) } }
        @else if let Some(since) = since(promotion, status) { p.quieter { "since " (words::time(since)) } }
    }
}

/// Returns since when a promotion is in its phase.
fn since(promotion: &Promotion, status: &PromotionStatus) -> Option<Time> {
    let created = promotion.metadata.creation_timestamp.as_ref().map(|time| Time::exact(time.0));
    status.entered(status.phase).or(created)
}

fn stage(line: &EnvironmentLine, screen: &PipelineScreen, is_target: bool) -> Markup {
    let is_behind = is_behind(line, screen);
    html! {
        @if is_target { p.small { (line.environment) } }
        div.big.behind[is_behind] { (runs(line)) }
        p.small {
            (badge(Shape::of_health(line.health), &line.health.to_string()))
            @if let Some(since) = line.since { " " span.quieter { (words::time(since)) } }
            @if line.ready.1 > 1 { span.quieter { " · " (line.ready.0) " of " (line.ready.1) " targets" } }
        }
        @if is_behind { (ahead(line, screen)) }
    }
}

/// Returns which environments before one run another revision.
fn ahead(line: &EnvironmentLine, screen: &PipelineScreen) -> Markup {
    let is_before = |other: &&EnvironmentLine| {
        line.after.iter().any(|after| other.environment.split('/').next() == Some(after.as_str()))
    };
    let differs = |other: &&EnvironmentLine| other.runs.is_some() && other.runs != line.runs;
    let ahead: Vec<_> = screen.environments.iter().filter(is_before).filter(differs).collect();
    html! {
        @for other in ahead.iter().take(MAX_NAMED) {
            p.small.quieter { (other.environment) " runs " @if let Some(runs) = &other.runs { (words::revision(runs)) } }
        }
    }
}
