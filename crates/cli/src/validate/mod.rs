//! `sluice validate`: validates Pipelines without a cluster, and shows the values that they would set in a checkout.

mod read;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use sluice_api::Pipeline;
use sluice_core::Facet;
use sluice_view::pipeline_validation::{self, SchemaProblem};

use crate::checkout::{CheckoutFile, yaml_files};
use crate::checkout_preview::{self, EnvironmentPreview};
use crate::document_kind::DocumentKind;
use crate::exit::{Exit, Failure, Outcome};
use crate::object_argument;
use crate::output::{DataFormat, view};
use crate::suggest::{instead, no_environment};
use crate::terminal::{Io, Symbol};
use read::{Document, ManifestSet};

/// Arguments of `sluice validate`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Is it a valid Pipeline?
  sluice validate -f pipeline.yaml
  kustomize build apps | sluice validate -f -

  # And which values would a promotion set in this repository?
  sluice validate -f pipeline.yaml --checkout .
  sluice validate -f pipeline.yaml --checkout . --revision 6.2.0 --environment prod

The exit code is 0 if everything is valid, 6 if a Pipeline is not valid, and 7 if values cannot be set.")]
pub struct Validate {
    /// Only the pipeline of this name
    #[arg(value_parser = object_argument::pipeline)]
    name: Option<String>,
    /// A file or folder with Pipelines, or - for stdin; default is the checkout
    #[arg(short, long = "filename", value_name = "FILE")]
    filename: Vec<String>,
    /// A checkout of the repository that the strategies name: show the values that would be set there
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
    /// Show the values of this environment only
    #[arg(short, long, value_name = "NAME")]
    environment: Option<String>,
    /// The promoted revision: a value, or one for a facet as chart=6.2.0
    #[arg(long, value_name = "VALUE", value_parser = revision_value)]
    revision: Vec<(Option<Facet>, String)>,
    /// The namespace of Pipelines without one
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
}

/// The formats of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// Lines, for people
    #[default]
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Parses a value of `--revision`.
fn revision_value(text: &str) -> Result<(Option<Facet>, String), String> {
    match text.rsplit_once('=') {
        Some((facet, value)) if !value.is_empty() => {
            let facet =
                facet.parse().map_err(|wrong: sluice_core::revision::InvalidFacet| wrong.to_string())?;
            Ok((Some(facet), value.into()))
        }
        None if !text.is_empty() => Ok((None, text.into())),
        _ => Err("write a value such as 6.2.0, or one for a facet such as chart=6.2.0".into()),
    }
}

/// The report about one Pipeline.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PipelineReport {
    /// The file and document that it was read from.
    source: String,
    /// The namespace; that of --namespace if the Pipeline has none.
    namespace: String,
    /// The name.
    name: String,
    /// True if the API server would accept it.
    valid: bool,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<SchemaProblem>,
    /// With --checkout: what a promotion into each environment would set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environments: Vec<EnvironmentPreview>,
}

pub(crate) fn run(args: &Validate, io: &mut Io<'_>) -> Outcome {
    let mut found = ManifestSet::default();
    for source in sources(args)? {
        read::pipelines(&source, &mut found)?;
    }
    let documents = chosen(args, found)?;
    let files = args.checkout.as_deref().map(yaml_files).transpose()?;
    let mut reports = Vec::new();
    for mut document in documents {
        let problems = pipeline_validation::problems(&mut document.object);
        reports.push(report(args, document, problems, files.as_deref())?);
    }
    match args.output {
        ReportFormat::Text => reports.iter().try_for_each(|one| show(one, io))?,
        ReportFormat::Json => view(DataFormat::Json, DocumentKind::Validation, &reports, io.out)?,
        ReportFormat::Yaml => view(DataFormat::Yaml, DocumentKind::Validation, &reports, io.out)?,
    }
    // A reader that has closed the pipe has read enough, however long the report is.
    io.flush()?;
    outcome(&reports)
}

fn sources(args: &Validate) -> Outcome<Vec<String>> {
    match (&args.filename[..], &args.checkout) {
        ([], None) => Err(Failure::new(Exit::Usage, "nothing to validate")
            .hinted("name a file or folder with -f, or stdin with -f -, or a repository with --checkout")),
        ([], Some(checkout)) => Ok(vec![checkout.display().to_string()]),
        (files, _) => Ok(files.to_vec()),
    }
}

fn name(document: &Document) -> String {
    document.object["metadata"]["name"].as_str().unwrap_or_default().into()
}

