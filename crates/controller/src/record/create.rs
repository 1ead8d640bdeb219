//! Creates objects whose names follow from their contents, so that a second try finds the object of the first.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::timeout::{API_CALL_TIMEOUT, within};

/// How many times an object is sent if the API server reports conflicts.
const MAX_TRIES: usize = 5;
/// The pause after the first conflict; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Creates an object. Returns `None` if an object of its name exists: an earlier try has created it, and the
/// answer was lost, or someone else has.
///
/// After any other conflict the object does not exist, and is sent again after a moment: a quota that two requests
/// count against at the same time answers with the same code
/// ([resourcequota/controller.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go),
/// `checkQuotas`).
///
/// # Errors
/// The error of the API server, or that it cannot be reached or does not answer within [`API_CALL_TIMEOUT`]. The
/// object may exist then.
pub async fn create<K>(api: &Api<K>, manager: &str, object: &K) -> kube::Result<Option<K>>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let params = PostParams { field_manager: Some(manager.into()), ..PostParams::default() };
    let (mut left, mut pause) = (MAX_TRIES, FIRST_PAUSE);
    loop {
        left -= 1;
        match within(API_CALL_TIMEOUT, api.create(&params, object)).await {
            Ok(created) => return Ok(Some(created)),
            Err(kube::Error::Api(e)) if e.is_already_exists() => return Ok(None),
            Err(kube::Error::Api(e)) if e.is_conflict() && left > 0 => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A server that gives these answers, one after the other, and then none; and the count of requests.
    fn server(answers: &'static [(u16, &'static str)]) -> (Api<ConfigMap>, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = answers.get(count.fetch_add(1, Ordering::Relaxed));
            async move {
                let Some((code, reason)) = answer else { return std::future::pending().await };
                let body = match code {
                    201 => json!({"metadata": {"name": "a"}}),
                    _ => json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code,
                        "message": reason}),
                };
                let body = Body::from(body.to_string().into_bytes());
                Response::builder().status(*code).body(body).map_err(tower::BoxError::from)
            }
        });
        (Api::default_namespaced(Client::new(service, "apps")), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_object_of_the_same_name_counts_as_created_before() {
        let object = ConfigMap::default();
        type Answers = &'static [(u16, &'static str)];
        let cases: [(Answers, usize, Result<bool, &str>); 7] = [
            (&[(201, "")], 1, Ok(true)),
            (&[(409, "AlreadyExists")], 1, Ok(false)),
            (&[(409, "Conflict"), (409, "Conflict"), (201, "")], 3, Ok(true)),
            (&[(409, "Conflict"), (409, "AlreadyExists")], 2, Ok(false)),
            (&[(409, "Conflict"); 9], MAX_TRIES, Err("Conflict")),
            (&[(403, "Forbidden")], 1, Err("Forbidden")),
            (&[], 1, Err("no answer within 30 seconds")),
        ];
        for (answers, expected_requests, expected) in cases {
            let (api, requests) = server(answers);
            let outcome = create(&api, "test", &object).await;
            let outcome = outcome.map(|created| created.is_some()).map_err(|error| error.to_string());
            assert_eq!(requests.load(Ordering::Relaxed), expected_requests, "{answers:?}: {outcome:?}");
            match (&outcome, expected) {
                (Ok(outcome), Ok(expected)) => assert_eq!(*outcome, expected, "{answers:?}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                _ => panic!("{answers:?}: {outcome:?}, not {expected:?}"),
            }
        }
    }
}
