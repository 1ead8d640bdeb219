//! The strip of a pipeline: its environments in order, joined by what moves between them.

use maud::{Markup, html};
use sluice_core::observed::Health;
use sluice_view::explain::Situation;
use sluice_view::pipeline_screen::{EnvironmentLine, PipelineScreen};

use super::shape::{Shape, icon};
use super::words;

/// How many environments fit into a row of the list at 1280 px, in cells of the usual width.
const MAX_WIDE: usize = 4;
/// A row with more environments than these folds those that are up to date.
const FOLDS_ABOVE: usize = 6;
/// Names with more bytes than these may be cut, and are in the title.
const MAX_SHOWN_NAME: usize = 8;

/// A place in a strip.
enum Slot {
    /// The environment at this index.
    Environment(usize),
    /// Environments from one index up to another one, which are all up to date.
    UpToDate(std::ops::Range<usize>),
}

/// Returns the whole strip.
pub(super) fn whole(screen: &PipelineScreen, address: &str) -> Markup {
    strip(screen, address, &(0..screen.environments.len()).map(Slot::Environment).collect::<Vec<_>>())
}

/// Returns the strip for one row of a list: of a long one, environments that are up to date share a cell.
pub(super) fn folded(screen: &PipelineScreen, address: &str) -> Markup {
    strip(screen, address, &slots(&screen.environments))
}

/// Returns the places of a strip. The first and the last environment always have their own.
fn slots(lines: &[EnvironmentLine]) -> Vec<Slot> {
    let all = || (0..lines.len()).map(Slot::Environment);
    if lines.len() <= FOLDS_ABOVE {
        return all().collect();
    }
    let is_folded = |at: usize| at > 0 && at + 1 < lines.len() && is_at_rest(&lines[at]);
    let (mut slots, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let end = (at..lines.len()).find(|at| !is_folded(*at)).unwrap_or(lines.len());
        // One environment needs no more room than its fold.
        if end > at + 1 {
            slots.push(Slot::UpToDate(at..end));
            at = end;
        } else {
            slots.push(Slot::Environment(at));
            at += 1;
        }
    }
    slots
}

/// Whether an environment needs no look: it is healthy, and nothing waits for it.
fn is_at_rest(line: &EnvironmentLine) -> bool {
    line.situation == Situation::UpToDate && line.health == Health::Ready && line.incoming.is_none()
}

fn strip(screen: &PipelineScreen, address: &str, slots: &[Slot]) -> Markup {
    html! {
        div.strip.dense[slots.len() > MAX_WIDE] {
            @for (place, slot) in slots.iter().enumerate() {
                @match slot {
                    Slot::Environment(at) => {
                        @if place > 0 { span.link.(link(&screen.environments[*at], screen, *at)) {} }
                        (cell(screen, address, &screen.environments[*at]))
                    }
                    Slot::UpToDate(range) => {
                        span.link.(link(&screen.environments[range.start], screen, range.start)) {}
                        (fold(address, &screen.environments[range.clone()]))
                    }
                }
            }
        }
    }
}

fn cell(screen: &PipelineScreen, address: &str, line: &EnvironmentLine) -> Markup {
    let is_cut = line.environment.len() > MAX_SHOWN_NAME;
    html! {
        a.cell.behind[is_behind(line, screen)] href={ (address) "#env-" (line.environment.split('/').next().unwrap_or_default()) } {
            span.env title=[is_cut.then_some(&line.environment)] { (line.environment) }
            span.rev {
                (icon(Shape::of_health(line.health), &line.health.to_string()))
                (runs(line))
            }
            @if let Some((incoming, _)) = &line.incoming {
                @if line.runs.as_ref() != Some(incoming) {
                    span.incoming title={ "waits: " (incoming) } { "→ " (words::short(incoming)) }
                }
            }
        }
    }
}

/// Returns the cell of environments that are up to date.
fn fold(address: &str, lines: &[EnvironmentLine]) -> Markup {
    let names: Vec<&str> = lines.iter().map(|line| line.environment.as_str()).collect();
    html! {
        a.cell href=(address) title=(names.join(", ")) {
            span.env { (lines.len()) " more" }
            span.rev { (icon(Shape::of_health(Health::Ready), "Ready")) span.quieter.small { (Situation::UpToDate.words()) } }
        }
    }
}

/// Returns the class of the line between an environment and the one that is shown before it. There is no line between
/// two environments if none comes after the other.
fn link(line: &EnvironmentLine, screen: &PipelineScreen, at: usize) -> &'static str {
    let shown_before = screen.environments.get(at - 1).map(|before| before.environment.split('/').next());
    let is_after = line.after.iter().any(|after| shown_before == Some(Some(after)));
    // The targets of one environment have the same predecessors.
    let environment = line.environment.split('/').next();
    if is_after || shown_before == Some(environment) { edge(line, screen.suspended) } else { "none" }
}

/// Returns what an environment runs.
pub(super) fn runs(line: &EnvironmentLine) -> Markup {
    match (&line.runs, line.health) {
        (Some(runs), _) => words::revision(runs),
        (None, Health::Unknown) => html! { span.quieter { "not known" } },
        (None, _) => html! { span.quieter { "several" } },
    }
}

/// Returns the class of the line that leads to an environment.
pub(super) fn edge(line: &EnvironmentLine, is_suspended: bool) -> &'static str {
    match line.situation {
        Situation::Moving => "moves",
        Situation::Waiting => "waits",
        Situation::Blocked if line.is_stuck(is_suspended) => "stuck",
        Situation::Blocked if is_suspended && line.incoming.is_none() => "",
        Situation::Blocked => "waits",
        Situation::UpToDate | Situation::Observed | Situation::Differs | Situation::Unknown => "",
    }
}

/// Whether an environment has not got what one before it runs.
pub(super) fn is_behind(line: &EnvironmentLine, screen: &PipelineScreen) -> bool {
    let before = screen.environments.iter().filter(|other| {
        let name = other.environment.split('/').next().unwrap_or_default();
        line.after.iter().any(|after| after == name)
    });
    line.runs.is_some() && before.into_iter().any(|other| other.runs.is_some() && other.runs != line.runs)
}
