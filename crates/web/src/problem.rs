//! Errors, in the form of RFC 9457 (`application/problem+json`).

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::access::AccessError;

use crate::hub::ChangeError;

/// What went wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The status of the answer.
    pub status: u16,
    /// The kind of problem, the same for each problem of this kind.
    pub title: String,
    /// What went wrong with this request, and what to do.
    pub detail: String,
    /// In how many seconds the same request can succeed, if that is known.
    #[serde(skip)]
    pub(crate) retry_after: Option<u32>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error").into();
        Problem { status: status.as_u16(), title, detail: detail.into(), retry_after: None }
    }

    /// The same with a time to try again.
    pub(crate) fn after(self, seconds: u32) -> Self {
        Problem { retry_after: Some(seconds), ..self }
    }

    /// Adds the header that says when to try again (RFC 9110, section 10.2.3).
    pub(crate) fn add_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        let status = match error {
            AccessError::NotAccepted => StatusCode::UNAUTHORIZED,
            AccessError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, error.to_string())
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let status = match error {
            ChangeError::Conflict => StatusCode::CONFLICT,
            ChangeError::Refused(_) => StatusCode::FORBIDDEN,
            ChangeError::Unusable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ChangeError::Failed(_) | ChangeError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(&self)).into_response();
        let headers = response.headers_mut();
        self.add_retry_after(headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
