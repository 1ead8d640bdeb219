//! The six states: each has a shape, a word and a colour of its own.

use maud::{Markup, html};
use sluice_api::promotion::Phase;
use sluice_core::observed::Health;
use sluice_view::explain::Situation;
use sluice_view::pipeline_screen::has_failed;

/// A state as pages show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Ready,
    Progress,
    Pending,
    Failed,
    Unknown,
    Suspended,
}

impl Shape {
    /// Returns the name of the symbol and of the class.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shape::Ready => "ready",
            Shape::Progress => "progress",
            Shape::Pending => "pending",
            Shape::Failed => "failed",
            Shape::Unknown => "unknown",
            Shape::Suspended => "suspended",
        }
    }

    /// Returns the shape of a health.
    pub(crate) fn of_health(health: Health) -> Shape {
        match health {
            Health::Ready => Shape::Ready,
            Health::Progressing => Shape::Progress,
            Health::Pending => Shape::Pending,
            Health::Failed => Shape::Failed,
            Health::Unknown => Shape::Unknown,
            Health::Suspended => Shape::Suspended,
        }
    }

    /// Returns the shape of a promotion's phase.
    pub(crate) fn of_phase(phase: Phase) -> Shape {
        match phase {
            Phase::Pending | Phase::Proposed => Shape::Pending,
            Phase::Promoting | Phase::Delivered => Shape::Progress,
            Phase::Succeeded => Shape::Ready,
            Phase::Failed | Phase::Rejected => Shape::Failed,
            Phase::Superseded | Phase::Cancelled => Shape::Suspended,
        }
    }

    /// Returns the shape of what is going on in an environment.
    pub(crate) fn of_situation(situation: Situation, health: Health, phase: Option<Phase>) -> Shape {
        match situation {
            Situation::UpToDate | Situation::Observed => Shape::Ready,
            Situation::Moving => Shape::Progress,
            Situation::Waiting | Situation::Differs => Shape::Pending,
            Situation::Blocked if health == Health::Failed || phase.is_some_and(has_failed) => Shape::Failed,
            Situation::Blocked if health == Health::Unknown && phase.is_none() => Shape::Unknown,
            Situation::Blocked => Shape::Pending,
            Situation::Unknown => Shape::Unknown,
        }
    }
}

/// Returns the shape alone; its word is read aloud.
pub(crate) fn icon(shape: Shape, word: &str) -> Markup {
    html! {
        span.st.(shape.name()) title=(word) {
            svg role="img" aria-label=(word) { use href={ "#i-" (shape.name()) } {} }
        }
    }
}

/// Returns the shape with its word.
pub(crate) fn badge(shape: Shape, word: &str) -> Markup {
    html! {
        span.st.(shape.name()) {
            svg aria-hidden="true" { use href={ "#i-" (shape.name()) } {} }
            (word)
        }
    }
}

/// The symbols, once in each page.
pub(crate) fn symbols() -> Markup {
    html! {
        svg.symbols width="0" height="0" aria-hidden="true" { defs {
            symbol id="i-ready" viewBox="0 0 12 12" {
                circle cx="6" cy="6" r="6" fill="currentColor" {}
                path.cut d="M3.2 6.2l2 2 3.6-4" {}
            }
            symbol id="i-progress" viewBox="0 0 12 12" {
                circle cx="6" cy="6" r="5" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="20 12" {}
            }
            symbol id="i-pending" viewBox="0 0 12 12" {
                path d="M2 1h8M2 11h8M3 1.5c0 3 6 6 6 9M9 1.5c0 3-6 6-6 9" fill="none" stroke="currentColor" stroke-width="1.4" {}
            }
            symbol id="i-failed" viewBox="0 0 12 12" {
                path d="M3.5 0h5L12 3.5v5L8.5 12h-5L0 8.5v-5z" fill="currentColor" {}
                path.cut d="M4 4l4 4M8 4l-4 4" {}
            }
            symbol id="i-unknown" viewBox="0 0 12 12" {
                circle cx="6" cy="6" r="5" fill="none" stroke="currentColor" stroke-width="1.4" stroke-dasharray="2 2" {}
            }
            symbol id="i-suspended" viewBox="0 0 12 12" {
                path d="M4 2v8M8 2v8" stroke="currentColor" stroke-width="2" stroke-linecap="round" {}
            }
        } }
    }
}
