//! A session waits for the kubeconfig of a cluster, connects, watches every kind, probes the cluster, and reports all
//! that as events. If the cluster is lost or the kubeconfig changes, the session connects again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::{DynamicResourceScope, Object};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::cluster_client::ClusterClient;
use super::cluster_probe::{may_list_all, probe, until_lost};
use super::event_queue::EventQueue;
use super::kubeconfig;
use super::kubeconfig_secrets::KubeconfigSecrets;
use super::limit::WatchLimits;
use super::observed_memory::{ObservedMemory, WatchMemory};
use super::owned_read::OwnedReads;
use super::parsed_object::UnreadableObject;
use super::read_error::{self, ReadError};
use super::relist::{Lists, ScopeLists};
use super::served::{Discovery, Served};
use super::stream::{ObjectEvent, ParsedObjectApi, WatchFailure, follow};
use super::too_large::TooLarge;
use crate::observe::ObserveScope;
use crate::observe::facts::{helm_release, kustomization, metadata, source, trigger, workload};
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, Kind, ObjectKey};

/// The pause before the next try after an error.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(3);
/// The pause before the next try for a kind that the cluster does not have or that the user may not read.
const ABSENT_RETRY_AFTER: Duration = Duration::from_secs(10);
/// The pause before the next try for a kind that only views show, because many clusters lack some of these kinds.
const SHOWN_ABSENT_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The time after which a session that reads by namespace tries the whole cluster again.
const WHOLE_CLUSTER_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Sends an event to the controller's loop. Returns false if the loop has ended.
pub trait SendEvent: Fn(ClusterEvent) -> bool + Clone + Send + Sync + 'static {}
impl<F: Fn(ClusterEvent) -> bool + Clone + Send + Sync + 'static> SendEvent for F {}

/// Where the kubeconfig of a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// The cluster is the hub, for which the controller has a client already.
    Local,
    /// In a Secret on the hub.
    Secret {
        /// The Secret's namespace.
        namespace: String,
        /// The Secret's name.
        name: String,
    },
}

/// The session with one cluster, with everything that it uses.
#[derive(Clone)]
pub struct ClusterSession {
    /// The cluster.
    pub key: ClusterKey,
    /// The client of the hub, which reads the Secret.
    pub hub: Client,
    /// Where the kubeconfig is.
    pub kubeconfig: KubeconfigSource,
    /// The secrets of the kubeconfig in use.
    pub secrets: KubeconfigSecrets,
    /// Whether a kubeconfig may run programs.
    pub allow_exec: bool,
    /// What is observed.
    pub observe: ObserveScope,
    /// The namespaces with targets. If the user may not read the whole cluster, the session watches these.
    pub namespaces: watch::Receiver<BTreeSet<String>>,
    /// The memory for the observed objects of all clusters.
    pub memory: Arc<ObservedMemory>,
    /// The queue of this cluster's events.
    pub queue: Arc<EventQueue>,
    /// The requested reads of the objects that Flux objects own.
    pub owned_reads: Arc<OwnedReads>,
    /// The earlier lists of this cluster, which determine when it may be listed again.
    pub lists: Arc<Lists>,
}

impl ClusterSession {
    /// Runs until `send` returns false.
    pub async fn run(self, send: impl SendEvent) {
        match self.kubeconfig.clone() {
            KubeconfigSource::Local => loop {
                if !self.watch_until_lost(self.hub.clone(), send.clone()).await {
                    return;
                }
            },
            KubeconfigSource::Secret { namespace, name } => {
                self.run_with_secret(&namespace, &name, send).await
            }
        }
    }

