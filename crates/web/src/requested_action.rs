//! An action that a person requests, on the pages or by the API: whether the person may take it and it can be taken, and
//! that it counts only for what the person has seen.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use sluice_api::promotion::{GateStatus, PromotionStatus};
use sluice_api::{Pipeline, Promotion};
use sluice_core::access::Caller;
use sluice_view::change::{ChangeCheck, approve, delivery, reject, retry};
use sluice_view::object_name::ObjectName;

use crate::find::{find_pipeline, find_promotion};
use crate::hub::{Change, ChangeError, ChangedKind, Hub, SeenObject};
use crate::person_action::{PersonAction, targets_of, who_has};
use crate::problem::Problem;
use crate::rights::MissingRights;
use crate::state::Api;

/// The most characters of a reason.
pub(crate) const MAX_REASON: usize = 1000;

/// The path of an action: of which kind and object it is, and what it is.
#[derive(Deserialize)]
pub(crate) struct ActionPath {
    kind: String,
    namespace: String,
    name: String,
    action: String,
}

/// An action that a person requests, and what it is about.
pub(crate) struct RequestedAction {
    /// What the person wants to do.
    pub action: PersonAction,
    /// The namespace and name of the promotion or pipeline.
    pub object: ObjectName,
    /// The pipeline.
    pub pipeline: Pipeline,
    /// The promotion; `None` for an action on the pipeline.
    pub promotion: Option<Arc<Promotion>>,
    /// The promotions of the pipeline; empty for an action on a promotion.
    pub promotions: Vec<Arc<Promotion>>,
}

impl RequestedAction {
    /// Finds what an action is about, for a person who may do it now.
    pub(crate) async fn find<H: Hub>(
        api: &Api<H>,
        caller: &Caller,
        path: &ActionPath,
    ) -> Result<RequestedAction, Problem> {
        let unknown = || Problem::not_found("there is no such action");
        let action = PersonAction::named(&path.kind, &path.action).ok_or_else(unknown)?;
        let object = ObjectName { namespace: path.namespace.clone(), name: path.name.clone() };
        let (pipeline, promotion, promotions) = match action {
            PersonAction::Suspend | PersonAction::Resume => {
                let shown = find_pipeline(api, caller, &object).await?;
                (shown.stored.whole(), None, shown.promotions.clone())
            }
            PersonAction::Approve | PersonAction::Reject | PersonAction::Retry => {
                let (pipeline, promotion) = find_promotion(api, caller, &object).await?;
                (pipeline, Some(promotion), Vec::new())
            }
        };
        let requested = RequestedAction { action, object, pipeline, promotion, promotions };
        requested.check(api, caller).await?;
        Ok(requested)
    }

    /// Checks that the person may do it, as far as is known before the API server decides, and that it can be done.
    async fn check<H: Hub>(&self, api: &Api<H>, caller: &Caller) -> Result<(), Problem> {
        let forbidden = |why: String| Err(Problem::new(StatusCode::FORBIDDEN, why));
        if !api.actions {
            return forbidden(
                "nothing can be changed here: start the controller with --api-actions, or use the command line"
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
            let (word, role) = (self.action.word(), who_has(self.action.role()));
            return forbidden(format!("you may not {word} it: you do not have {missing}. {role}"));
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

    /// Makes the change, in the name of whom the token identifies. `seen` is what the person has seen, and `reason` why,
    /// for a rejection.
    ///
    /// # Errors
    /// When the person has seen something else, gives no reason or too long a one, or the API server refuses it.
    pub(crate) async fn carry_out<H: Hub>(
        &self,
        api: &Api<H>,
        (caller, token): (&Caller, &str),
        (seen, reason): (&str, &str),
    ) -> Result<(), Problem> {
        let (own, reason) = (self.seen(), reason.trim());
        if own.to_string() != seen {
            return Err(ChangeError::Conflict.into());
        }
        if self.action == PersonAction::Reject && reason.is_empty() {
            return Err(Problem::bad_request("say why, so that others know what to do"));
        }
        if reason.chars().count() > MAX_REASON {
            return Err(Problem::bad_request("say it in at most 1000 characters"));
        }
        let spec = match (self.action, &self.promotion) {
            (PersonAction::Approve, Some(promotion)) => approve::spec(promotion, &caller.name),
            (PersonAction::Reject, Some(promotion)) => reject::spec(promotion, &caller.name, reason),
            (PersonAction::Retry, Some(promotion)) => retry::spec(promotion, Timestamp::now()),
            (action, _) => json!({"suspend": action == PersonAction::Suspend}),
        };
        let change = Change {
            kind: if self.promotion.is_some() { ChangedKind::Promotion } else { ChangedKind::Pipeline },
            namespace: self.object.namespace.clone(),
            name: self.object.name.clone(),
            seen: own.object,
            spec,
        };
        let changed = api.hub.change(token, change).await;
        self.log(caller, &changed);
        Ok(changed?)
    }

    /// Logs who has requested the action, and whether it was made: not every API server has an audit log.
    fn log(&self, caller: &Caller, changed: &Result<(), ChangeError>) {
        let (action, person) = (self.action.word(), caller.name.as_str());
        let name = self.pipeline.metadata.name.as_deref().unwrap_or_default();
        let pipeline = format!("{}/{name}", self.object.namespace);
        let promotion = self.promotion.as_ref().map(|_| self.object.name.as_str());
        match changed {
            Ok(()) => tracing::info!(person, action, pipeline, promotion, "a person has acted"),
            Err(error) => {
                tracing::info!(person, action, pipeline, promotion, %error, "the action of a person failed");
            }
        }
    }

    /// Returns what a person sees of it now.
    pub(crate) fn seen(&self) -> Seen {
        match &self.promotion {
            Some(promotion) => Seen::of_promotion(promotion, &self.pipeline),
            None => Seen::of_pipeline(&self.pipeline),
        }
    }
}

/// What a person has seen before deciding. As text it goes along with the decision, which counts only for the same.
pub(crate) struct Seen {
    object: SeenObject,
    /// A fingerprint of what the person decides about beside the spec.
    facts: String,
}

impl Seen {
    /// Returns what a person sees of a Pipeline.
    pub(crate) fn of_pipeline(pipeline: &Pipeline) -> Seen {
        let Pipeline { metadata, .. } = pipeline;
        Seen { object: SeenObject::new(metadata.uid.as_ref(), metadata.generation), facts: String::new() }
    }

    /// Returns what a person sees of a promotion: an approval opens every gate that is closed now, and the Pipeline says
    /// where the delivery goes.
    pub(crate) fn of_promotion(promotion: &Promotion, pipeline: &Pipeline) -> Seen {
        let status = promotion.status.clone().unwrap_or_default();
        let gates: Vec<_> = closed_gates(&status).map(|gate| (&gate.name, &gate.message)).collect();
        let request = status.change_request.as_ref().map(|request| (request.number, &request.head_commit));
        let targets = targets_of(pipeline, promotion);
        let facts = format!("{:?}", (gates, request, targets, delivery(pipeline, promotion)));
        let facts = Sha256::digest(facts).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let metadata = &promotion.metadata;
        Seen { object: SeenObject::new(metadata.uid.as_ref(), metadata.generation), facts }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.object.uid, self.object.generation, self.facts)
    }
}

/// Returns the gates that are closed.
pub(crate) fn closed_gates(status: &PromotionStatus) -> impl Iterator<Item = &GateStatus> {
    status.gates.iter().filter(|gate| !gate.open)
}
