//! Objects that are made once, under a name that says what they are about: whoever tries again finds what
//! stands.

use std::fmt::Debug;

use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often creating is tried against a conflict.
const TRIES: usize = 5;

/// Creates an object. Nothing is returned where one of its name stands already: another try has made it,
/// whose answer was lost, or somebody else.
///
/// Any other conflict has made nothing, and is tried again at once: a quota against which two count at the
/// same time refuses with the same code
/// ([resourcequota/controller.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go),
/// `checkQuotas`).
///
/// # Errors
/// What the API server says, or that it cannot be reached: then it may have been made.
pub async fn create<K>(api: &Api<K>, manager: &str, object: &K) -> kube::Result<Option<K>>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let params = PostParams { field_manager: Some(manager.into()), ..PostParams::default() };
    let mut left = TRIES;
    loop {
        left -= 1;
        match api.create(&params, object).await {
            Ok(created) => return Ok(Some(created)),
            Err(kube::Error::Api(e)) if e.is_already_exists() => return Ok(None),
            Err(kube::Error::Api(e)) if e.is_conflict() && left > 0 => {}
            Err(error) => return Err(error),
        }
    }
}