    /// Follows the Secret, and connects again each time its kubeconfig changes.
    async fn run_with_secret(&self, namespace: &str, name: &str, send: impl SendEvent) {
        let (sender, mut kubeconfig) = watch::channel::<Option<Result<Arc<str>, String>>>(None);
        let api: ParsedObjectApi<Secret> = Api::namespaced(self.hub.clone(), namespace);
        let fields = Some(format!("metadata.name={name}"));
        let (key, full_name) = (self.key.clone(), format!("{namespace}/{name}"));
        let until_closed = |sender: &watch::Sender<_>| match sender.is_closed() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let limits = WatchLimits::hub("Secrets");
        let follow_secret = follow(api, fields, limits, Some, move |event| {
            let secret = match event {
                ObjectEvent::Listed(secrets, _) => secrets.into_iter().next(),
                ObjectEvent::Applied(secret) => Some(secret),
                ObjectEvent::Deleted(_) | ObjectEvent::Unreadable(_) => None,
                ObjectEvent::LeftOut(..) => return until_closed(&sender),
                ObjectEvent::Failed(failure) => {
                    // A kubeconfig that was read before stays valid.
                    let why = format!(
                        "Secret {full_name} cannot be read: {}",
                        read_error::secret_message(&key, failure.error())
                    );
                    sender.send_if_modified(|current| match current {
                        Some(Ok(_)) => false,
                        other => other.replace(Err(why.clone())) != *other,
                    });
                    return until_closed(&sender);
                }
            };
            let read = match secret {
                Some(secret) => kubeconfig::text(&full_name, &kubeconfig::data(secret))
                    .map(Arc::from)
                    .map_err(|e| e.to_string()),
                None => {
                    Err(format!("there is no Secret {full_name} with the kubeconfig of {key}: create it"))
                }
            };
            sender.send_if_modified(|current| {
                let changed = current.as_ref() != Some(&read);
                *current = Some(read.clone());
                changed
            });
            until_closed(&sender)
        });
        let full_name = format!("{namespace}/{name}");
        let watch_cluster = async {
            loop {
                let current = kubeconfig.borrow_and_update().clone();
                let proceed = tokio::select! {
                    proceed = self.run_with_kubeconfig(&full_name, current, send.clone()) => proceed,
                    changed = kubeconfig.changed() => changed.is_ok(),
                };
                if !proceed {
                    return;
                }
            }
        };
        tokio::select! { _ = follow_secret => {}, () = watch_cluster => {} }
    }

    /// Watches the cluster until it is lost, or reports why there is no client and waits for a change of the
    /// kubeconfig. Returns false if the controller's loop has ended.
    async fn run_with_kubeconfig(
        &self,
        secret: &str,
        kubeconfig: Option<Result<Arc<str>, String>>,
        send: impl SendEvent,
    ) -> bool {
        let sent = match kubeconfig {
            None => true,
            Some(Err(why)) => send(ClusterEvent::Lost(why)),
            Some(Ok(text)) => match kubeconfig::client(secret, &text, self.allow_exec).await {
                Ok((client, secrets)) => {
                    return Self { secrets, ..self.clone() }.watch_until_lost(client, send).await;
                }
                Err(error) => send(ClusterEvent::Lost(error.to_string())),
            },
        };
        if sent {
            std::future::pending::<()>().await;
        }
        sent
    }

    /// Watches all kinds until the cluster stops answering, then reports the cluster as lost. The caller connects
    /// again. Returns false if the controller's loop has ended.
    async fn watch_until_lost(&self, client: Client, send: impl SendEvent) -> bool {
        let single_answers = self.single_answers(&client);
        if let Err(error) = probe(&single_answers).await {
            let sent = send(ClusterEvent::Lost(read_error::cluster_message(&self.key, &error)));
            tokio::time::sleep(RETRY_AFTER).await;
            return sent;
        }
        self.owned_reads.clear();
        if !send(ClusterEvent::Connected) {
            return false;
        }
        let mut watches = self.spawn_watches(&client, &send);
        self.spawn_owned_reads(&mut watches, &client, &send);
        tokio::select! {
            error = until_lost(&single_answers) => {
                watches.shutdown().await;
                send(ClusterEvent::Lost(read_error::cluster_message(&self.key, &error)))
            }
            ended = watches.join_next() => match ended {
                // A watch has panicked. The caller starts all watches of the cluster again.
                Some(Err(error)) => {
                    tracing::error!(cluster = %self.key, %error, "a watch has failed");
                    tokio::time::sleep(RETRY_AFTER).await;
                    true
                }
                // A watch ends only when the controller's loop has ended.
                _ => false,
            },
        }
    }

