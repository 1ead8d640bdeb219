//! The proposal of a Pipeline's files in git: the person enters a path, sees what would change, and confirms it.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use sluice_core::proposed_file::{PlannedFile, PlannedFiles, ProposedFile};

use super::answer::{problem_page, send, sentence};
use super::draft_fields::DraftForm;
use super::frame::{Page, Section, document};
use super::person::Person;
use super::words::is_link;
use crate::draft_input::{DO, DraftStep};
use crate::hub::{ChangeError, FileProposal, Hub, ProposedManifest};
use crate::problem::Problem;
use crate::requested_action::Seen;
use crate::state::Api;

/// The fields of this page. The others are those of the form, and go along.
const PATH: &str = "path";
const CONFIRMED: &str = "confirmed";

/// What came with a form, beside the draft.
#[derive(Default)]
pub(super) struct Entered<'a> {
    /// What the person wants done.
    pub step: DraftStep,
    /// What the person has seen of the Pipeline that is edited.
    pub seen: String,
    fields: &'a [(String, String)],
}

impl<'a> Entered<'a> {
    /// Returns the beginning of an edit.
    pub(super) fn begin(seen: String) -> Entered<'a> {
        Entered { seen, ..Entered::default() }
    }

    /// Returns what these fields say.
    pub(super) fn of(fields: &'a [(String, String)], step: DraftStep) -> Entered<'a> {
        let mut entered = Entered { step, seen: String::new(), fields };
        entered.seen = entered.value("seen").unwrap_or_default().into();
        entered
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.trim())
    }

    /// Returns the fields of the draft, and what the person has seen.
    fn kept(&self) -> impl Iterator<Item = &'a (String, String)> {
        self.fields.iter().filter(|(name, _)| ![DO, PATH, CONFIRMED, "token"].contains(&name.as_str()))
    }
}

/// Answers with what the person must enter or confirm, or with the change request.
pub(super) async fn propose<H: Hub>(
    api: &Api<H>,
    person: &Person,
    form: DraftForm,
    entered: &Entered<'_>,
) -> Response {
    let viewer = person.viewer(api.actions);
    if let Err(problem) = check(&form) {
        return problem_page(&problem, &viewer);
    }
    let path = entered.value(PATH).unwrap_or_default();
    let (status, is_planned, answer) = match path {
        "" => (StatusCode::OK, false, html! {}),
        path => match ask(api, person, &form, entered, path).await {
            Ok(ProposedFile::Planned(planned)) => {
                (StatusCode::OK, true, confirmation(&planned, &hidden(person, entered), path, entered))
            }
            Ok(done) => {
                let page = page(&form, &result(&done, !manifests(&form).is_empty()));
                return send(StatusCode::OK, document(&page, &viewer, ""));
            }
            Err(error) => {
                let problem = Problem::from(error);
                let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::FORBIDDEN);
                (status, false, html! { p.problem role="alert" { (sentence(&problem.detail)) } })
            }
        },
    };
    let content = html! {
        p { "Sluice opens a change request at the repository that this pipeline names. People merge it. Sluice writes nothing to the cluster." }
        form method="post" {
            (hidden(person, entered))
            label for="path" { "Path of the pipeline's file" }
            input #path type="text" name=(PATH) value=(path) required autocomplete="off" spellcheck="false" maxlength="250";
            p.small.quiet { "From the top of the repository, in a folder that Flux applies to the cluster with Sluice. For example apps/podinfo/pipeline.yaml" }
            div.do {
                button.main[!is_planned] name=(DO) value=(DraftStep::Propose.value()) { "Show the change" }
                button name=(DO) value=(DraftStep::Check.value()) formnovalidate { "Back to the form" }
            }
        }
        (answer)
    };
    send(status, document(&page(&form, &content), &viewer, ""))
}

/// Checks that the person may propose the manifest, as far as is known before the API server decides.
fn check(form: &DraftForm) -> Result<(), Problem> {
    let forbidden = |why: String| Err(Problem::new(StatusCode::FORBIDDEN, why));
    if !form.actions {
        return forbidden(
            "nothing can be proposed here: start the controller with --api-actions, or download the YAML and commit it"
                .into(),
        );
    }
    if let Some(missing) = &form.missing_right {
        return forbidden(format!("you may not propose this pipeline: you do not have {missing}"));
    }
    match &form.edited {
        Some(edited) if Seen::of_pipeline(edited).to_string() != form.seen => {
            Err(ChangeError::Conflict.into())
        }
        _ => Ok(()),
    }
}

