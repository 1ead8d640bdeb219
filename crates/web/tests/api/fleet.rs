//! A hub with a shop, three clusters of which one is lost, and callers with different rights.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use sluice_api::snapshot::Snapshot;
use sluice_api::{Pipeline, Promotion};
use sluice_core::Facet;
use sluice_core::access::{AccessError, Caller, Right};
use sluice_core::fleet::fact::{HealthStatus, Owned, SourceFact};
use sluice_core::fleet::index::Index;
use sluice_core::fleet::owned_check::SpecVersion;
use sluice_core::fleet::{ClusterEvent, ClusterKey, Fact, FluxFact, Kind, ObjectKey, WorkloadFact};
use sluice_core::observed::Health;
use sluice_core::planned_change::PlannedChange;
use sluice_core::proposed_file::ProposedFile;
use sluice_core::repository::Repository;
use sluice_core::tracks::DefaultFacet;
use sluice_view::check::Installation;
use sluice_view::events::EventLine;
use sluice_view::reconcile::{ReconcilePlan, RequestedObject};
use sluice_web::{Change, ChangeError, FileProposal, Hub, ObjectName, WantedEvents};

/// Who may read what. Each token is the name of its user.
#[derive(Clone, Default)]
pub struct Rights(Arc<AtomicUsize>);

impl Rights {
    /// How many questions about rights were asked.
    pub fn questions(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Hub for Rights {
    async fn identify(&self, token: &str) -> Result<Caller, AccessError> {
        match token {
            "admin" | "eu-team" | "us-team" | "shop-team" | "nobody" => {
                Ok(Caller { name: token.into(), ..Caller::default() })
            }
            "down" => Err(AccessError::Unavailable("no answer".into())),
            _ => Err(AccessError::NotAccepted),
        }
    }

    async fn allows(&self, caller: &Caller, right: &Right) -> Result<bool, AccessError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let (namespace, name) = (right.namespace.as_deref(), right.name.as_deref());
        Ok(match caller.name.as_str() {
            "admin" => true,
            "eu-team" => {
                (right.resource.as_str(), namespace, name) == ("gitopsclusters", Some("fleet"), Some("eu"))
            }
            "us-team" => {
                (right.resource.as_str(), namespace, name) == ("gitopsclusters", Some("fleet"), Some("us"))
            }
            "shop-team" => right.resource != "gitopsclusters" && namespace == Some("shop"),
            _ => false,
        })
    }

    async fn planned_change(
        &self,
        _: &Caller,
        _: &Pipeline,
        _: &Promotion,
    ) -> Result<Option<Arc<PlannedChange>>, String> {
        Ok(None)
    }

    async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        None
    }

    fn version(&self) -> u64 {
        0
    }

    async fn changed_since(&self, _: u64) {}

    async fn change(&self, _: &str, _: Change) -> Result<(), ChangeError> {
        Ok(())
    }

    async fn application(&self, _: &str, _: Kind, _: &ObjectName) -> Result<Value, ChangeError> {
        Ok(Value::Null)
    }

    async fn events(&self, token: &str, _: WantedEvents) -> Result<Vec<EventLine>, ChangeError> {
        match token {
            "admin" => Ok(Vec::new()),
            _ => Err(ChangeError::Refused("events is forbidden".into())),
        }
    }

    async fn installation<'a>(
        &self,
        _: &Caller,
        _: &str,
        _: Option<&'a str>,
        _: &'a [Pipeline],
    ) -> Result<Installation<'a>, ChangeError> {
        Err(ChangeError::Unavailable("this hub is not read".into()))
    }

    async fn reconcile(
        &self,
        _: &str,
        _: &str,
        _: ReconcilePlan,
    ) -> Result<Vec<RequestedObject>, ChangeError> {
        Ok(Vec::new())
    }

    async fn propose(&self, _: &Caller, _: &str, _: FileProposal) -> Result<ProposedFile, ChangeError> {
        Ok(ProposedFile::AlreadyThere)
    }
}

pub fn key(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: namespace.into(), name: name.into() }
}

fn ready() -> HealthStatus {
    HealthStatus { health: Health::Ready, ..HealthStatus::default() }
}

