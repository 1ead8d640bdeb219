//! A pipeline in one row: its name, the strip of its environments, and what holds it.

use maud::{Markup, html};
use sluice_api::Pipeline;
use sluice_core::observed::Health;
use sluice_view::explain::Situation;
use sluice_view::pipeline_screen::{EnvironmentLine, PipelineScreen};

use super::shape::{Shape, icon};
use super::{links, words};

/// Returns the id of a pipeline's row.
pub(super) fn row_id(screen: &PipelineScreen) -> String {
    format!("pipeline:{}/{}", screen.namespace, screen.name)
}

/// Returns the row of a pipeline.
pub(crate) fn row(pipeline: &Pipeline, screen: &PipelineScreen) -> Markup {
    let at = links::pipeline(&screen.namespace, &screen.name);
    html! {
        div.row id=(row_id(screen)) {
            div {
                a.name href=(at) { (screen.name) }
                div.small.quieter { (screen.namespace) " · " (application(pipeline)) }
            }
            (strip(screen, &at))
            div.hold { (hold(screen)) }
        }
    }
}

/// Returns the kind of the application, or that labels choose its objects.
pub(super) fn application(pipeline: &Pipeline) -> &str {
    pipeline.spec.app_ref.as_ref().map_or("by labels", |app| &app.kind)
}

/// Returns what holds a pipeline, in one sentence.
fn hold(screen: &PipelineScreen) -> Markup {
    let cause = screen.cause.as_ref().and_then(|cause| cause.sentences.first());
    match (&screen.trouble, cause) {
        (_, Some(cause)) => html! { (cause) },
        (Some(trouble), None) => html! { (trouble) },
        (None, None) if screen.suspended => html! { span.quieter { "suspended" } },
        (None, None) => html! { span.quieter { (nothing_waits(screen)) } },
    }
}

/// Returns the strip: the environments in order, joined by what moves between them.
pub(super) fn strip(screen: &PipelineScreen, address: &str) -> Markup {
    html! {
        div.strip {
            @for (at, line) in screen.environments.iter().enumerate() {
                @if at > 0 { span.link.(link(line, screen, at)) {} }
                a.cell.behind[is_behind(line, screen)] href={ (address) "#env-" (line.environment.split('/').next().unwrap_or_default()) } {
                    span.env { (line.environment) }
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

/// Returns what is so of a pipeline in which nothing waits, moves or differs.
pub(super) fn nothing_waits(screen: &PipelineScreen) -> &'static str {
    let is_observed = |line: &EnvironmentLine| line.situation == Situation::Observed;
    if screen.environments.iter().all(is_observed) {
        Situation::Observed.words()
    } else {
        Situation::UpToDate.words()
    }
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