    /// Starts the watches of all kinds. The watches of workloads start after the Flux objects have been listed.
    /// Otherwise, the list of workloads could be older, and lack workloads that the listed Flux objects have made.
    fn spawn_watches(&self, client: &Client, send: &impl SendEvent) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        let kinds = self.observe.kinds(&self.key);
        let discovery = Discovery::new(self.single_answers(client), &kinds);
        let (unreported, reported) = watch::channel(BTreeSet::from([Kind::Kustomization, Kind::HelmRelease]));
        for kind in kinds {
            let (session, client, send) = (self.clone(), client.clone(), send.clone());
            let (discovery, unreported, mut reported) =
                (discovery.clone(), unreported.clone(), reported.clone());
            watches.spawn(async move {
                let served = discovery.find(kind).await;
                if Kind::WITH_IMAGES.contains(&kind) {
                    // This task holds a sender, so the channel is open and there is no error.
                    let _ = reported.wait_for(BTreeSet::is_empty).await;
                    return session.watch_kind(kind, served, (&discovery, client), send).await;
                }
                let send = move |event| {
                    let sent = send(event);
                    unreported.send_if_modified(|kinds| kinds.remove(&kind));
                    sent
                };
                session.watch_kind(kind, served, (&discovery, client), send).await
            });
        }
        watches
    }

    /// Starts the task that reads the objects that Flux objects own.
    fn spawn_owned_reads(&self, watches: &mut JoinSet<()>, client: &Client, send: &impl SendEvent) {
        let (session, client, send) = (self.clone(), client.clone(), send.clone());
        watches.spawn(async move {
            let limits = |kind, namespace: &str| {
                session.limits(kind, Some(namespace), session.watch_memory(false)).of_owned()
            };
            session.owned_reads.answer(&session.key, &client, limits, send).await;
        });
    }

    /// Returns a client for single answers of the cluster.
    fn single_answers(&self, client: &Client) -> ClusterClient {
        ClusterClient::new(client.clone(), self.key.clone(), self.memory.clone(), self.secrets.clone())
    }

    /// Returns a new account of the memory for the objects of one watch.
    fn watch_memory(&self, is_shared: bool) -> Arc<WatchMemory> {
        WatchMemory::new(self.key.clone(), self.memory.clone(), is_shared)
    }

    /// Returns the limits for reading a kind in one namespace, or in all. The objects are charged to `memory`.
    fn limits(&self, kind: Kind, namespace: Option<&str>, memory: Arc<WatchMemory>) -> WatchLimits {
        let source = format!("{}: {}", self.key, kind.resource().1);
        let lists = ScopeLists::new(self.lists.clone(), kind, namespace.map(String::from));
        WatchLimits::cluster(source, memory, self.queue.clone(), lists).hiding(self.secrets.clone())
    }

    /// Watches a kind in the version that the cluster serves, and waits while it serves none. `served` is what the
    /// cluster has answered. Returns when the controller's loop has ended.
    async fn watch_kind(
        &self,
        kind: Kind,
        mut served: Served,
        (discovery, client): (&Discovery, Client),
        send: impl SendEvent,
    ) {
        loop {
            match served {
                Ok(Some(resource)) => {
                    self.owned_reads.set_resource(kind, resource.clone());
                    if !self.watch_served(kind, &client, &resource, &send).await {
                        return;
                    }
                }
                Ok(None) => {
                    if !send(ClusterEvent::Absent(kind)) {
                        return;
                    }
                    tokio::time::sleep(absent_retry_after(kind)).await;
                }
                Err(error) => {
                    let why = read_error::kind_message(&self.key, kind, None, &ReadError::from(&*error));
                    if !send(ClusterEvent::Unreadable(kind, None, why)) {
                        return;
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
            served = discovery.find(kind).await;
        }
    }

    /// Watches a kind on the whole cluster or, if that is forbidden, in the targets' namespaces. Returns true when
    /// the caller must look for the served version again, and false if the controller's loop has ended.
    async fn watch_served(
        &self,
        kind: Kind,
        client: &Client,
        resource: &ApiResource,
        send: &impl SendEvent,
    ) -> bool {
        match self.watch_scope(kind, client, resource, None, send.clone()).await {
            ScopeEnd::LoopEnded => false,
            ScopeEnd::NotServed => self.report_absent(kind, send).await,
            ScopeEnd::Forbidden if kind == Kind::Namespace => {
                tokio::time::sleep(ABSENT_RETRY_AFTER).await;
                true
            }
            ScopeEnd::Forbidden => self.watch_by_namespace(kind, client, resource, send).await,
        }
    }

    /// Watches a kind in each of the targets' namespaces. If the set of namespaces changes, the watches of the
    /// remaining namespaces continue. Returns the same as [`ClusterSession::watch_served`].
    async fn watch_by_namespace(
        &self,
        kind: Kind,
        client: &Client,
        resource: &ApiResource,
        send: &impl SendEvent,
    ) -> bool {
        let mut namespaces = self.namespaces.clone();
        let mut watches = JoinSet::new();
        let mut running: BTreeMap<String, AbortHandle> = BTreeMap::new();
        let mut whole_cluster = tokio::time::interval(WHOLE_CLUSTER_RETRY_AFTER);
        whole_cluster.reset();
        loop {
            let wanted = namespaces.borrow_and_update().clone();
            running.retain(|namespace, watch| {
                let stays = wanted.contains(namespace);
                if !stays {
                    watch.abort();
                }
                stays
            });
            for namespace in wanted {
                running.entry(namespace).or_insert_with_key(|namespace| {
                    let (session, namespace, send) = (self.clone(), namespace.clone(), send.clone());
                    let (client, resource) = (client.clone(), resource.clone());
                    watches.spawn(async move {
                        session.watch_namespace(kind, &client, &resource, &namespace, send).await
                    })
                });
            }
            tokio::select! {
                changed = namespaces.changed() => if changed.is_err() {
                    return false;
                },
                _ = whole_cluster.tick() => if may_list_all(&self.single_answers(client), resource).await {
                    return true;
                },
                Some(ended) = watches.join_next() => match ended {
                    Ok(ScopeEnd::LoopEnded) => return false,
                    // The namespace has no targets any more.
                    Err(error) if error.is_cancelled() => {}
                    _ => return self.report_absent(kind, send).await,
                },
            }
        }
    }

    /// Watches a kind in one namespace. While that is forbidden, tries again after growing pauses.
    async fn watch_namespace(
        &self,
        kind: Kind,
        client: &Client,
        resource: &ApiResource,
        namespace: &str,
        send: impl SendEvent,
    ) -> ScopeEnd {
        let mut pause = absent_retry_after(kind);
        loop {
            match self.watch_scope(kind, client, resource, Some(namespace), send.clone()).await {
                ScopeEnd::Forbidden => tokio::time::sleep(pause).await,
                end => return end,
            }
            // The pause grows, because a Pipeline can name many namespaces that the user may not read.
            pause = (pause * 2).min(SHOWN_ABSENT_RETRY_AFTER);
        }
    }

    /// Reports that the cluster does not serve a kind any more, and pauses. Returns false if the loop has ended.
    async fn report_absent(&self, kind: Kind, send: &impl SendEvent) -> bool {
        let sent = send(ClusterEvent::Absent(kind));
        tokio::time::sleep(RETRY_AFTER).await;
        sent
    }

    /// Watches a kind in one namespace, or in all.
    async fn watch_scope(
        &self,
        kind: Kind,
        client: &Client,
        resource: &ApiResource,
        namespace: Option<&str>,
        send: impl SendEvent,
    ) -> ScopeEnd {
        let scope = WatchScope { session: self, kind, client, resource, namespace };
        match kind {
            Kind::Namespace => {
                scope.watch(|o: &Object<NoFields, NoFields>| metadata::namespace(o), send).await
            }
            Kind::Kustomization => scope.watch(kustomization::facts, send).await,
            Kind::HelmRelease => scope.watch(helm_release::facts, send).await,
            Kind::GitRepository
            | Kind::OciRepository
            | Kind::HelmRepository
            | Kind::HelmChart
            | Kind::Bucket
            | Kind::ExternalArtifact => scope.watch(|o| source::facts(kind, o), send).await,
            Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::CronJob => {
                scope.watch(|o| workload::facts(kind, o), send).await
            }
            Kind::ImagePolicy => scope.watch(trigger::image_policy, send).await,
            Kind::ImageUpdateAutomation => scope.watch(trigger::image_update_automation, send).await,
            Kind::Receiver => scope.watch(trigger::receiver, send).await,
            Kind::Alert => scope.watch(trigger::alert, send).await,
            Kind::Provider => scope.watch(trigger::provider, send).await,
        }
    }
}

/// Why the watch of a scope ended.
#[derive(PartialEq)]
enum ScopeEnd {
    /// The controller's loop has ended.
    LoopEnded,
    /// The cluster does not serve the kind in this version any more.
    NotServed,
    /// The user may not read the kind in this scope.
    Forbidden,
}

/// A kind in one namespace, or in all.
struct WatchScope<'a> {
    session: &'a ClusterSession,
    kind: Kind,
    client: &'a Client,
    resource: &'a ApiResource,
    namespace: Option<&'a str>,
}

/// The spec and status of a Namespace, of which Sluice reads nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct NoFields {}

impl WatchScope<'_> {
    async fn watch<K>(&self, trim: impl Fn(&K) -> Fact, send: impl SendEvent) -> ScopeEnd
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let kind = self.kind;
        let api: ParsedObjectApi<K> = match self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, self.resource),
            None => Api::all_with(self.client.clone(), self.resource),
        };
        let session = self.session;
        let memory = session.watch_memory(self.namespace.is_none());
        let limits = session.limits(kind, self.namespace, memory.clone());
        let keep = |object: K| {
            let key = metadata::key(kind, &object);
            let fact = metadata::is_valid_name(&key).then(|| trim(&object))?;
            let is_shown_only = kind.is_shown_only() || fact.is_only_shown();
            let is_left_out = || session.observe == ObserveScope::Targets || !memory.has_room_to_show();
            if is_shown_only && is_left_out() {
                return None;
            }
            memory.admits(&key, fact.size(&key)).then_some((key, fact))
        };
        follow(api, None, limits, keep, |event| {
            let sent = match event {
                ObjectEvent::Listed(all, _) => send(self.listed(all, memory.namespaces_left_out())),
                ObjectEvent::Applied((key, fact)) => send(ClusterEvent::Applied(key, fact)),
                ObjectEvent::Deleted(metadata)
                | ObjectEvent::Unreadable(UnreadableObject { metadata, .. }) => deleted_key(kind, metadata)
                    .is_none_or(|key| {
                        memory.forget(&key);
                        send(ClusterEvent::Deleted(key))
                    }),
                ObjectEvent::LeftOut(namespace, limit) => {
                    let why = self.why_left_out(&namespace, limit);
                    send(ClusterEvent::TooLarge(kind, Some(namespace), why))
                }
                ObjectEvent::Failed(failure) => return self.report_failure(&failure, &send),
            };
            continue_if_sent(sent)
        })
        .await
    }

    /// Returns the event of a list, in which the objects of some namespaces are left out.
    fn listed(&self, mut all: Vec<(ObjectKey, Fact)>, left_out: BTreeMap<String, TooLarge>) -> ClusterEvent {
        let kind = self.kind;
        if left_out.is_empty() {
            return ClusterEvent::Listed(kind, self.namespace.map(String::from), all);
        }
        all.retain(|(key, _)| !left_out.contains_key(&key.namespace));
        let reason = |(namespace, limit): (String, TooLarge)| {
            let why = self.why_left_out(&namespace, limit);
            (namespace, why)
        };
        ClusterEvent::PartlyListed(kind, all, left_out.into_iter().map(reason).collect())
    }

    /// Logs and returns why the objects of a namespace are left out, and what to do.
    fn why_left_out(&self, namespace: &str, limit: TooLarge) -> String {
        let cluster = &self.session.key;
        let why = read_error::kind_message(cluster, self.kind, Some(namespace), &ReadError::TooLarge(limit));
        tracing::warn!(%cluster, namespace, error = %why, "the objects of a namespace are left out");
        why
    }

    /// Reports a failure, unless the watch will soon recover from it. Breaks if the watch must end.
    fn report_failure(&self, failure: &WatchFailure, send: &impl SendEvent) -> ControlFlow<ScopeEnd> {
        let (kind, namespace, cluster) = (self.kind, self.namespace.map(String::from), &self.session.key);
        let error = ReadError::from(failure.error());
        let why = read_error::kind_message(cluster, kind, self.namespace, &error);
        match error {
            ReadError::NotFound => ControlFlow::Break(ScopeEnd::NotServed),
            ReadError::TooLarge(_) => {
                tracing::warn!(%cluster, error = %why, "the objects of a kind are dropped");
                continue_if_sent(send(ClusterEvent::TooLarge(kind, namespace, why)))
            }
            ReadError::Forbidden(_) => {
                let by_namespace = namespace.is_none() && kind != Kind::Namespace;
                let sent = send(match by_namespace {
                    true => ClusterEvent::ByNamespace(kind),
                    false => ClusterEvent::Unreadable(kind, namespace, why),
                });
                ControlFlow::Break(if sent { ScopeEnd::Forbidden } else { ScopeEnd::LoopEnded })
            }
            // The watch starts again, and the probe finds out whether the cluster is lost.
            _ if matches!(failure, WatchFailure::Watch(_)) => ControlFlow::Continue(()),
            _ => {
                if error == ReadError::HeldBack {
                    tracing::warn!(%cluster, error = %why, "a cluster is listed less often");
                }
                continue_if_sent(send(ClusterEvent::Unreadable(kind, namespace, why)))
            }
        }
    }
}

/// Returns the pause before the next try for a kind that the cluster does not have or that the user may not read.
fn absent_retry_after(kind: Kind) -> Duration {
    if kind.is_shown_only() { SHOWN_ABSENT_RETRY_AFTER } else { ABSENT_RETRY_AFTER }
}

/// Continues if an event was sent, and breaks if the controller's loop has ended.
fn continue_if_sent(sent: bool) -> ControlFlow<ScopeEnd> {
    match sent {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(ScopeEnd::LoopEnded),
    }
}

/// Returns the key of a deleted object, or `None` if its name is not valid. An object with an invalid name was never
/// reported, and its name can have any length.
fn deleted_key(kind: Kind, metadata: ObjectMeta) -> Option<ObjectKey> {
    let (namespace, name) = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
    Some(ObjectKey { kind, namespace, name }).filter(metadata::is_valid_name)
}
