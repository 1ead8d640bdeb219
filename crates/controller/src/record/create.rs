//! Objects that are made once, under a name that says what they are about: whoever tries again finds what
//! stands.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::timeout::{API_CALL_TIMEOUT, within};

/// How often creating is tried against a conflict.
const TRIES: usize = 5;
/// The pause after the first conflict; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Creates an object. Nothing is returned where one of its name stands already: another try has made it,
/// whose answer was lost, or somebody else.
///
/// Any other conflict has made nothing, and is tried again in a moment: a quota against which two count at the
/// same time refuses with the same code
/// ([resourcequota/controller.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go),
/// `checkQuotas`).
///
/// # Errors
/// What the API server says, or that it cannot be reached or says nothing for [`API_CALL_TIMEOUT`]: then it may
/// have been made.
pub async fn create<K>(api: &Api<K>, manager: &str, object: &K) -> kube::Result<Option<K>>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let params = PostParams { field_manager: Some(manager.into()), ..PostParams::default() };
    let (mut left, mut pause) = (TRIES, FIRST_PAUSE);
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

    /// The answers of a server, one after the other; then it says nothing.
    fn server(answers: &'static [(u16, &'static str)]) -> (Api<ConfigMap>, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
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
        (Api::default_namespaced(Client::new(service, "apps")), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn only_one_of_its_name_counts_as_made_before() {
        let object = ConfigMap::default();
        type Answers = &'static [(u16, &'static str)];
        let cases: [(Answers, usize, Result<bool, &str>); 7] = [
            (&[(201, "")], 1, Ok(true)),
            (&[(409, "AlreadyExists")], 1, Ok(false)),
            (&[(409, "Conflict"), (409, "Conflict"), (201, "")], 3, Ok(true)),
            (&[(409, "Conflict"), (409, "AlreadyExists")], 2, Ok(false)),
            (&[(409, "Conflict"); 9], TRIES, Err("Conflict")),
            (&[(403, "Forbidden")], 1, Err("Forbidden")),
            (&[], 1, Err("no answer within 30 seconds")),
        ];
        for (answers, tries, made) in cases {
            let (api, asked) = server(answers);
            let outcome = create(&api, "test", &object).await;
            let said = outcome.map(|made| made.is_some()).map_err(|error| error.to_string());
            assert_eq!(asked.load(Ordering::Relaxed), tries, "{answers:?}: {said:?}");
            match (&said, made) {
                (Ok(said), Ok(made)) => assert_eq!(*said, made, "{answers:?}"),
                (Err(said), Err(why)) => assert!(said.contains(why), "{said}"),
                _ => panic!("{answers:?}: {said:?}, not {made:?}"),
            }
        }
    }
}
