//! The caller of a request to the API, by the token that the request carries.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use sluice_core::access::Caller;

use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::unsent_answers::note_caller;

/// The caller of a request, by the token in the header `Authorization`, and that token.
pub(crate) struct IdentifiedCaller(pub(crate) Caller, pub(crate) String);

/// Returns the token in the header `Authorization`.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    // The name of the scheme may be in any case (RFC 9110).
    scheme.eq_ignore_ascii_case("Bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}

impl<H: Hub> FromRequestParts<Api<H>> for IdentifiedCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api<H>) -> Result<Self, Problem> {
        let token = bearer_token(&parts.headers).ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "the request has no token: send a token of the hub in the header Authorization, as Bearer <token>",
            )
        })?;
        let caller = api.hub.identify(token).await?;
        note_caller(&parts.extensions, &caller);
        api.budgets.spend(caller.limit_group(), 1)?;
        Ok(IdentifiedCaller(caller, token.into()))
    }
}
