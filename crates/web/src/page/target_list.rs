//! The targets of an environment: where each one runs, what, and how it does.

use maud::{Markup, html};
use sluice_view::tree::{LastKnown, TargetNode, WorkloadNode};

use super::collapsed_targets::is_shown_at_first;
use super::shape::{Shape, icon};
use super::words;

/// Returns the targets of an environment. Many targets that are ready are folded.
pub(super) fn targets(targets: &[TargetNode]) -> Markup {
    let is_shown = |target: &&TargetNode| is_shown_at_first(target, targets.len());
    let (shown, folded): (Vec<&TargetNode>, Vec<&TargetNode>) = targets.iter().partition(is_shown);
    html! {
        ul.targets {
            @for target in &shown { (one_target(target)) }
        }
        @if !folded.is_empty() {
            details {
                summary { (folded.len()) " more, all ready" }
                ul.targets { @for target in &folded { (one_target(target)) } }
            }
        }
    }
}

fn one_target(target: &TargetNode) -> Markup {
    let cluster = if target.cluster.is_empty() { "hub" } else { &target.cluster };
    html! {
        li {
            span { (cluster) " / " (target.namespace) }
            (icon(Shape::of_health(target.health), &target.health.to_string()))
            @if let Some(runs) = &target.runs {
                span.sub { (words::revision(runs)) @if let Some(since) = target.since { " · " (target.health.to_string().to_lowercase()) " since " (words::time(since)) } }
            }
            @if let Some(last) = &target.last_known { (last_known(last, target)) }
            @if !target.error.is_empty() { span.sub.why { (target.error) } }
            @for member in &target.members { (workload(member, 0)) }
        }
    }
}

/// Returns what a target that cannot be read ran healthily last. It is not what runs there now.
fn last_known(last: &LastKnown, target: &TargetNode) -> Markup {
    html! {
        span.sub.last {
            "last seen healthy: " (words::revision(&last.revision)) ", as of " (words::time(last.at))
            @if let Some(since) = target.since { "; unreadable since " (words::time(since)) }
        }
    }
}

fn workload(node: &WorkloadNode, depth: usize) -> Markup {
    html! {
        span.sub.deep[depth > 0] {
            (icon(Shape::of_health(node.health), &node.health.to_string())) " " (node.name)
            @if !node.version.is_empty() { " " (words::revision(&node.version)) }
            @for image in &node.images { span.image { (words::image(image)) } }
        }
        @for made in &node.made { (workload(made, depth + 1)) }
    }
}
