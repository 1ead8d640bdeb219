//! The session with one cluster: waits for its kubeconfig, connects, watches every kind, asks now
//! and then whether the cluster still answers, and begins anew when it does not or when the
//! kubeconfig has changed. Everything it learns it tells as events.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::{DynamicResourceScope, Object};
use kube::{Api, Client, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cause::{self, Cause};
use super::connect;
use super::guard::Unreadable;
use super::limit::{Account, Budget, Queue, WatchLimits};
use super::relist::{Lists, ScopeLists};
use super::served;
use super::stream::{Failure, ObjectEvent, ParsedObjectApi, follow};
use crate::observe::facts::{ClusterEvent, ClusterKey, Fact, Kind, ObjectKey};
use crate::observe::trim;

/// How often a cluster is asked whether it answers.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before trying a cluster again that did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// How often to look again for a kind that the cluster does not have.
const ABSENT_AGAIN: Duration = Duration::from_secs(10);

/// Takes an event; false when nobody listens any more.
pub trait Tell: Fn(ClusterEvent) -> bool + Clone + Send + Sync + 'static {}
impl<F: Fn(ClusterEvent) -> bool + Clone + Send + Sync + 'static> Tell for F {}

/// Where a cluster's kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// Ours already.
    Local,
    /// In a Secret on the hub.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// All that a session needs to know.
#[derive(Clone)]
pub struct Session {
    /// The cluster.
    pub key: ClusterKey,
    /// The hub, for the Secret.
    pub hub: Client,
    /// Where the kubeconfig is.
    pub access: KubeconfigSource,
    /// Programs in kubeconfigs may be run.
    pub allow_exec: bool,
    /// The namespaces in which targets are: what is watched where the whole cluster may not be.
    pub namespaces: watch::Receiver<BTreeSet<String>>,
    /// What may be kept of all clusters together.
    pub budget: Arc<Budget>,
    /// The events of this cluster that wait for the loop.
    pub queue: Arc<Queue>,
    /// How often the objects of this cluster are listed.
    pub lists: Arc<Lists>,
}

impl Session {
    /// Runs until nobody listens.
    pub async fn run(self, tell: impl Tell) {
        match self.access.clone() {
            KubeconfigSource::Local => loop {
                if !self.connected(self.hub.clone(), tell.clone()).await {
                    return;
                }
            },
            KubeconfigSource::Secret { namespace, name } => self.by_secret(&namespace, &name, tell).await,
        }
    }

    /// Follows the Secret, and connects anew each time its kubeconfig changes.
    async fn by_secret(&self, namespace: &str, name: &str, tell: impl Tell) {
        let (sender, mut kubeconfig) = watch::channel::<Option<Result<String, String>>>(None);
        let api: ParsedObjectApi<Secret> = Api::namespaced(self.hub.clone(), namespace);
        let fields = Some(format!("metadata.name={name}"));
        let (key, full) = (self.key.clone(), format!("{namespace}/{name}"));
        let open = |sender: &watch::Sender<_>| match sender.is_closed() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let limits = WatchLimits::hub("Secrets");
        let followed = follow(api, fields, limits, Some, move |seen| {
            let found = match seen {
                ObjectEvent::Listed(secrets, _) => secrets.into_iter().next(),
                ObjectEvent::Applied(secret) => Some(secret),
                ObjectEvent::Deleted(_) | ObjectEvent::Unreadable(_) => None,
                ObjectEvent::Failed(error) => {
                    // What was read before stays good; only a first reading is missed.
                    let why =
                        format!("Secret {full} cannot be read: {}", cause_of_secret(&key, error.error()));
                    sender.send_if_modified(|known| match known {
                        Some(Ok(_)) => false,
                        other => other.replace(Err(why.clone())) != *other,
                    });
                    return open(&sender);
                }
            };
            let read = match found {
                Some(secret) => connect::kubeconfig(&full, &connect::data(secret)).map_err(|e| e.to_string()),
                None => {
                    Err(format!("there is no Secret {full}, which holds the kubeconfig of {key}: create it"))
                }
            };
            sender.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&read);
                *known = Some(read.clone());
                changed
            });
            open(&sender)
        });
        let full = format!("{namespace}/{name}");
        let used = async {
            loop {
                let now = kubeconfig.borrow_and_update().clone();
                let go_on = tokio::select! {
                    go_on = self.with_kubeconfig(&full, now, tell.clone()) => go_on,
                    changed = kubeconfig.changed() => changed.is_ok(),
                };
                if !go_on {
                    return;
                }
            }
        };
        tokio::select! { _ = followed => {}, () = used => {} }
    }

    async fn with_kubeconfig(
        &self,
        secret: &str,
        kubeconfig: Option<Result<String, String>>,
        tell: impl Tell,
    ) -> bool {
        let told = match kubeconfig {
            None => true,
            Some(Err(why)) => tell(ClusterEvent::Lost(why)),
            Some(Ok(text)) => match connect::client(secret, &text, self.allow_exec).await {
                Ok(client) => return self.connected(client, tell).await,
                Err(error) => tell(ClusterEvent::Lost(error.to_string())),
            },
        };
        if told {
            std::future::pending::<()>().await;
        }
        told
    }

    /// Watches until the cluster stops answering; then says so, waits, and lets the caller begin
    /// anew. False when nobody listens.
    async fn connected(&self, client: Client, tell: impl Tell) -> bool {
        if let Err(cause) = probe(&client).await {
            let told = tell(ClusterEvent::Lost(cause::cluster(&self.key, &cause)));
            tokio::time::sleep(RETRY_AFTER).await;
            return told;
        }
        if !tell(ClusterEvent::Connected) {
            return false;
        }
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let (session, client, tell) = (self.clone(), client.clone(), tell.clone());
            watches.spawn(async move { session.watch_kind(kind, client, tell).await });
        }
        let lost = async {
            loop {
                tokio::time::sleep(PROBE_EVERY).await;
                if probe(&client).await.is_ok() {
                    continue;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                if let Err(cause) = probe(&client).await {
                    return cause;
                }
            }
        };
        tokio::select! {
            cause = lost => {
                watches.shutdown().await;
                tell(ClusterEvent::Lost(cause::cluster(&self.key, &cause)))
            }
            ended = watches.join_next() => match ended {
                // It has panicked, which no other watch is to suffer from for long.
                Some(Err(error)) => {
                    tracing::error!(cluster = %self.key, %error, "a watch has failed");
                    tokio::time::sleep(RETRY_AFTER).await;
                    true
                }
                // A watch ends only when nobody listens.
                _ => false,
            },
        }
    }

    /// Watches one kind, in whatever version the cluster serves it, once it does.
    async fn watch_kind(&self, kind: Kind, client: Client, tell: impl Tell) {
        loop {
            match served::find(&client, kind).await {
                Ok(Some(resource)) => {
                    if !self.watch_served(kind, &client, &resource, &tell).await {
                        return;
                    }
                }
                Ok(None) => {
                    if !tell(ClusterEvent::Absent(kind)) {
                        return;
                    }
                    tokio::time::sleep(ABSENT_AGAIN).await;
                }
                Err(error) => {
                    let why = cause::kind(&self.key, kind, None, &cause::of(&error));
                    if !tell(ClusterEvent::Unreadable(kind, None, why)) {
                        return;
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Watches a kind on the whole cluster, or where that is forbidden in the targets' namespaces.
    /// Returns true when the version that is served has to be looked for again.
    async fn watch_served(
        &self,
        kind: Kind,
        client: &Client,
        resource: &ApiResource,
        tell: &impl Tell,
    ) -> bool {
        match self.watch_scope(kind, client, resource, None, tell.clone()).await {
            Ended::NobodyListens => false,
            Ended::Gone => self.gone(kind, tell).await,
            Ended::Forbidden if kind == Kind::Namespace => {
                tokio::time::sleep(ABSENT_AGAIN).await;
                true
            }
            Ended::Forbidden => {
                let mut wanted = self.namespaces.clone();
                let mut watches = JoinSet::new();
                for namespace in wanted.borrow_and_update().clone() {
                    let (session, client, resource, tell) =
                        (self.clone(), client.clone(), resource.clone(), tell.clone());
                    watches.spawn(async move {
                        loop {
                            let scope = Some(namespace.as_str());
                            match session.watch_scope(kind, &client, &resource, scope, tell.clone()).await {
                                Ended::Forbidden => tokio::time::sleep(ABSENT_AGAIN).await,
                                ended => return ended,
                            }
                        }
                    });
                }
                tokio::select! {
                    changed = wanted.changed() => changed.is_ok(),
                    // Rights may have been widened: try the whole cluster now and then.
                    () = tokio::time::sleep(Duration::from_secs(300)) => true,
                    ended = watches.join_next(), if !watches.is_empty() => match ended {
                        Some(Ok(Ended::NobodyListens)) => false,
                        _ => self.gone(kind, tell).await,
                    }
                }
            }
        }
    }

    /// The kind is not served any more: that is so until it is found again.
    async fn gone(&self, kind: Kind, tell: &impl Tell) -> bool {
        let told = tell(ClusterEvent::Absent(kind));
        tokio::time::sleep(RETRY_AFTER).await;
        told
    }

    async fn watch_scope(
        &self,
        kind: Kind,
        client: &Client,
        resource: &ApiResource,
        namespace: Option<&str>,
        tell: impl Tell,
    ) -> Ended {
        let scope = Scope { session: self, kind, client, resource, namespace };
        match kind {
            Kind::Namespace => {
                scope.watch(|o: &Object<Nothing, Nothing>| Some(trim::namespace(o)), tell).await
            }
            Kind::Kustomization => scope.watch(|o| Some(trim::kustomization(o)), tell).await,
            Kind::HelmRelease => scope.watch(|o| Some(trim::helm_release(o)), tell).await,
            Kind::GitRepository => scope.watch(|o| Some(trim::git_repository(o)), tell).await,
            _ => scope.watch(|o| trim::workload(kind, o), tell).await,
        }
    }
}

/// Why a watch ended.
#[derive(PartialEq)]
enum Ended {
    NobodyListens,
    Gone,
    Forbidden,
}

struct Scope<'a> {
    session: &'a Session,
    kind: Kind,
    client: &'a Client,
    resource: &'a ApiResource,
    namespace: Option<&'a str>,
}

/// Of a namespace, only that it exists is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Nothing {}

impl Scope<'_> {
    /// The limits of the watch, which charges what it keeps to this account.
    fn limits(&self, account: Arc<Account>) -> WatchLimits {
        let Session { key, queue, lists, .. } = self.session;
        let source = format!("{key}: {}", self.kind.resource().1);
        let lists = ScopeLists::new(lists.clone(), self.kind, self.namespace.map(String::from));
        WatchLimits::cluster(source, account, queue.clone(), lists)
    }

    async fn watch<K>(&self, trim: impl Fn(&K) -> Option<Fact>, tell: impl Tell) -> Ended
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let (kind, namespace) = (self.kind, self.namespace.map(String::from));
        let api: ParsedObjectApi<K> = match self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, self.resource),
            None => Api::all_with(self.client.clone(), self.resource),
        };
        let listening = |told: bool| match told {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(Ended::NobodyListens),
        };
        let session = self.session;
        let account = Account::new(session.key.clone(), session.budget.clone());
        let limits = self.limits(account.clone());
        let keep = |object: K| {
            let key = trim::key(kind, &object);
            let fact = trim(&object).filter(|_| trim::is_name(&key))?;
            account.add(fact.size(&key));
            Some((key, fact))
        };
        follow(api, None, limits, keep, |seen| {
            let failure = match seen {
                ObjectEvent::Listed(all, _) => {
                    return listening(tell(ClusterEvent::Listed(kind, namespace.clone(), all)));
                }
                ObjectEvent::Applied((key, fact)) => {
                    return listening(tell(ClusterEvent::Applied(key, fact)));
                }
                ObjectEvent::Deleted(metadata) | ObjectEvent::Unreadable(Unreadable { metadata, .. }) => {
                    return listening(
                        gone(kind, metadata).is_none_or(|key| tell(ClusterEvent::Deleted(key))),
                    );
                }
                ObjectEvent::Failed(failure) => failure,
            };
            let cause = cause::of(failure.error());
            let over = match cause {
                Cause::Forbidden(_) => Some(Ended::Forbidden),
                Cause::NotFound => return ControlFlow::Break(Ended::Gone),
                // A broken stream begins anew by itself; the probe tells when the cluster is lost.
                Cause::TooLarge(_) => None,
                _ if matches!(failure, Failure::Watch(_)) => return ControlFlow::Continue(()),
                _ => None,
            };
            let why = cause::kind(&session.key, kind, namespace.as_deref(), &cause);
            if matches!(cause, Cause::TooLarge(_)) {
                tracing::warn!(cluster = %session.key, error = %why, "a kind is too large to watch");
                return listening(tell(ClusterEvent::TooLarge(kind, namespace.clone(), why)));
            }
            let narrowed = over == Some(Ended::Forbidden) && namespace.is_none() && kind != Kind::Namespace;
            if cause == Cause::HeldBack {
                tracing::warn!(cluster = %session.key, error = %why, "a cluster is listed less often");
            }
            let event = match narrowed {
                true => ClusterEvent::Narrowed(kind),
                false => ClusterEvent::Unreadable(kind, namespace.clone(), why),
            };
            match (tell(event), over) {
                (true, Some(over)) => ControlFlow::Break(over),
                (told, _) => listening(told),
            }
        })
        .await
    }
}

/// The object that is gone; `None` where its name is none that an object may have. Nothing of such a name was ever
/// told, and it can be as long as a line.
fn gone(kind: Kind, metadata: ObjectMeta) -> Option<ObjectKey> {
    let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
    Some(ObjectKey { kind, namespace, name }).filter(trim::is_name)
}

async fn probe(client: &Client) -> Result<(), Cause> {
    match tokio::time::timeout(PROBE_TIMEOUT, served::read::<IgnoredAny>(client, "/version")).await {
        Ok(Ok(_)) => Ok(()),
        // Who may not ask for the version may still read what we need.
        Ok(Err(error)) => match cause::of(&error) {
            Cause::Forbidden(_) => Ok(()),
            cause => Err(cause),
        },
        Err(_) => Err(Cause::Unreachable(format!("no answer within {} seconds", PROBE_TIMEOUT.as_secs()))),
    }
}

fn cause_of_secret(key: &ClusterKey, error: &kube::Error) -> String {
    match cause::of(error) {
        Cause::Forbidden(said) => format!(
            "{said}; grant the controller get, list and watch on that Secret, which holds the kubeconfig of {key}"
        ),
        other => cause::cluster(&ClusterKey::Local, &other),
    }
}
