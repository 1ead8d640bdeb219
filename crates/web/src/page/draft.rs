//! The form for a Pipeline: a new one, or an edit of one. Each answer is a whole page, so that every button works without
//! the script; with it, the page follows the typing.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sluice_api::Pipeline;
use sluice_core::access::Caller;
use sluice_core::dns_name::is_subdomain;
use sluice_view::draft::{CheckedDraft, Draft, DraftEnvironment};
use sluice_view::first_setup;
use sluice_view::object_name::ObjectName;

use super::answer::{problem_page, send, send_file, sentence};
use super::draft_fields::{DraftForm, fields};
use super::draft_first_setup::{Setup, setup, start};
use super::draft_preview::preview;
use super::draft_proposal::{Entered, propose};
use super::frame::{Page, Section, document};
use super::links;
use super::person::Person;
use crate::choices::Choices;
use crate::draft_input::{DO, DraftStep, draft};
use crate::find::find_pipeline;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::requested_action::Seen;
use crate::rights::missing_pipeline_right;
use crate::state::Api;

/// So many targets cost as much as one more request: the rules compare each target of an environment with all others.
const TARGETS_OF_A_REQUEST: usize = 16;
/// How many bytes of the names of environments before one cost as much as a target.
const BYTES_OF_A_NAME: usize = 16;
/// So many bytes of manifests cost as much as one more request.
const BYTES_OF_A_REQUEST: usize = 32 << 10;

/// What the address of a new Pipeline names.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NewQuery {
    /// The namespace of the Pipeline.
    namespace: String,
    /// The kind of the application.
    kind: String,
    /// The name of the application.
    app: String,
}

/// A page with an empty form.
pub(super) async fn new<H: Hub>(
    State(api): State<Api<H>>,
    Query(query): Query<NewQuery>,
    person: Person,
) -> Response {
    let mut draft = Draft::new(&query.namespace);
    if !query.kind.is_empty() {
        (draft.app_kind, draft.app_name) = (query.kind, query.app);
    }
    answer(&api, &person, draft, None, Entered::default()).await
}

/// A page with what was entered for a new Pipeline.
pub(super) async fn change_new<H: Hub>(
    State(api): State<Api<H>>,
    headers: HeaderMap,
    person: Person,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    changed(&api, &headers, &person, &fields, None).await
}

/// A page with the form of a Pipeline.
pub(super) async fn edit<H: Hub>(
    State(api): State<Api<H>>,
    Path((namespace, name)): Path<(String, String)>,
    person: Person,
) -> Response {
    match find_pipeline(&api, &person.caller, &ObjectName { namespace, name }).await {
        Ok(shown) => {
            let pipeline = shown.stored.whole();
            let draft = Draft::from(&pipeline);
            let seen = Seen::of_pipeline(&pipeline).to_string();
            answer(&api, &person, draft, Some(pipeline), Entered::begin(seen)).await
        }
        Err(problem) => problem_page(&problem, &person.viewer(api.actions)),
    }
}

/// A page with what was entered for a Pipeline.
pub(super) async fn change<H: Hub>(
    State(api): State<Api<H>>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    person: Person,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    match find_pipeline(&api, &person.caller, &ObjectName { namespace, name }).await {
        Ok(shown) => changed(&api, &headers, &person, &fields, Some(shown.stored.whole())).await,
        Err(problem) => problem_page(&problem, &person.viewer(api.actions)),
    }
}

async fn changed<H: Hub>(
    api: &Api<H>,
    headers: &HeaderMap,
    person: &Person,
    fields: &[(String, String)],
    edited: Option<Pipeline>,
) -> Response {
    let value = |name: &str| fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value);
    if let Err(problem) = person.check_form(api, headers, value("token")) {
        return problem_page(&problem, &person.viewer(api.actions));
    }
    let mut draft = draft(fields);
    if let Some(Pipeline { metadata, .. }) = &edited {
        draft.namespace = metadata.namespace.clone().unwrap_or_default();
        draft.name = metadata.name.clone().unwrap_or_default();
    }
    let step = DraftStep::parse(value(DO));
    step.apply(&mut draft);
    answer(api, person, draft, edited, Entered::of(fields, step)).await
}

/// Answers with the page, or with the manifest if a person asked for it and it is valid.
async fn answer<H: Hub>(
    api: &Api<H>,
    person: &Person,
    draft: Draft,
    edited: Option<Pipeline>,
    entered: Entered<'_>,
) -> Response {
    let step = &entered.step;
    match form(api, person, draft, edited, &entered).await {
        Ok(form) if *step == DraftStep::Download && form.is_complete() => {
            send_file(&file_name(&form.draft), form.download())
        }
        Ok(form) if *step == DraftStep::Propose && form.is_complete() => {
            propose(api, person, form, &entered).await
        }
        Ok(form) => {
            let is_refused = matches!(step, DraftStep::Download | DraftStep::Propose);
            let status = if is_refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
            send(status, document(&page(&form, person), &person.viewer(api.actions), ""))
        }
        Err(problem) => problem_page(&problem, &person.viewer(api.actions)),
    }
}

