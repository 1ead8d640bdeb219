//! The JSON body of a request. Each problem says what to send instead.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;

use crate::parameters::body_fields;
use crate::problem::Problem;

/// The fields in the body of a request.
pub(crate) struct ActionBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequest<S> for ActionBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind =
            request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        // The simple requests of a browser's form do not have this type.
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Problem::bad_request(
                "send the body as JSON, with the header Content-Type: application/json",
            ));
        }
        let body = Bytes::from_request(request, state).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 8 KiB: send less")
            }
            _ => Problem::bad_request("the body did not arrive whole within 10 seconds: send it again"),
        })?;
        body_fields(&body).map(ActionBody).map_err(Problem::bad_request)
    }
}
