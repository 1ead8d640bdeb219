//! The preview of a Pipeline: what is still wrong, the graph of its environments, the manifest, and where to put it.

use maud::{Markup, html};
use sluice_api::Pipeline;
use sluice_view::pipeline_screen::PipelineScreen;

use super::answer::sentence;
use super::draft_fields::{DraftForm, no_cluster};
use super::draft_first_setup;
use super::environment_graph::{ShownPromotions, graph};

/// The label by which kustomize-controller names the Kustomization that applied an object
/// ([kustomize-controller](https://fluxcd.io/flux/components/kustomize/kustomizations/)).
const APPLIED_BY: [&str; 2] = ["kustomize.toolkit.fluxcd.io/namespace", "kustomize.toolkit.fluxcd.io/name"];

/// How many clusters that do not exist are named.
const SHOWN_CLUSTERS: usize = 5;

/// Returns the preview.
pub(super) fn preview(form: &DraftForm) -> Markup {
    html! {
        section.preview aria-label="Preview" {
            (state(form))
            @if let Some(pipeline) = form.checked.pipeline.as_ref().filter(|p| !p.spec.environments.is_empty()) {
                h2 { "Environments" }
                (graph(pipeline, &PipelineScreen::default(), &ShownPromotions::default()))
            }
            @if let Some(Ok(setup)) = &form.setup {
                (draft_first_setup::files(setup, form.draft.environments.first().map(|first| first.name.as_str())))
            }
            h2 { @if form.setup.is_some() { "The pipeline" } @else { "YAML" } }
            pre.yaml tabindex="0" { (form.checked.yaml) }
            (where_to(form))
        }
    }
}

fn state(form: &DraftForm) -> Markup {
    let others = form.other_problems();
    let no_files = draft_first_setup::problems(form.setup.as_ref());
    let (all, missing) = (form.checked.problems.len() + no_files.len(), form.missing());
    html! {
        div role="status" {
            @let unknown = form.unknown_clusters();
            @if form.is_complete() && !unknown.is_empty() {
                section.answer.pending-answer { div {
                    p.why { "An API server accepts this pipeline, and its targets cannot be read." }
                    @for key in unknown.iter().take(SHOWN_CLUSTERS) { p.small.quiet { (no_cluster(key)) } }
                } }
            } @else if form.is_complete() {
                section.answer.ready-answer { div { p.why { "Valid: an API server accepts this pipeline." } } }
            } @else if all == missing {
                section.answer { div { p.why { "Still empty: " (count(missing, "field")) "." } } }
            } @else {
                section.answer.failed-answer { div {
                    p.why { (count(all - missing, "problem")) " to correct." }
                    @if missing > 0 { p.small.quiet { "Still empty: " (count(missing, "field")) "." } }
                    @for problem in &no_files { p.small { (sentence(problem)) "." } }
                    @for problem in &others {
                        p.small { span.mono { (problem.path) } ": " (problem.message) }
                    }
                } }
            }
        }
    }
}

fn count(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// Returns where the manifest belongs. Nothing is written to the cluster.
fn where_to(form: &DraftForm) -> Markup {
    let namespace = match form.draft.namespace.as_str() {
        "" => "of the pipeline",
        namespace => namespace,
    };
    html! {
        p.small.quiet {
            "Sluice writes nothing to the cluster. "
            @if !form.actions { "These pages are read-only, so they cannot propose the file in git either. " }
            @match form.edited.as_ref().and_then(applied_by) {
                Some(applied_by) => {
                    (sentence(&applied_by))
                }
                None if form.setup.is_some() => {
                    "The download has all files, each below its path. Commit those of the application where Flux applies them to their clusters, and the pipeline to the repository that Flux applies to the cluster with Sluice."
                }
                None => {
                    "Commit this file to the repository that Flux applies to the cluster with Sluice, next to the other objects of namespace "
                    span.mono { (namespace) } "; or apply it with kubectl."
                }
            }
        }
        @if form.edited.is_some() {
            p.small.quiet { "Fields that this form does not show are kept. This text lacks the comments of your file: copy only the changes into your file." }
        }
    }
}

/// Returns which Kustomization applies a Pipeline, as a sentence.
fn applied_by(pipeline: &Pipeline) -> Option<String> {
    let labels = pipeline.metadata.labels.as_ref()?;
    let [namespace, name] = APPLIED_BY.map(|key| labels.get(key));
    Some(format!(
        "the Kustomization {}/{} applies this pipeline: change the file in its repository. Flux reverts changes that are made in the cluster",
        namespace?, name?
    ))
}
