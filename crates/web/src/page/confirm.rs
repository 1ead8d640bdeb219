//! The confirmation of an action: a page that says what will happen. The action is made with the person's own token.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use sluice_api::promotion::{GateStatus, PromotionStatus};
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::Caller;
use sluice_view::change::{ChangeCheck, approve, delivery, describe, reject, retry, without_command};

use super::action::{Action, targets_of};
use super::answer::{problem_page, send, sentence};
use super::find::{find_pipeline, find_promotion};
use super::form_check::{check_origin, not_from_here};
use super::frame::{Page, Section, document};
use super::person::Person;
use super::query::ObjectName;
use super::rights::MissingRights;
use super::{address, planned, words};
use crate::hub::{Change, ChangeError, ChangedKind, Hub, SeenObject};
use crate::problem::Problem;
use crate::state::Api;

/// The most characters of a reason.
const MAX_REASON: usize = 1000;

/// What an action is about.
struct Subject {
    action: Action,
    object: ObjectName,
    pipeline: Pipeline,
    /// `None` for an action on the pipeline.
    promotion: Option<Arc<Promotion>>,
}

impl Subject {
    async fn find<H: Hub>(
        api: &Api<H>,
        caller: &Caller,
        (kind, namespace, name, action): &(String, String, String, String),
    ) -> Result<Subject, Problem> {
        let no_page = || Problem::not_found("there is no such page");
        let action = Action::named(kind, action).ok_or_else(no_page)?;
        let object = ObjectName { namespace: namespace.clone(), name: name.clone() };
        let (pipeline, promotion) = match action {
            Action::Suspend | Action::Resume => {
                (find_pipeline(api, caller, &object).await?.stored.whole(), None)
            }
            Action::Approve | Action::Reject | Action::Retry => {
                let (pipeline, promotion) = find_promotion(api, caller, &object).await?;
                (pipeline, Some(promotion))
            }
        };
        let subject = Subject { action, object, pipeline, promotion };
        subject.check(api, caller).await?;
        Ok(subject)
    }

    /// Checks that the person may do it, as far as is known before the API server decides, and that it can be done.
    async fn check<H: Hub>(&self, api: &Api<H>, caller: &Caller) -> Result<(), Problem> {
        let forbidden = |why: String| Err(Problem::new(StatusCode::FORBIDDEN, why));
        if !api.actions {
            return forbidden(
                "these pages are read-only: start the controller with --api-actions, or use the command line"
                    .into(),
            );
        }
        let mut rights = MissingRights::default();
        match &self.promotion {
            Some(promotion) => rights.ask_promotion(&api.hub, caller, promotion).await?,
            None => {
                let ObjectName { namespace, name } = &self.object;
                rights.ask(&api.hub, caller, ("pipelines", namespace, name), &["patch"]).await?;
            }
        }
        if let Some(missing) = rights.of(&self.object.name, self.action.verbs()) {
            return forbidden(format!("you may not {} it: you do not have {missing}", self.action.word()));
        }
        let check = self.promotion.as_ref().map(|p| self.action.check(p, Some(&self.pipeline)));
        match check {
            None | Some(ChangeCheck::Apply) => Ok(()),
            Some(ChangeCheck::NothingToDo(why)) => Err(Problem::new(StatusCode::CONFLICT, why)),
            Some(ChangeCheck::Refuse(why, hint)) => {
                let hint = hint.map(|hint| format!(". {hint}")).unwrap_or_default();
                Err(Problem::new(StatusCode::CONFLICT, format!("{why}{hint}")))
            }
        }
    }

    /// Returns the address of the page about it.
    fn address(&self) -> String {
        match &self.promotion {
            Some(promotion) => address::promotion(promotion),
            None => address::pipeline(&self.object.namespace, &self.object.name),
        }
    }

    /// Returns the verb and the object, as on the button.
    fn title(&self) -> String {
        let action = self.action.title();
        match &self.promotion {
            Some(promotion) => {
                let spec = &promotion.spec;
                format!("{action} {} into {}", words::short(&spec.revision), spec.place())
            }
            None => format!("{action} {}", self.object.name),
        }
    }