async fn ask<H: Hub>(
    api: &Api<H>,
    person: &Person,
    form: &DraftForm,
    entered: &Entered<'_>,
    path: &str,
) -> Result<ProposedFile, ChangeError> {
    let unreadable = || ChangeError::Refused("the manifest is no pipeline".into());
    let proposal = FileProposal {
        pipeline: form.checked.pipeline.clone().ok_or_else(unreadable)?,
        object: form.checked.object.clone(),
        yaml: form.checked.yaml.clone(),
        edited: form.edited.clone(),
        path: path.into(),
        manifests: manifests(form),
        confirmation: entered.value(CONFIRMED).map(String::from),
    };
    api.hub.propose(&person.caller, &person.token, proposal).await
}

/// Returns the manifests of a first set-up.
fn manifests(form: &DraftForm) -> Vec<ProposedManifest> {
    let files = form.setup.iter().flatten().flat_map(|setup| &setup.files);
    let proposed = files.map(|file| ProposedManifest {
        path: file.path.clone(),
        object: file.object.clone(),
        yaml: file.yaml.clone(),
        is_on_hub: file.is_on_hub,
    });
    proposed.collect()
}

/// Returns the fields that go along: those of the draft, and the token of the session.
fn hidden(person: &Person, entered: &Entered<'_>) -> Markup {
    html! {
        input type="hidden" name="token" value=(person.form_token());
        @for (name, value) in entered.kept() { input type="hidden" name=(name) value=(value); }
    }
}

/// Returns what would change, and the button that confirms it.
fn confirmation(planned: &PlannedFiles, hidden: &Markup, path: &str, entered: &Entered<'_>) -> Markup {
    html! {
        @if entered.value(CONFIRMED).is_some() {
            p.problem role="alert" { "The planned change differs from the one that you looked at. Nothing was written: review it again." }
        }
        h2 { "What changes" }
        @for file in &planned.files { (change(file)) }
        p.small.quiet { "On branch " span.mono { (planned.branch) } " of " (planned.repository) }
        form method="post" {
            (hidden)
            input type="hidden" name=(PATH) value=(path);
            input type="hidden" name=(CONFIRMED) value=(planned.confirmation);
            div.do { button.main name=(DO) value=(DraftStep::Propose.value()) { "Open the change request" } }
        }
    }
}

/// Returns what changes in one file. A new file is shown as it is.
fn change(planned: &PlannedFile) -> Markup {
    html! {
        figure.diff {
            figcaption {
                bdi.mono { (planned.path) } " "
                span.small.quiet { @if planned.is_new { "new file" } @else { "from line " (planned.line) } }
            }
            @if !planned.is_new { (lines("Removed", &planned.removed)) }
            @if planned.is_new { (block(&planned.added)) } @else { (lines("Added", &planned.added)) }
        }
    }
}

fn lines(what: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            p.small.quiet { (what) }
            (block(lines))
        }
    }
}

/// Returns all lines, because the person confirms all of them. The size of the files is limited.
fn block(lines: &[String]) -> Markup {
    html! { pre tabindex="0" { @for line in lines { (line) "\n" } } }
}

fn result(done: &ProposedFile, has_manifests: bool) -> Markup {
    match done {
        ProposedFile::Opened { number, url, notes } => html! {
            section.answer.ready-answer { div {
                p.why {
                    "The change request "
                    @if is_link(url) { a href=(url) rel="noreferrer" { "#" (number) } } @else { "#" (number) }
                    " is open."
                }
                @if has_manifests { p.small { "It is a draft, if the forge has drafts: a person must mark it as ready, and merge it." } }
                p.small { "When it is merged, Flux applies what it adds." }
                @for note in notes { p.small { (sentence(note)) } }
            } }
        },
        _ => html! { p role="status" { "Nothing to do: the branch has all of this already." } },
    }
}

fn page(form: &DraftForm, content: &Markup) -> Page {
    let title = format!("Propose {} in git", form.draft.name);
    let content = html! {
        div.confirm.wide {
            p.crumbs { a href="/" { "Pipelines" } }
            h1 { (title) }
            (content)
        }
    };
    Page::one(&title, Section::Pipelines, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_that_a_person_confirms_is_shown() {
        let lines = |word: &str| (0..20_000).map(|nth| format!("{word}-{nth}")).collect::<Vec<_>>();
        for is_new in [true, false] {
            let removed = if is_new { Vec::new() } else { lines("old") };
            let file = PlannedFile { is_new, removed, added: lines("new"), ..PlannedFile::default() };
            let planned = PlannedFiles { files: vec![file.clone()], ..PlannedFiles::default() };
            let page = confirmation(&planned, &html! {}, "a.yaml", &Entered::default()).into_string();
            let shown: std::collections::HashSet<&str> = page.split(['\n', '>']).collect();
            let missing = file.removed.iter().chain(&file.added).find(|line| !shown.contains(line.as_str()));
            assert_eq!(missing, None);
        }
    }
}
