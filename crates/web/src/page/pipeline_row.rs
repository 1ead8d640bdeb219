//! A pipeline in one row: its name, the strip of its environments, and what holds it.

use maud::{Markup, html};
use sluice_api::Pipeline;
use sluice_view::explain::Situation;
use sluice_view::pipeline_screen::{EnvironmentLine, PipelineScreen};

use super::{links, strip, words};

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
            (strip::folded(screen, &at))
            div.hold { (hold(screen)) }
        }
    }
}

/// Returns the kind of the application, or that labels choose its objects.
pub(super) fn application(pipeline: &Pipeline) -> &str {
    pipeline.spec.app_ref.as_ref().map_or("by labels", |app| &app.kind)
}

/// Returns what holds a pipeline: where, why and since when, of the environment that needs attention first.
fn hold(screen: &PipelineScreen) -> Markup {
    let cause = screen.cause.as_ref().and_then(|cause| Some((cause, cause.sentences.first()?)));
    match (&screen.trouble, cause) {
        (_, Some((cause, why))) => html! {
            span.env {
                (cause.environment)
                @if let Some(since) = cause.since { " · " (words::time(since)) }
                @match others_held(screen, &cause.environment) {
                    0 => {}
                    others => { " · " (others) " more" }
                }
            }
            " " (why)
        },
        (Some(trouble), None) => html! { (trouble) },
        (None, None) if screen.suspended => html! { span.quieter { "suspended" } },
        (None, None) => html! { span.quieter { (nothing_waits(screen)) } },
    }
}

/// Returns how many other environments of a pipeline wait, or need a person.
fn others_held(screen: &PipelineScreen, shown: &str) -> usize {
    let is_held = |line: &&EnvironmentLine| {
        matches!(line.situation, Situation::Blocked | Situation::Waiting) && line.environment != shown
    };
    screen.environments.iter().filter(is_held).count()
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
