//! What a pipeline consists of: its environments, targets, Flux objects, workloads and images, each with its health.

use maud::{Markup, html};
use sluice_core::access::Caller;
use sluice_core::observed::Health;
use sluice_view::object_name::ObjectName;
use sluice_view::tree::{EnvironmentNode, TargetNode, WorkloadNode, tree};

use super::collapsed_targets::is_shown_at_first;
use super::frame::{Group, Page, Part, Section};
use super::shape::{Shape, badge, icon};
use super::{links, words};
use crate::find::find_pipeline;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;

pub(super) async fn page<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    object: &ObjectName,
) -> Result<Page, Problem> {
    let shown = find_pipeline(api, caller, object).await?;
    let environments = tree(&shown.stored.whole());
    let targets = environments.iter().map(|environment| environment.targets.len()).sum::<usize>();
    let head = html! {
        (words::way_to_pipeline(&object.namespace, &object.name))
        h1 { "Objects" }
        p.quiet { (environments.len()) " environments, " (targets) " targets" }
    };
    let mut parts = vec![Part::new("head", &head)];
    let part = |node: &EnvironmentNode| {
        Part::new(&format!("objects-{}", node.name), &of_environment(&object.namespace, node))
    };
    parts.extend(environments.iter().map(part));
    let title = format!("Objects of {}", object.name);
    Ok(Page { title, section: Section::Pipelines, groups: vec![Group::new("", parts)] })
}

fn of_environment(home: &str, node: &EnvironmentNode) -> Markup {
    let ready = node.targets.iter().filter(|target| target.health == Health::Ready).count();
    let is_open = |target: &TargetNode| is_shown_at_first(target, node.targets.len());
    html! {
        section.starts {
            h2 {
                (node.name)
                @if !node.after.is_empty() { span.quieter { " after " (node.after.join(", ")) } }
                span.quieter { " · " (ready) " of " (node.targets.len()) " targets ready" }
            }
            div.tree { @for target in &node.targets { (of_target(home, &node.name, target, is_open(target))) } }
        }
    }
}

fn of_target(home: &str, environment: &str, node: &TargetNode, is_open: bool) -> Markup {
    // The view leaves out the namespace of a cluster that is that of the pipeline.
    let cluster = match node.cluster.as_str() {
        "" => String::new(),
        cluster if cluster.contains('/') => cluster.into(),
        cluster => format!("{home}/{cluster}"),
    };
    html! {
        details id={ "objects-of-" (environment) "/" (node.name) } open[is_open] {
            summary {
                b { (if node.cluster.is_empty() { "hub" } else { &node.cluster }) " / " (node.namespace) }
                @if let Some(runs) = &node.runs { " " (words::revision(runs)) }
                " " (badge(Shape::of_health(node.health), &node.health.to_string()))
            }
            @if !node.error.is_empty() { p.small.wrong { (node.error) } }
            @if node.members.is_empty() { p.small.quieter { "No object of Flux is known here." } }
            @if !node.members.is_empty() {
                ul { @for member in &node.members { (of_object(member, Some((&cluster, &node.namespace)))) } }
            }
        }
    }
}

/// Returns the status at the end of a line: of what is fine only its shape.
fn status(health: Health) -> Markup {
    let (shape, word) = (Shape::of_health(health), health.to_string());
    if health == Health::Ready { icon(shape, &word) } else { badge(shape, &word) }
}

/// Returns an object. `place` is the cluster and namespace of a member; the namespace of what it made is not known.
fn of_object(node: &WorkloadNode, place: Option<(&str, &str)>) -> Markup {
    let (kind, name) = node.name.split_once('/').unwrap_or_default();
    html! {
        li {
            @if let Some((cluster, namespace)) = place {
                a href=(links::trace(cluster, kind, namespace, name)) title="Where does it come from?" { (node.name) }
            } @else { (node.name) }
            @if !node.version.is_empty() { " " (words::revision(&node.version)) }
            " " (status(node.health))
            @if !node.message.is_empty() { p.small.quiet { (node.message) } }
            @if !node.made.is_empty() || !node.images.is_empty() {
                ul {
                    @for made in &node.made { (of_object(made, None)) }
                    @for image in &node.images { li.mono.quiet { (words::image(image)) } }
                }
            }
        }
    }
}