    /// Returns the change of the object that the person has seen.
    fn change(&self, caller: &Caller, form: &Confirmation) -> Change {
        let spec = match (self.action, &self.promotion) {
            (Action::Approve, Some(promotion)) => approve::spec(promotion, &caller.name),
            (Action::Reject, Some(promotion)) => reject::spec(promotion, &caller.name, form.reason.trim()),
            (Action::Retry, Some(promotion)) => retry::spec(promotion, Timestamp::now()),
            (action, _) => json!({"suspend": action == Action::Suspend}),
        };
        Change {
            kind: if self.promotion.is_some() { ChangedKind::Promotion } else { ChangedKind::Pipeline },
            namespace: self.object.namespace.clone(),
            name: self.object.name.clone(),
            seen: SeenObject { uid: form.uid.clone(), generation: form.generation },
            spec,
        }
    }

    /// Returns a fingerprint of what the person decides about beside the spec: an approval opens every gate that is
    /// closed now, and the Pipeline says where the delivery goes.
    fn facts(&self) -> String {
        let Some(promotion) = &self.promotion else { return String::new() };
        let status = promotion.status.clone().unwrap_or_default();
        let gates: Vec<_> = closed_gates(&status).map(|gate| (&gate.name, &gate.message)).collect();
        let request = status.change_request.as_ref().map(|request| (request.number, &request.head_commit));
        let targets = targets_of(&self.pipeline, promotion);
        let facts = format!("{:?}", (gates, request, targets, delivery(&self.pipeline, promotion)));
        Sha256::digest(facts).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns what the page shows.
    fn seen(&self) -> SeenObject {
        let metadata =
            self.promotion.as_ref().map_or(&self.pipeline.metadata, |promotion| &promotion.metadata);
        SeenObject::new(metadata.uid.as_ref(), metadata.generation)
    }
}

/// What the form of a confirmation sends.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Confirmation {
    /// The token of the session's forms.
    token: String,
    /// The uid of the object that the person has seen.
    uid: String,
    /// The generation of the object that the person has seen.
    generation: i64,
    /// The fingerprint of the other facts that the person has seen.
    facts: String,
    /// The revision that the person has seen; empty for an action on a pipeline.
    revision: String,
    /// Why, for a rejection.
    reason: String,
}

type Place = (String, String, String, String);

pub(super) async fn confirm<H: Hub>(
    State(api): State<Api<H>>,
    Path(place): Path<Place>,
    person: Person,
) -> Response {
    match Subject::find(&api, &person.caller, &place).await {
        Ok(subject) => {
            let page = page(&api, &subject, &person.session.form_token, ("", "")).await;
            send(StatusCode::OK, document(&page, &person.viewer(api.actions), ""))
        }
        Err(problem) => problem_page(&problem, &person.viewer(api.actions)),
    }
}