async fn form<H: Hub>(
    api: &Api<H>,
    person: &Person,
    mut draft: Draft,
    edited: Option<Pipeline>,
    entered: &Entered<'_>,
) -> Result<DraftForm, Problem> {
    let (step, caller) = (&entered.step, &person.caller);
    if edited.is_some() {
        draft.manifest.clear();
    }
    api.budgets.spend(caller.limit_group(), costs_of_files(&draft))?;
    let not_started = match edited {
        Some(_) => None,
        None => start(api, person, &mut draft, step).await?,
    };
    let missing_right = missing_right(api, caller, &draft, edited.is_some()).await?;
    let parts_of = |one: &DraftEnvironment| one.targets.len() + one.after.len() / BYTES_OF_A_NAME;
    let parts: usize = draft.environments.iter().map(parts_of).sum();
    api.budgets.spend(caller.limit_group(), parts / TARGETS_OF_A_REQUEST)?;
    let choices = match edited {
        Some(_) => Choices::of(api, caller, &draft).await?,
        None => Choices::of_new(api, caller, &draft).await?,
    };
    let (draft, edited, checked, setup) = checked(draft, edited).await?;
    Ok(DraftForm {
        setup: not_started.map(Err).or(setup),
        draft,
        edited,
        checked,
        choices,
        missing_right,
        seen: entered.seen.clone(),
        actions: api.actions,
        shows_missing: !matches!(
            step,
            DraftStep::Look
                | DraftStep::AddEnvironment
                | DraftStep::AddTarget(_)
                | DraftStep::AddPlace(..)
                | DraftStep::UseManifest
                | DraftStep::ReadApplication(_)
        ),
    })
}

/// Returns how many requests the files of a first set-up cost: the manifest is read, and written and read for each new file.
fn costs_of_files(draft: &Draft) -> usize {
    let targets = draft.environments.iter().flat_map(|environment| &environment.targets);
    let new_files = targets.filter(|target| !target.in_git).count();
    let bytes = draft.manifest.len().saturating_mul(1 + new_files);
    bytes.min(first_setup::MAX_TOTAL_BYTES) / BYTES_OF_A_REQUEST
}

/// Checks a draft, on a thread on which nothing else waits: many targets take a while.
async fn checked(
    draft: Draft,
    edited: Option<Pipeline>,
) -> Result<(Draft, Option<Pipeline>, CheckedDraft, Option<Setup>), Problem> {
    let check = move || {
        let checked = draft.check(edited.as_ref());
        let setup = setup(&draft, checked.pipeline.as_ref());
        (draft, edited, checked, setup)
    };
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the form cannot be checked");
    tokio::task::spawn_blocking(check).await.map_err(failed)
}

/// Returns which right a person lacks to make the change; `None` if it is not known yet where the Pipeline will be.
async fn missing_right<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    draft: &Draft,
    is_edit: bool,
) -> Result<Option<String>, Problem> {
    let (namespace, name) = (draft.namespace.as_str(), draft.name.as_str());
    Ok(match is_edit {
        true => missing_pipeline_right(&api.hub, caller, "update", (namespace, Some(name))).await?,
        false if namespace.is_empty() => None,
        false => missing_pipeline_right(&api.hub, caller, "create", (namespace, None)).await?,
    })
}

fn file_name(draft: &Draft) -> String {
    if is_subdomain(&draft.name) { format!("{}.yaml", draft.name) } else { "pipeline.yaml".into() }
}

fn page(form: &DraftForm, person: &Person) -> Page {
    let Draft { namespace, name, .. } = &form.draft;
    let title = match form.edited {
        Some(_) => format!("Edit {name}"),
        None => "New pipeline".into(),
    };
    let content = html! {
        (crumbs(form, namespace, name))
        h1 { (title) }
        @if let Some(missing) = &form.missing_right {
            p.note role="status" { (sentence(&may_not(form, missing))) }
        }
        div.draft {
            form.draft-form method="post" {
                input type="hidden" name="token" value=(person.form_token());
                @if form.edited.is_some() { input type="hidden" name="seen" value=(form.seen); }
                (fields(form))
            }
            (preview(form))
        }
    };
    Page::one(&title, Section::Pipelines, &content)
}

fn crumbs(form: &DraftForm, namespace: &str, name: &str) -> Markup {
    html! {
        p.crumbs {
            a href="/" { "Pipelines" }
            @if form.edited.is_some() {
                " / " (namespace) " / " a href=(links::pipeline(namespace, name)) { (name) }
            }
        }
    }
}

/// Returns the sentence for a person who lacks a right.
fn may_not(form: &DraftForm, missing: &str) -> String {
    let verb = if form.edited.is_some() { "change this pipeline" } else { "create pipelines here" };
    format!(
        "you may not {verb}: you do not have {missing}. The ClusterRole sluice-editor has it; the owners of the \
         namespace can bind it to you. You can fill in the form and give them the YAML."
    )
}