/// A HelmRelease with its Deployment and its source.
pub fn release(namespace: &str, name: &str, version: &str) -> Vec<(ObjectKey, Fact)> {
    let (helm, web) = (key(Kind::HelmRelease, namespace, name), key(Kind::Deployment, namespace, name));
    let charts = key(Kind::HelmRepository, "flux-system", "charts");
    let flux = FluxFact {
        spec_version: SpecVersion::default(),
        pipelines: vec![],
        owner: None,
        attempt: None,
        is_reconciling: false,
        status: ready(),
        version: version.into(),
        facets: BTreeMap::from([(Facet::Chart, version.into())]),
        default_facet: DefaultFacet::Chart,
        source: Some(charts.clone()),
        chart: None,
        content: name.into(),
        desired_chart: Some("6.x".into()),
        origin_revision: None,
        owned: Owned::Inventory([web.clone()].into_iter().collect()),
        release: None,
        invalid: vec![],
        gave_up: BTreeMap::new(),
        covers_owned: true,
        on_another_cluster: false,
        owned_check: None,
    };
    let images =
        ["ghcr.io/proxy:2", "ghcr.io/proxy:1", "a\u{1}b\u{0}\"c:1", "a\u{1}b:1", "a:1"].map(String::from);
    let images = [vec![format!("ghcr.io/{name}:{version}")], images.to_vec()].concat();
    let workload = WorkloadFact {
        spec_version: SpecVersion::default(),
        owner: Some(helm.clone()),
        release: None,
        status: ready(),
        images,
    };
    let repository = Repository { url: "https://charts.example.com".into(), branch: String::new() };
    let source = SourceFact { repository, status: ready(), ..SourceFact::default() };
    vec![
        (helm, Fact::Flux(Box::new(flux))),
        (web, Fact::Workload(workload)),
        (charts, Fact::Source(Box::new(source))),
    ]
}

pub fn observe(index: &mut Index, cluster: &ClusterKey, objects: &[(ObjectKey, Fact)]) {
    index.apply(cluster, ClusterEvent::Connected);
    for kind in Kind::DECIDING.into_iter().chain(Kind::SHOWN) {
        let of_kind = objects.iter().filter(|(key, _)| key.kind == kind).cloned().collect();
        index.apply(cluster, ClusterEvent::Listed(kind, None, of_kind));
    }
}

/// Why CronJobs on the cluster `eu` cannot be read.
pub const FORBIDDEN: &str = "the cluster forbids listing cronjobs: apply deploy/reader there";

pub fn remote(name: &str) -> ClusterKey {
    ClusterKey::Remote { namespace: "fleet".into(), name: name.into() }
}

/// A cluster creates Deployments until namespace `evil` has this many, and namespace `tenant` one StatefulSet.
pub fn flood(index: &mut Index, cluster: &str, count: usize) {
    let workload = |kind: Kind, namespace: &str, number: usize| {
        let images = vec![format!("{namespace}:{number}")];
        let fact = WorkloadFact {
            spec_version: SpecVersion::default(),
            owner: None,
            release: None,
            status: ready(),
            images,
        };
        (key(kind, namespace, &format!("d{number}")), Fact::Workload(fact))
    };
    let objects = (0..count).map(|number| workload(Kind::Deployment, "evil", number)).collect();
    index.apply(&remote(cluster), ClusterEvent::Listed(Kind::Deployment, None, objects));
    let objects = vec![workload(Kind::StatefulSet, "tenant", 1)];
    index.apply(&remote(cluster), ClusterEvent::Listed(Kind::StatefulSet, None, objects));
}

pub fn index() -> Index {
    let mut index = Index::default();
    observe(&mut index, &ClusterKey::Local, &release("shop", "shop", "1.0.0"));
    for (cluster, version) in [("asia-pacific", "6.7.1"), ("eu", "6.7.1"), ("us", "6.6.0")] {
        observe(&mut index, &remote(cluster), &release("apps", "podinfo", version));
    }
    let forbidden = ClusterEvent::Unreadable(Kind::CronJob, None, FORBIDDEN.into());
    index.apply(&remote("eu"), forbidden);
    index.apply(&remote("asia"), ClusterEvent::Lost("it refuses the connection: start it".into()));
    index
}