pub(super) async fn carry_out<H: Hub>(
    State(api): State<Api<H>>,
    Path(place): Path<Place>,
    headers: HeaderMap,
    person: Person,
    Form(form): Form<Confirmation>,
) -> Response {
    let viewer = person.viewer(api.actions);
    if check_origin(&headers).is_err() || form.token != person.session.form_token {
        return problem_page(&not_from_here(), &viewer);
    }
    let subject = match Subject::find(&api, &person.caller, &place).await {
        Ok(subject) => subject,
        Err(problem) => return problem_page(&problem, &viewer),
    };
    let again = async |status, why: &str| {
        let page = page(&api, &subject, &person.session.form_token, (why, &form.reason)).await;
        send(status, document(&page, &viewer, ""))
    };
    let seen = subject.promotion.as_ref().map_or("", |promotion| promotion.spec.revision.as_str());
    if seen != form.revision {
        return again(
            StatusCode::CONFLICT,
            "it is another revision than the one that you have seen: look again",
        )
        .await;
    }
    if subject.facts() != form.facts {
        return again(StatusCode::CONFLICT, &ChangeError::Conflict.to_string()).await;
    }
    if subject.action == Action::Reject && form.reason.trim().is_empty() {
        return again(StatusCode::BAD_REQUEST, "say why, so that others know what to do").await;
    }
    if form.reason.chars().count() > MAX_REASON {
        return again(StatusCode::BAD_REQUEST, "say it in at most 1000 characters").await;
    }
    let change = subject.change(&person.caller, &form);
    match api.hub.change(&person.session.token, change).await {
        Ok(()) => Redirect::to(&subject.address()).into_response(),
        Err(error) => {
            let status = match error {
                ChangeError::Conflict => StatusCode::CONFLICT,
                ChangeError::Refused(_) => StatusCode::FORBIDDEN,
                ChangeError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            again(status, &error.to_string()).await
        }
    }
}

/// Returns the page, with the problem and the reason of an earlier try.
async fn page<H: Hub>(
    api: &Api<H>,
    subject: &Subject,
    form_token: &str,
    (problem, reason): (&str, &str),
) -> Page {
    let (title, seen) = (subject.title(), subject.seen());
    let revision = subject.promotion.as_ref().map_or("", |promotion| promotion.spec.revision.as_str());
    let content = html! {
        div.confirm {
            h1 { (title) "?" }
            (what_happens(subject))
            (what_changes(api, subject).await)
            @if !problem.is_empty() { p.problem role="alert" { (sentence(problem)) } }
            form method="post" {
                input type="hidden" name="token" value=(form_token);
                input type="hidden" name="uid" value=(seen.uid);
                input type="hidden" name="generation" value=(seen.generation);
                input type="hidden" name="revision" value=(revision);
                input type="hidden" name="facts" value=(subject.facts());
                @if subject.action == Action::Reject {
                    label for="reason" { "Why?" }
                    textarea #reason name="reason" rows="3" required maxlength=(MAX_REASON) { (reason) }
                    p.small.quiet { "For example: the error rate in staging has doubled. Everybody who looks at the promotion reads it." }
                }
                div.do {
                    button.main { (title) }
                    a.button href=(subject.address()) { "Cancel" }
                }
            }
        }
    };
    Page::one(&title, Section::Other, &content)
}

/// Returns the files that change, if the action leads to a delivery.
async fn what_changes<H: Hub>(api: &Api<H>, subject: &Subject) -> Markup {
    match &subject.promotion {
        Some(promotion) if subject.action != Action::Reject && planned::is_ahead(promotion) => html! {
            h2 { "What changes" }
            (planned::planned(api, &subject.pipeline, promotion).await)
        },
        _ => html! {},
    }
}

fn closed_gates(status: &PromotionStatus) -> impl Iterator<Item = &GateStatus> {
    status.gates.iter().filter(|gate| !gate.open)
}

fn what_happens(subject: &Subject) -> Markup {
    let Some(promotion) = &subject.promotion else {
        let words = match subject.action {
            Action::Suspend => {
                "Nothing is started, pushed, opened or merged until someone resumes it. Sluice goes on observing."
            }
            _ => "Sluice goes on where it stopped: what was proven in the meantime is promoted.",
        };
        return html! { p { (words) } p.small.quiet { "If Flux applies this Pipeline from git, change it there: Flux sets the field back." } };
    };
    let spec = &promotion.spec;
    let status = promotion.status.clone().unwrap_or_default();
    let consequence = match subject.action {
        Action::Approve => "Sluice then delivers it, as soon as all other gates are open.",
        Action::Reject => {
            "Sluice does not deliver this revision, and closes its change request. A newer one is promoted as usual."
        }
        _ => "Sluice tries the delivery again now.",
    };
    html! {
        p { (consequence) }
        dl.facts {
            dt { "What" } dd { (describe(promotion)) }
            dt { "Revision" } dd.mono { (spec.revision) }
            @if !spec.replaces.is_empty() { dt { "Replaces" } dd.mono { (spec.replaces) } }
            dt { "Targets" } dd { (targets_of(&subject.pipeline, promotion)) }
            dt { "Delivered by" } dd { (delivery(&subject.pipeline, promotion)) }
            @for gate in closed_gates(&status) { dt { "Gate" } dd { (gate.name) ": " (without_command(&gate.message, promotion)) } }
            @if let Some(request) = &status.change_request { dt { "Change request" } dd { "#" (request.number) " " (request.url) } }
            @if !spec.evidence.is_empty() {
                dt { "Proven by" }
                dd { @for proof in &spec.evidence { div { (proof.environment) " / " (proof.target) ", " (words::time(proof.at)) } } }
            }
        }
    }
}
