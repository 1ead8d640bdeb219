//! The person who sends a request: by the session of the browser, or by the token that a trusted proxy adds.

use std::time::SystemTime;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use sluice_core::access::{AccessError, Caller};

use super::answer::problem_page;
use super::frame::Viewer;
use super::links;
use crate::caller::bearer_token;
use crate::hub::Hub;
use crate::origin_check::{check_origin, not_from_here};
use crate::problem::Problem;
use crate::state::Api;
use crate::unsent_answers::note_caller;

/// A person who is signed in.
pub(crate) struct Person {
    /// Who it is.
    pub caller: Caller,
    /// The token, with which the person's actions are made.
    pub token: String,
    /// What forms send back, so that no other site can send them. Forms of the other tokens count too.
    form_tokens: Vec<String>,
    /// Whether the person can sign out here, and not only at a proxy.
    has_session: bool,
}

impl Person {
    /// Returns what the frame says about the person.
    pub(crate) fn viewer(&self, actions: bool) -> Viewer {
        Viewer {
            name: self.caller.name.clone(),
            form_token: self.form_token().into(),
            may_change: actions,
            may_sign_out: self.has_session,
        }
    }

    /// Returns what forms send back.
    pub(crate) fn form_token(&self) -> &str {
        self.form_tokens.first().map_or("", String::as_str)
    }

    /// Checks that a form was made for this person, and sent from a page of this server.
    pub(crate) fn check_form<H: Hub>(
        &self,
        api: &Api<H>,
        headers: &HeaderMap,
        form_token: &str,
    ) -> Result<(), Problem> {
        check_origin(headers, api.page_url.as_deref())?;
        let is_own = !form_token.is_empty() && self.form_tokens.iter().any(|known| known == form_token);
        if is_own { Ok(()) } else { Err(not_from_here()) }
    }

    /// Returns who is signed in, and counts the request.
    pub(crate) async fn of<H: Hub>(api: &Api<H>, headers: &HeaderMap) -> Result<Person, NoPerson> {
        let person = Person::identified(api, headers).await?;
        api.budgets.spend(person.caller.limit_group(), 1).map_err(NoPerson::Refused)?;
        Ok(person)
    }

    /// Returns who is signed in.
    pub(crate) async fn identified<H: Hub>(api: &Api<H>, headers: &HeaderMap) -> Result<Person, NoPerson> {
        if let Some(token) = proxy_token(api, headers) {
            let caller = caller(api, token).await?;
            let form_tokens = proxied_form_tokens(api, &caller);
            return Ok(Person { caller, token: token.into(), form_tokens, has_session: false });
        }
        let now = SystemTime::now();
        let session = api.sessions.of(headers, now).ok_or(NoPerson::SignedOut)?;
        if session.token_has_ended(now) {
            return Err(NoPerson::SignedOut);
        }
        let caller = caller(api, &session.token).await?;
        let form_tokens = vec![session.form_token];
        Ok(Person { caller, token: session.token, form_tokens, has_session: true })
    }
}

/// Returns the token that a trusted proxy has added to a request.
pub(super) fn proxy_token<'a, H>(api: &Api<H>, headers: &'a HeaderMap) -> Option<&'a str> {
    api.trust_proxy_token.then(|| bearer_token(headers)).flatten()
}

async fn caller<H: Hub>(api: &Api<H>, token: &str) -> Result<Caller, NoPerson> {
    api.hub.identify(token).await.map_err(|error| match error {
        AccessError::NotAccepted => NoPerson::SignedOut,
        other => NoPerson::Refused(other.into()),
    })
}

/// Returns the form tokens of somebody who has no session, by each key of sessions. They are those of the user and not of
/// the token, because a proxy may get another token while a form is open.
fn proxied_form_tokens<H>(api: &Api<H>, caller: &Caller) -> Vec<String> {
    // Users cannot choose an end of their name that reads as a uid, because the length is there too.
    let text = format!("{} {} {}", caller.name.len(), caller.name, caller.uid);
    api.sessions.keys().map(|keys| keys.signatures(&text)).unwrap_or_default()
}

/// Why a request is nobody's.
pub(crate) enum NoPerson {
    /// There is no session, or its token is not accepted any more.
    SignedOut,
    /// Who it is cannot be found out now, or the person asks too often.
    Refused(Problem),
}

impl<H: Hub> FromRequestParts<Api<H>> for Person {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &Api<H>) -> Result<Self, Response> {
        let person = Person::of(api, &parts.headers).await.map_err(|why| match why {
            NoPerson::SignedOut => Redirect::to(&links::sign_in(&parts.uri)).into_response(),
            NoPerson::Refused(problem) => problem_page(&problem, &Viewer::default()),
        })?;
        note_caller(&parts.extensions, &person.caller);
        Ok(person)
    }
}
