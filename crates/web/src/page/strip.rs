//! The strip of a pipeline: its environments in order, joined by what moves between them.

use std::ops::Range;

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

/// Returns the whole strip, for the page of the pipeline.
pub(super) fn whole(screen: &PipelineScreen) -> Markup {
    strip(screen, "", (0..screen.environments.len()).map(|at| at..at + 1))
}

/// Returns the strip for one row of a list: of a long one, neighbours that are up to date share a cell.
pub(super) fn folded(screen: &PipelineScreen, address: &str) -> Markup {
    strip(screen, address, cells(&screen.environments).into_iter())
}

/// Returns which environments each cell has. The first and the last one always have their own.
fn cells(lines: &[EnvironmentLine]) -> Vec<Range<usize>> {
    let is_folded =
        |at: usize| lines.len() > FOLDS_ABOVE && at > 0 && at + 1 < lines.len() && is_at_rest(&lines[at]);
    let mut cells: Vec<Range<usize>> = Vec::new();
    for at in 0..lines.len() {
        match cells.last_mut().filter(|last| is_folded(last.start) && is_folded(at)) {
            Some(last) => last.end = at + 1,
            None => cells.push(at..at + 1),
        }
    }
    cells
}

/// Whether an environment needs no look: it is healthy, and nothing waits for it.
fn is_at_rest(line: &EnvironmentLine) -> bool {
    line.situation == Situation::UpToDate && line.health == Health::Ready && line.incoming.is_none()
}

fn strip(
    screen: &PipelineScreen,
    address: &str,
    cells: impl ExactSizeIterator<Item = Range<usize>>,
) -> Markup {
    html! {
        div.strip.dense[cells.len() > MAX_WIDE] {
            @for Range { start, end } in cells {
                @if start > 0 { span.link.(link(&screen.environments[start], screen, start)) {} }
                @match &screen.environments[start..end] {
                    [line] => (cell(screen, address, line)),
                    lines => (fold(address, lines)),
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