/// Returns the documents to validate: all, or those with the requested name.
fn chosen(args: &Validate, ManifestSet { documents, others }: ManifestSet) -> Outcome<Vec<Document>> {
    let names: Vec<String> = documents.iter().map(name).collect();
    match &args.name {
        None if documents.is_empty() => {
            let failure = Failure::new(Exit::NotFound, "there is no Pipeline in what was read");
            Err(match &others[..] {
                [] => failure,
                [first] => failure.hinted(first),
                [first, rest @ ..] => failure.hinted(format!("{first}; and {} more", rest.len())),
            })
        }
        None => Ok(documents),
        Some(wanted) if names.contains(wanted) => {
            Ok(documents.into_iter().filter(|document| name(document) == *wanted).collect())
        }
        Some(wanted) => {
            let end = instead(wanted, &names, "pipelines", "what was read");
            Err(Failure::new(Exit::NotFound, format!("there is no pipeline {wanted}{end}")))
        }
    }
}

/// Returns the report about a document with these problems.
fn report(
    args: &Validate,
    document: Document,
    mut errors: Vec<SchemaProblem>,
    files: Option<&[CheckoutFile]>,
) -> Outcome<PipelineReport> {
    let name = name(&document);
    let mut environments = Vec::new();
    let metadata = &document.object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or(&args.namespace).to_string();
    match serde_json::from_value::<Pipeline>(document.object) {
        Ok(mut pipeline) if errors.is_empty() => {
            pipeline.metadata.namespace = Some(namespace.clone());
            check_environment(args, &pipeline)?;
            if let Some(files) = files {
                let only = args.environment.as_deref();
                environments = checkout_preview::preview(&pipeline, only, files, &args.revision);
            }
        }
        Ok(_) => {}
        // The problems that were found explain the error better.
        Err(error) if errors.is_empty() => {
            errors.push(SchemaProblem { path: String::new(), message: format!("cannot be read: {error}") });
        }
        Err(_) => {}
    }
    let valid = errors.is_empty();
    Ok(PipelineReport { source: document.source, namespace, name, valid, errors, environments })
}

/// Fails if the pipeline does not have the environment of `--environment`.
fn check_environment(args: &Validate, pipeline: &Pipeline) -> Outcome {
    let names: Vec<String> = pipeline.spec.environments.iter().map(|e| e.name.clone()).collect();
    match &args.environment {
        Some(wanted) if !names.contains(wanted) => Err(no_environment(&pipeline.name_any(), wanted, &names)),
        _ => Ok(()),
    }
}

fn show(report: &PipelineReport, io: &mut Io<'_>) -> Outcome {
    let PipelineReport { namespace, name, source, .. } = report;
    match report.valid {
        true => {
            io.line(format!("{} {namespace}/{name} is a valid Pipeline ({source})", Symbol::Done.glyph()))?
        }
        false => io.line(format!("{} {namespace}/{name} is not valid ({source})", Symbol::Failed.glyph()))?,
    }
    for SchemaProblem { path, message } in &report.errors {
        io.line(format!("  {path}: {message}"))?;
    }
    for preview in &report.environments {
        let environment = &preview.environment;
        for value in &preview.values {
            let (sign, place) = (Symbol::Done.glyph(), format!("{}:{}", value.path, value.line));
            match value.from == value.to {
                true => io.line(format!("{sign} {environment}: {place} is {} already", value.to))?,
                false => io.line(format!("{sign} {environment}: {place} {} → {}", value.from, value.to))?,
            }
        }
        if let Some(why) = &preview.error {
            io.line(format!("{} {environment}: {}: {}", Symbol::Failed.glyph(), why.reason, why.message))?;
        }
        if let Some(why) = preview.skipped {
            io.line(format!("{} {environment}: {why}", Symbol::Waiting.glyph()))?;
        }
    }
    Ok(())
}

/// Returns the failure if a Pipeline is not valid or values cannot be set.
fn outcome(reports: &[PipelineReport]) -> Outcome {
    let invalid = reports.iter().filter(|one| !one.valid).count();
    if invalid > 0 {
        return Err(Failure::new(
            Exit::Invalid,
            format!("{invalid} of {} pipelines not valid", reports.len()),
        ));
    }
    let unset = reports.iter().flat_map(|one| &one.environments).filter(|e| e.error.is_some()).count();
    match unset {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Unset, "an environment has values that cannot be set")),
        n => Err(Failure::new(Exit::Unset, format!("{n} environments have values that cannot be set"))),
    }
}
