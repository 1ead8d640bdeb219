//! `sluice tree`: what a pipeline consists of, from its environments to the images of its workloads.

use clap::Args;
use clap_complete::ArgValueCompleter;
use sluice_view::tree::{EnvironmentNode, TargetNode, WorkloadNode, retain_nodes, tree};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::name_completion::{environments, pipelines};
use crate::object_argument;
use crate::output::{DataFormat, view};
use crate::place::Place;
use crate::terminal::Io;

/// Arguments of `sluice tree`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # What does podinfo consist of, in all environments?
  sluice tree podinfo -n apps

  # Only in prod
  sluice tree podinfo -n apps -e prod")]
pub struct Tree {
    /// The pipeline
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines))]
    pipeline: String,
    /// Only this environment, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    environment: Option<String>,
    /// Print data instead of a tree
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Tree, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let pipeline = load::pipeline_alone(&connection, &args.pipeline).await?;
    let mut environments = tree(&pipeline);
    if let Some(wanted) = &args.environment {
        Place::find(&pipeline, wanted)?;
        retain_nodes(&mut environments, wanted);
    }
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::Tree, &environments, io.out)?);
    }
    io.line(format!("{}/{}", connection.namespace, args.pipeline))?;
    let nodes: Vec<Node> = environments.iter().map(of_environment).collect();
    Ok(branches(&nodes, "", io)?)
}

/// One line of the tree, and what is below it.
struct Node {
    text: String,
    below: Vec<Node>,
}

/// Prints the lines of these nodes, and of all below them.
fn branches(nodes: &[Node], indent: &str, io: &mut Io<'_>) -> std::io::Result<()> {
    for (n, node) in nodes.iter().enumerate() {
        let (branch, more) =
            if n + 1 == nodes.len() { ("└── ", "    ") } else { ("├── ", "│   ") };
        let below = format!("{indent}{more}");
        io.paragraph(&format!("{indent}{branch}"), &below, &node.text)?;
        branches(&node.below, &below, io)?;
    }
    Ok(())
}

fn of_environment(node: &EnvironmentNode) -> Node {
    let after =
        if node.after.is_empty() { String::new() } else { format!(" after {}", node.after.join(", ")) };
    Node { text: format!("{}{after}", node.name), below: node.targets.iter().map(of_target).collect() }
}

fn of_target(node: &TargetNode) -> Node {
    let place = match node.cluster.as_str() {
        "" => format!("namespace {}", node.namespace),
        cluster => format!("cluster {cluster}, namespace {}", node.namespace),
    };
    let runs = node.runs.as_ref().map(|revision| format!(" {revision}")).unwrap_or_default();
    let last = node
        .last_known
        .as_ref()
        .map(|last| format!(", last seen healthy with {} as of {}", last.revision, last.at));
    let last = last.unwrap_or_default();
    let error = if node.error.is_empty() { String::new() } else { format!(": {}", node.error) };
    let text = format!("{} ({place}){runs} {}{last}{error}", node.name, node.health);
    Node { text, below: node.members.iter().map(of_workload).collect() }
}

fn of_workload(node: &WorkloadNode) -> Node {
    let version = if node.version.is_empty() { String::new() } else { format!(" {}", node.version) };
    let images = node.images.iter().map(|image| Node { text: image.clone(), below: Vec::new() });
    let below = node.made.iter().map(of_workload).chain(images).collect();
    let message = if node.message.is_empty() { String::new() } else { format!(": {}", node.message) };
    Node { text: format!("{}{version} {}{message}", node.name, node.health), below }
}
