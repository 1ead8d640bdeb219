//! `sluice trace`: where something that runs on a cluster comes from.

use clap::Args;
use clap_complete::ArgValueCompleter;
use sluice_view::fleet::trace::{Trace as TraceAnswer, TraceLink};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::controller_api::{ControllerApi, ServerFlags};
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::name_completion::{clusters, running_objects};
use crate::output::{DataFormat, view};
use crate::terminal::Io;

/// Arguments of `sluice trace`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which commit is behind the pods of podinfo in prod?
  sluice trace deployment/podinfo -n podinfo --on apps/prod-eu

  # Does this release run what its source offers?
  sluice trace helmrelease/podinfo -n podinfo --on apps/prod-eu")]
pub struct Trace {
    /// The object, such as deployment/podinfo, helmrelease/podinfo or kustomization/apps
    #[arg(value_name = "KIND/NAME", value_parser = object, add = ArgValueCompleter::new(running_objects))]
    object: Object,
    /// The cluster, as NAMESPACE/NAME of its GitopsCluster; default is the hub
    #[arg(long, value_name = "CLUSTER", default_value = "", add = ArgValueCompleter::new(clusters))]
    on: String,
    /// Print data instead of text
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Clone, Debug)]
struct Object {
    kind: String,
    name: String,
}

fn object(text: &str) -> Result<Object, String> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Object { kind: kind.into(), name: name.into() })
        }
        _ => Err(
            "write KIND/NAME, such as deployment/podinfo; sluice tree NAME shows the objects of a pipeline"
                .into(),
        ),
    }
}

pub(crate) async fn run(args: &Trace, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let api = ControllerApi::open(&connection, &args.server).await?;
    let object =
        [("kind", &*args.object.kind), ("namespace", &connection.namespace), ("name", &args.object.name)];
    let parameters = [&object[..], &[("cluster", &args.on)]].concat();
    let answer: TraceAnswer = api.get("/api/v1/trace", &parameters).await?;
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::Trace, &answer.links, io.out)?);
    }
    for (n, link) in answer.links.iter().enumerate() {
        if n > 0 {
            io.line("")?;
        }
        print(link, io)?;
    }
    Ok(())
}

/// Prints one object, and below it what is known of it.
fn print(link: &TraceLink, io: &mut Io<'_>) -> Outcome {
    let of = if link.of.is_empty() { String::new() } else { format!("  of {}", link.of) };
    let health = if link.missing.is_empty() { format!("  {}", link.health) } else { String::new() };
    io.line(format!("{} in {}{of}{health}", link.object, link.namespace))?;
    let verified = match link.verified {
        Some(true) => "by Flux",
        Some(false) => "no: Flux could not verify the signature",
        None => "",
    };
    let images = link.images.join(", ");
    for (name, value) in [
        ("Images", images.as_str()),
        ("Desired", &link.desired),
        (if link.desired.is_empty() { "Revision" } else { "Actual" }, &actual(link)),
        ("Its source has", if link.has_another_offer() { &link.wanted } else { "" }),
        ("Takes", &link.content),
        ("Address", &link.address),
        ("Follows", &link.follows),
        ("Built from", &link.origin),
        (if link.origin.is_empty() { "Built from" } else { "At revision" }, &link.origin_revision),
        ("Verified", verified),
        ("Message", if link.health == sluice_core::observed::Health::Ready { "" } else { &link.message }),
        ("Not shown", &link.missing),
    ] {
        if !value.is_empty() {
            io.line(format!("  {:<15} {value}", format!("{name}:")))?;
        }
    }
    Ok(())
}

/// What an object runs.
fn actual(link: &TraceLink) -> String {
    match (link.revision.is_empty(), link.differs) {
        (true, _) if link.desired.is_empty() => String::new(),
        (true, _) => "nothing yet".into(),
        (false, true) => format!("{}  (differs)", link.revision),
        (false, false) => link.revision.clone(),
    }
}
