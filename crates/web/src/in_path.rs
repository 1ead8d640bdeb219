//! What the path of a request names. A path that cannot be read gets an error in the form of all others.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The names in the path of a request.
pub(crate) struct InPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let unreadable = |_| {
            Problem::bad_request("the path cannot be read: write the names as kubectl shows them, in UTF-8")
        };
        path.map(|Path(names)| InPath(names)).map_err(unreadable)
    }
}
