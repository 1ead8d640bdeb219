//! The first set-up of a pipeline, as a part of its form: it starts from an application that runs, and its files are shown.

use axum::http::StatusCode;
use maud::{Markup, html};
use sluice_core::dns_name::{is_label, is_subdomain};
use sluice_core::fleet::Kind;
use sluice_view::draft::{Draft, DraftTarget};
use sluice_view::first_setup::{Application, ApplicationFile, FirstSetup, MarkedByHand};
use sluice_view::object_name::ObjectName;

use super::answer::sentence;
use super::person::Person;
use crate::choices::{APP_KINDS, Choices};
use crate::draft_input::DraftStep;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;

/// The files of a first set-up, or why there are none.
pub(super) type Setup = Result<FirstSetup, String>;

/// Fills a draft from an application if the person asked for that. The text says why it cannot be filled.
pub(super) async fn start<H: Hub>(
    api: &Api<H>,
    person: &Person,
    draft: &mut Draft,
    step: &DraftStep,
) -> Result<Option<String>, Problem> {
    let read = match step {
        DraftStep::UseManifest => {
            let text = draft.manifest.clone();
            on_a_thread(move || Application::read(&text).map_err(|error| error.to_string())).await?
        }
        DraftStep::ReadApplication(namespace) => from_hub(api, person, draft, namespace).await?,
        _ => return Ok(None),
    };
    let application = match read {
        Ok(application) => application,
        Err(problem) => return Ok(Some(problem)),
    };
    let place = match step {
        DraftStep::ReadApplication(_) => Some(String::new()),
        _ => only_place(api, person, draft, &application).await?,
    };
    draft.start_from(&application, place.as_deref());
    draft.manifest = application.manifest();
    Ok(None)
}

/// Reads the application of a draft on the hub, as the API server shows it to the person.
async fn from_hub<H: Hub>(
    api: &Api<H>,
    person: &Person,
    draft: &Draft,
    namespace: &str,
) -> Result<Result<Application, String>, Problem> {
    let kind: Option<Kind> = APP_KINDS.into_iter().find(|kind| kind.name() == draft.app_kind);
    let name = ObjectName { namespace: namespace.into(), name: draft.app_name.clone() };
    let Some(kind) = kind.filter(|_| is_label(&name.namespace) && is_subdomain(&name.name)) else {
        return Ok(Err("choose a HelmRelease or Kustomization, and enter its name".into()));
    };
    match api.hub.application(&person.token, kind, &name).await {
        Ok(object) => on_a_thread(move || Application::of(object).map_err(|error| error.to_string())).await,
        Err(error) => Ok(Err(format!("cannot read {} {name} with your rights: {error}", kind.name()))),
    }
}

/// Returns the cluster on which an application runs in the namespace of its manifest, if the person sees one such cluster.
async fn only_place<H: Hub>(
    api: &Api<H>,
    person: &Person,
    draft: &Draft,
    application: &Application,
) -> Result<Option<String>, Problem> {
    let of_application = Draft {
        namespace: draft.namespace.clone(),
        app_kind: application.kind.name().into(),
        app_name: application.name.clone(),
        ..Draft::default()
    };
    let choices = Choices::of(api, &person.caller, &of_application).await?;
    let mut places = choices.places.into_iter().filter(|place| place.namespace == application.namespace);
    Ok(places.next().filter(|_| places.next().is_none()).map(|place| place.cluster))
}

/// Returns the files of a draft; `None` if it starts from no application.
pub(super) fn setup(draft: &Draft, pipeline: Option<&sluice_api::Pipeline>) -> Option<Setup> {
    if draft.manifest.is_empty() {
        return None;
    }
    let application = Application::read(&draft.manifest).map_err(|error| error.to_string());
    let no_pipeline = || "the files appear when the pipeline is complete".to_string();
    Some(
        application.and_then(|application| {
            Ok(FirstSetup::of(&application, draft, pipeline.ok_or_else(no_pipeline)?))
        }),
    )
}

/// Computes on a thread on which nothing else waits: a large manifest takes a while.
async fn on_a_thread<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the manifest cannot be read");
    tokio::task::spawn_blocking(compute).await.map_err(failed)
}

/// Returns why a set-up has no files, a sentence each.
pub(super) fn problems(setup: Option<&Setup>) -> Vec<&str> {
    match setup {
        None => Vec::new(),
        Some(Err(problem)) => vec![problem],
        Some(Ok(setup)) => setup.problems.iter().map(String::as_str).collect(),
    }
}

/// Returns whether the manifest of a target is in git already: a question only if there is a manifest to copy.
pub(super) fn in_git(draft: &Draft, target: &DraftTarget, name: &str) -> Markup {
    html! {
        @if !draft.manifest.is_empty() {
            label.check {
                input type="checkbox" name=(name) value="yes" checked[target.in_git];
                "Its manifest is in git already"
            }
        } @else if target.in_git {
            input type="hidden" name=(name) value="yes";
        }
    }
}

/// Returns the preview of the files.
pub(super) fn files(setup: &FirstSetup, first_environment: Option<&str>) -> Markup {
    html! {
        h2 { "Files of the application" }
        @for note in &setup.notes { p.small { (sentence(note)) "." } }
        @for (at, file) in setup.files.iter().enumerate() { (one_file(file, at == 0)) }
        @for marked in &setup.in_git { (by_hand(marked, first_environment == Some(&marked.environment))) }
        @if setup.files.is_empty() && setup.problems.is_empty() {
            p.small { "There is no new file: the manifest of each target is in git already." }
        }
    }
}

fn one_file(file: &ApplicationFile, is_open: bool) -> Markup {
    html! {
        details.file open[is_open] {
            summary { span.mono { (file.path) } " " span.small.quiet { (file.environment) " / " (file.target) } }
            pre.yaml tabindex="0" { (file.yaml) }
        }
    }
}

fn by_hand(marked: &MarkedByHand, is_first: bool) -> Markup {
    html! {
        p.small {
            span.mono { (marked.environment) " / " (marked.target) } " is in git already. "
            @if is_first {
                "It is the first environment, so Sluice writes nothing there."
            } @else {
                @for (field, marker) in &marked.markers {
                    "Add this comment at the end of the line of " span.mono { (field) } " in its file: " code { "# " (marker) } " "
                }
            }
        }
    }
}
