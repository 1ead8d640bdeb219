//! `sluice explain`: why an environment gets a revision or does not, and what to do; or the whole history of a promotion.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use sluice_api::Promotion;
use sluice_view::explain::{Explanation, explain};
use sluice_view::explain_back::explain_environment;
use sluice_view::pipeline_screen::summarized;
use sluice_view::story::{StoryEvent, left_out, story};

use crate::cluster_flags::{ClusterFlags, ControllerFlags};
use crate::connection::API_CALL_TIMEOUT;
use crate::controller_lease::warn_if_nobody_acts;
use crate::document_kind::DocumentKind;
use crate::exit::Outcome;
use crate::load;
use crate::name_completion::{environments, promotions_and_pipelines};
use crate::object_argument;
use crate::objects;
use crate::output::{DataFormat, view};
use crate::place::Place;
use crate::terminal::{Io, Symbol};

/// Arguments of `sluice explain`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Why does prod not get the new revision?
  sluice explain podinfo -n apps -e prod

  # What holds each environment of a pipeline
  sluice explain podinfo -n apps

  # The whole history of one promotion
  sluice explain podinfo-prod-5f1c9a -n apps")]
pub struct Explain {
    /// A pipeline, or a promotion
    #[arg(value_parser = object_argument::either, add = ArgValueCompleter::new(promotions_and_pipelines))]
    name: String,
    /// Only this environment of the pipeline, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(environments))]
    environment: Option<String>,
    /// Print data instead of sentences
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<DataFormat>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    controller: ControllerFlags,
}

pub(crate) async fn run(args: &Explain, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    if args.environment.is_none() {
        let found = objects::get::<Promotion>(&connection, &connection.namespace, &args.name).await?;
        if let Some(promotion) = found {
            return tell(&promotion, args.output, io);
        }
    }
    let (pipeline, promotions) = load::pipeline(&connection, &args.name, io).await?;
    warn_if_nobody_acts(&connection, &args.controller.system_namespace, io).await;
    let now = Timestamp::now();
    let all = match &args.environment {
        Some(wanted) => {
            Place::find(&pipeline, wanted)?;
            explain_environment(&pipeline, &promotions, wanted, now)
        }
        None => explain(&pipeline, &promotions, now),
    };
    let conditions = pipeline.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if let Some(summarized) = summarized(conditions) {
        io.note(&format!("! {summarized}"));
    }
    if let Some(format) = args.output {
        return Ok(view(format, DocumentKind::Explanations, &all, io.out)?);
    }
    all.iter().enumerate().try_for_each(|(n, explanation)| {
        if n > 0 {
            io.line("")?;
        }
        print(explanation, io)
    })
}

fn print(explanation: &Explanation, io: &mut Io<'_>) -> Outcome {
    let runs = explanation.runs.as_deref().unwrap_or("several revisions, or none");
    io.line(explanation.heading(runs))?;
    for sentence in &explanation.sentences {
        io.line(format!("  {sentence}"))?;
    }
    for command in &explanation.next {
        io.copyable_line(format!("  {} {command}", Symbol::Action.glyph()))?;
    }
    Ok(())
}

/// Prints the history of a promotion.
fn tell(promotion: &Promotion, output: Option<DataFormat>, io: &mut Io<'_>) -> Outcome {
    let story = story(promotion);
    if let Some(format) = output {
        return Ok(view(format, DocumentKind::Story, &story, io.out)?);
    }
    let spec = &promotion.spec;
    io.line(format!("{} {} into {}", spec.pipeline, spec.revision, spec.place()))?;
    for StoryEvent { at, what, is_earlier, .. } in &story {
        let earlier = if *is_earlier { " (in an earlier try)" } else { "" };
        io.line(format!("  {:<20} {what}{earlier}", at))?;
    }
    if let Some(note) = left_out(promotion) {
        io.line(format!("  {note}"))?;
    }
    Ok(())
}
