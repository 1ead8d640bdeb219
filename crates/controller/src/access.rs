//! Who calls and what the caller may do, as the hub's API server says: TokenReview and SubjectAccessReview. Answers count
//! for a few seconds, so that a page does not ask again for each of its parts.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::lock::lock;
use sluice_delivery::FairQueue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::read_error::api_error_message;

/// How long an answer counts. A right that is withdrawn ends after this time.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);
/// How many answers of one sort are kept. Beyond, the oldest are forgotten.
const MAX_ANSWERS: usize = 20_000;
/// How many unknown tokens are reviewed at a time. Anybody who reaches the API can send tokens.
const CONCURRENT_TOKENS: usize = 4;
/// How long an unknown token waits for its review.
const UNKNOWN_TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a token that was accepted is reviewed before unknown ones.
const KNOWN_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// What the API server says about a caller's token itself
/// ([documentation](https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/)).
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// How many rights are reviewed at a time, fair by caller.
const CONCURRENT_RIGHTS: usize = 16;

/// Asks the hub's API server.
#[derive(Clone)]
pub struct AccessReviews {
    hub: Client,
    /// Whether all questions are about the client's own user.
    is_about_own_user: bool,
    callers: Answers<[u8; 32], Caller>,
    /// The tokens that were not accepted, apart from the callers: anybody can send any number of them.
    refused: Answers<[u8; 32], ()>,
    /// The tokens that were accepted in the last hour.
    known_tokens: Answers<[u8; 32], ()>,
    /// By the digest of the caller: callers may be in hundreds of groups.
    rights: Answers<([u8; 32], Right), bool>,
    unknown_token_slots: Arc<Semaphore>,
    known_token_slots: Arc<Semaphore>,
    right_slots: Arc<FairQueue>,
}

impl AccessReviews {
    /// Returns reviews by this API server.
    pub fn new(hub: Client) -> Self {
        Self {
            hub,
            is_about_own_user: false,
            callers: Answers::lasting(ANSWER_LIFETIME),
            refused: Answers::lasting(ANSWER_LIFETIME),
            known_tokens: Answers::lasting(KNOWN_TOKEN_LIFETIME),
            rights: Answers::lasting(ANSWER_LIFETIME),
            unknown_token_slots: Arc::new(Semaphore::new(CONCURRENT_TOKENS)),
            known_token_slots: Arc::new(Semaphore::new(CONCURRENT_TOKENS)),
            right_slots: FairQueue::new(CONCURRENT_RIGHTS),
        }
    }

    /// Returns reviews of what the client's own user may do, which needs no right.
    pub fn of_own_user(hub: Client) -> Self {
        Self { is_about_own_user: true, ..Self::new(hub) }
    }

    /// Returns whose token this is.
    ///
    /// # Errors
    /// When the token is not accepted, or the API server cannot be asked.
    pub async fn identify(&self, token: &str) -> Result<Caller, AccessError> {
        // The token itself is not kept.
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.known(&key) {
            return known;
        }
        let _slot = self.token_slot(&key).await?;
        // Another request with this token may have asked in the meantime.
        if let Some(known) = self.known(&key) {
            return known;
        }
        match self.review_token(token).await? {
            Some(caller) => {
                self.callers.put(key, caller.clone());
                self.known_tokens.put(key, ());
                Ok(caller)
            }
            None => {
                self.refused.put(key, ());
                Err(AccessError::NotAccepted)
            }
        }
    }

    /// Returns what is known of a token.
    fn known(&self, key: &[u8; 32]) -> Option<Result<Caller, AccessError>> {
        let refused = || self.refused.get(key).map(|()| Err(AccessError::NotAccepted));
        self.callers.get(key).map(Ok).or_else(refused)
    }

