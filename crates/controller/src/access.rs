//! Who calls and what the caller may read, as the hub's API server says: TokenReview and SubjectAccessReview. Answers count
//! for a few seconds, so that a page does not ask again for each of its parts.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use sluice_core::access::{AccessError, Caller, ReadRight};

use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::read_error::api_error_message;

/// How long an answer counts. A right that is withdrawn ends after this time.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);
/// How many answers are kept. Beyond, all are asked for again.
const MAX_ANSWERS: usize = 20_000;

/// Asks the hub's API server.
#[derive(Clone)]
pub struct AccessReviews {
    hub: Client,
    callers: Answers<[u8; 32], Option<Caller>>,
    rights: Answers<(Caller, ReadRight), bool>,
}

impl AccessReviews {
    /// Returns reviews by this API server.
    pub fn new(hub: Client) -> Self {
        Self { hub, callers: Answers::default(), rights: Answers::default() }
    }

    /// Returns whose token this is.
    ///
    /// # Errors
    /// When the token is not accepted, or the API server cannot be asked.
    pub async fn identify(&self, token: &str) -> Result<Caller, AccessError> {
        // The token itself is not kept.
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.callers.get(&key);
        let caller = match known {
            Some(caller) => caller,
            None => {
                let caller = self.review_token(token).await?;
                self.callers.put(key, caller.clone());
                caller
            }
        };
        caller.ok_or(AccessError::NotAccepted)
    }

    /// Returns whether a caller has a right.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn allows(&self, caller: &Caller, right: &ReadRight) -> Result<bool, AccessError> {
        let key = (caller.clone(), right.clone());
        if let Some(allowed) = self.rights.get(&key) {
            return Ok(allowed);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.name.clone()),
                uid: Some(caller.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(caller.groups.clone()),
                extra: Some(caller.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("get".into()),
                    group: Some(right.group.clone()),
                    resource: Some(right.resource.clone()),
                    namespace: right.namespace.clone(),
                    name: right.name.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let allowed = self.create(&review).await?.status.is_some_and(|status| status.allowed);
        self.rights.put(key, allowed);
        Ok(allowed)
    }

    /// Returns whose token this is; `None` if nobody's.
    async fn review_token(&self, token: &str) -> Result<Option<Caller>, AccessError> {
        let spec = TokenReviewSpec { token: Some(token.into()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.create(&review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.map(|user| Caller {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    async fn create<K>(&self, review: &K) -> Result<K, AccessError>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
        K: Resource<Scope = k8s_openapi::ClusterResourceScope>,
    {
        let api: Api<K> = Api::all(self.hub.clone());
        let created = within(API_CALL_TIMEOUT, api.create(&PostParams::default(), review)).await;
        created.map_err(|error| AccessError::Unavailable(api_error_message(&error)))
    }
}

/// Answers of the API server, each with its time.
#[derive(Clone)]
struct Answers<K, V>(Arc<Mutex<HashMap<K, (Instant, V)>>>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash, V: Clone> Answers<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).filter(|(at, _)| at.elapsed() < ANSWER_LIFETIME).map(|(_, answer)| answer.clone())
    }

    fn put(&self, key: K, answer: V) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MAX_ANSWERS {
            answers.retain(|_, (at, _)| at.elapsed() < ANSWER_LIFETIME);
        }
        if answers.len() >= MAX_ANSWERS {
            answers.clear();
        }
        answers.insert(key, (Instant::now(), answer));
    }
}
