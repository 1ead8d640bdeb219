//! The person who sends a request, by the session of the browser.

use std::time::{Instant, SystemTime};

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use sluice_core::access::{AccessError, Caller};

use super::address;
use super::answer::problem_page;
use super::frame::Viewer;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::session::Session;
use crate::state::Api;

/// A person who is signed in.
pub(crate) struct Person {
    /// Who it is.
    pub caller: Caller,
    /// The session.
    pub session: Session,
}

impl Person {
    /// Returns what the frame says about the person.
    pub(crate) fn viewer(&self, actions: bool) -> Viewer {
        Viewer {
            name: self.caller.name.clone(),
            form_token: self.session.form_token.clone(),
            may_change: actions,
        }
    }

    /// Returns who is signed in, and counts the request.
    pub(crate) async fn of<H: Hub>(api: &Api<H>, headers: &HeaderMap) -> Result<Person, NoPerson> {
        let person = Person::identified(api, headers).await?;
        api.budgets.spend(person.caller.limit_group(), 1, Instant::now()).map_err(NoPerson::Refused)?;
        Ok(person)
    }

    /// Returns who is signed in.
    pub(crate) async fn identified<H: Hub>(api: &Api<H>, headers: &HeaderMap) -> Result<Person, NoPerson> {
        let session = api.sessions.of(headers, SystemTime::now()).ok_or(NoPerson::SignedOut)?;
        let caller = api.hub.identify(&session.token).await.map_err(|error| match error {
            AccessError::NotAccepted => NoPerson::SignedOut,
            other => NoPerson::Refused(other.into()),
        })?;
        Ok(Person { caller, session })
    }
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
        Person::of(api, &parts.headers).await.map_err(|why| match why {
            NoPerson::SignedOut => Redirect::to(&address::sign_in(&parts.uri)).into_response(),
            NoPerson::Refused(problem) => problem_page(&problem, &Viewer::default()),
        })
    }
}