    /// Waits until a token may be reviewed. Those that send made-up tokens delay only each other.
    async fn token_slot(&self, key: &[u8; 32]) -> Result<SemaphorePermit<'_>, AccessError> {
        let closed = |_| AccessError::Unavailable("the process ends".into());
        if self.known_tokens.get(key).is_some() {
            return self.known_token_slots.acquire().await.map_err(closed);
        }
        let slot = timeout(UNKNOWN_TOKEN_TIMEOUT, self.unknown_token_slots.acquire()).await;
        slot.map_err(|_| AccessError::Unavailable("too many unknown tokens are sent; try again".into()))?
            .map_err(closed)
    }

    /// Returns whether a caller has a right.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn allows(&self, caller: &Caller, right: &Right) -> Result<bool, AccessError> {
        // An answer is kept with its names. A caller could fill the memory with names as long as an address can be.
        if !right.can_apply() {
            return Ok(false);
        }
        // The text of a caller is unambiguous, because all strings in it are quoted.
        let mut caller = caller.clone();
        // Each token of a service account has another one, and all have the same rights.
        caller.extra.remove(CREDENTIAL_ID);
        let key = (Sha256::digest(format!("{caller:?}")).into(), right.clone());
        if let Some(allowed) = self.rights.get(&key) {
            return Ok(allowed);
        }
        // A caller without rights asks about each namespace, and must not delay others by all of them.
        let _slot = self.right_slots.acquire(&caller.queue_name()).await;
        // Another request of the caller may have asked in the meantime.
        if let Some(allowed) = self.rights.get(&key) {
            return Ok(allowed);
        }
        let allowed = self.review_right(caller, right).await?;
        self.rights.put(key, allowed);
        Ok(allowed)
    }

    async fn review_right(&self, caller: Caller, right: &Right) -> Result<bool, AccessError> {
        let resource_attributes = Some(ResourceAttributes {
            verb: Some(right.verb.clone()),
            group: Some(right.group.clone()),
            resource: Some(right.resource.clone()),
            namespace: right.namespace.clone(),
            name: right.name.clone(),
            ..ResourceAttributes::default()
        });
        let status = if self.is_about_own_user {
            let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
            self.create(&SelfSubjectAccessReview { spec, ..Default::default() }).await?.status
        } else {
            let spec = SubjectAccessReviewSpec {
                user: Some(caller.name),
                uid: Some(caller.uid).filter(|uid| !uid.is_empty()),
                groups: Some(caller.groups),
                extra: Some(caller.extra).filter(|extra| !extra.is_empty()),
                resource_attributes,
                ..SubjectAccessReviewSpec::default()
            };
            self.create(&SubjectAccessReview { spec, ..Default::default() }).await?.status
        };
        Ok(status.is_some_and(|status| status.allowed))
    }

    /// Returns whose token this is; `None` if nobody's.
    async fn review_token(&self, token: &str) -> Result<Option<Caller>, AccessError> {
        let spec = TokenReviewSpec { token: Some(token.into()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.create(&review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        // Without a name, nobody could tell whose action it was. An identity provider may give such tokens.
        let named =
            user.and_then(|user| Some((user.username.clone().filter(|name| !name.is_empty())?, user)));
        Ok(named.map(|(name, user)| Caller {
            name,
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
        created.map_err(|error| AccessError::Unavailable(unavailable(&error, &K::plural(&()))))
    }
}

/// Returns why the API server cannot be asked, and what to do.
fn unavailable(error: &kube::Error, plural: &str) -> String {
    let what_to_do = match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("grant the controller the verb create on {plural}, as deploy/rbac.yaml does")
        }
        kube::Error::Api(_) => "look at the log of the API server".into(),
        _ => "check that the API server runs, and that the controller can connect to it".into(),
    };
    format!("{}; {what_to_do}", api_error_message(error))
}

/// Answers of the API server, each with its time.
#[derive(Clone)]
struct Answers<K, V> {
    lifetime: Duration,
    kept: Arc<Mutex<HashMap<K, (Instant, V)>>>,
}

impl<K: Eq + Hash, V: Clone> Answers<K, V> {
    fn lasting(lifetime: Duration) -> Self {
        Self { lifetime, kept: Arc::default() }
    }

    fn get(&self, key: &K) -> Option<V> {
        let answers = lock(&self.kept);
        answers.get(key).filter(|(at, _)| at.elapsed() < self.lifetime).map(|(_, answer)| answer.clone())
    }

    fn put(&self, key: K, answer: V) {
        let mut answers = lock(&self.kept);
        if answers.len() >= MAX_ANSWERS {
            answers.retain(|_, (at, _)| at.elapsed() < self.lifetime);
        }
        if answers.len() >= MAX_ANSWERS {
            let mut times: Vec<Instant> = answers.values().map(|(at, _)| *at).collect();
            let (_, quartile, _) = times.select_nth_unstable(MAX_ANSWERS / 4);
            let newer_than = *quartile;
            answers.retain(|_, (at, _)| *at > newer_than);
        }
        answers.insert(key, (Instant::now(), answer));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn a_token_of_a_user_without_a_name_is_not_accepted() {
        for (name, is_accepted) in [("jane", true), ("", false)] {
            let hub = service_fn(move |_: http::Request<Body>| {
                let review = format!(
                    r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{}},
                    "status":{{"authenticated":true,"user":{{"username":"{name}","groups":["system:authenticated"]}}}}}}"#
                );
                std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(review.into_bytes()))))
            });
            let identified = AccessReviews::new(Client::new(hub, "default")).identify("token").await;
            assert_eq!(identified.is_ok_and(|caller| caller.name == name), is_accepted, "{name:?}");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct ConnectError(#[source] std::io::Error);

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_reported_with_the_cause_and_what_to_do() {
        let hub = service_fn(|_: http::Request<Body>| {
            let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            std::future::ready(Err::<http::Response<Body>, _>(ConnectError(refused)))
        });
        let error = AccessReviews::new(Client::new(hub, "default")).identify("token").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot ask the API server who may do what: no connection (connection refused); check that the API \
             server runs, and that the controller can connect to it"
        );
    }

    #[tokio::test]
    async fn names_that_no_object_can_have_are_neither_asked_about_nor_kept() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let hub = service_fn(move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let review = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{},
                "status":{"allowed":true}}"#;
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(
                review.as_bytes().to_vec(),
            ))))
        });
        let reviews = AccessReviews::new(Client::new(hub, "default"));
        let right = Right::all("pipelines.weave.works", "pipelines").within("apps");
        let jane = Caller { name: "jane".into(), ..Caller::default() };
        assert!(reviews.allows(&jane, &right.clone().named("podinfo")).await.unwrap());
        for right in [right.clone().within(&"a".repeat(30_000)), right.clone().within(""), right.named("a/b")]
        {
            assert!(!reviews.allows(&jane, &right).await.unwrap());
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(reviews.rights.kept.lock().unwrap().len(), 1);
    }

    #[test]
    fn beyond_the_limit_only_the_oldest_answers_are_forgotten() {
        let answers = Answers::lasting(ANSWER_LIFETIME);
        for n in 0..=MAX_ANSWERS {
            answers.put(n, n);
        }
        let known = |n: usize| answers.get(&n).is_some();
        assert!(!known(0) && known(MAX_ANSWERS) && known(MAX_ANSWERS - 1));
        let kept = (0..=MAX_ANSWERS).filter(|n| known(*n)).count();
        assert!(kept > MAX_ANSWERS / 2 && kept <= MAX_ANSWERS, "{kept}");
    }
}
