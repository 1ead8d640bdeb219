//! What a person may choose in the form for a Pipeline: of all that is observed, only what this person may see.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::access::{AccessError, Caller};
use sluice_core::fleet::{ClusterKey, Fact, Kind, ObjectKey};
use sluice_core::observed::Health;
use sluice_view::draft::Draft;

use crate::find::visible_pipelines;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::rights::Namespaces;
use crate::state::Api;
use crate::visible_fleet::Visible;

/// The kinds of applications.
pub(crate) const APP_KINDS: [Kind; 2] = [Kind::HelmRelease, Kind::Kustomization];
/// The most names of a list. Typing narrows it.
const MAX_NAMES: usize = 200;

/// A place in which the application runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The cluster.
    pub key: ClusterKey,
    /// The cluster, as people enter it in the form; empty for the hub.
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The version that runs.
    pub version: String,
    /// Its health.
    pub health: Health,
}

/// What a person may choose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    /// The namespaces in which the person may create Pipelines, of those that the person sees.
    pub homes: Vec<String>,
    /// The clusters, as people enter them, without the hub.
    pub clusters: Vec<String>,
    /// The same clusters with the hub.
    pub keys: BTreeSet<ClusterKey>,
    /// The names of applications of the chosen kind that contain what was typed.
    pub apps: Vec<String>,
    /// The places in which the chosen application runs.
    pub places: Vec<Place>,
    /// For each cluster of the draft, the namespaces with applications.
    pub namespaces: BTreeMap<ClusterKey, Vec<String>>,
}

impl Choices {
    /// Returns what a person may choose for a draft.
    pub(crate) async fn of<H: Hub>(
        api: &Api<H>,
        caller: &Caller,
        draft: &Draft,
    ) -> Result<Choices, AccessError> {
        let visible = Visible::to(&api.hub, caller, &api.fleet, &APP_KINDS).await?;
        let keys: Vec<ClusterKey> =
            std::iter::once(ClusterKey::Local).chain(visible.clusters.iter().cloned()).collect();
        let mut found = Found::of(draft);
        for key in keys.iter().filter(|key| visible.shows_some_of(key)) {
            api.fleet.read(key, |cluster| {
                let name = entered(key, &draft.namespace);
                for kind in APP_KINDS {
                    let objects = cluster.objects_of(kind);
                    let shown = objects.filter(|(object, _)| visible.shows(key, kind, &object.namespace));
                    shown.for_each(|(object, fact)| found.add((key, &name), object, fact));
                }
            });
        }
        let clusters = keys.iter().skip(1).map(|key| entered(key, &draft.namespace)).collect();
        Ok(Choices { clusters, keys: keys.into_iter().collect(), ..found.choices() })
    }

    /// Returns what a person may choose for the draft of a new Pipeline.
    pub(crate) async fn of_new<H: Hub>(
        api: &Api<H>,
        caller: &Caller,
        draft: &Draft,
    ) -> Result<Choices, Problem> {
        let board = api.boards.current(&api.hub).await;
        let visible = visible_pipelines(api, caller, &board).await?;
        let known: BTreeSet<String> = visible.iter().map(|shown| shown.screen.namespace.clone()).collect();
        let allowed = Namespaces::to_create_in(&api.hub, caller, known.clone()).await?;
        let homes = known.into_iter().filter(|home| allowed.contains(home)).take(MAX_NAMES).collect();
        Ok(Choices { homes, ..Choices::of(api, caller, draft).await? })
    }

    /// Returns the place of a target; `None` if the application was not found there.
    pub(crate) fn place(&self, cluster: &ClusterKey, namespace: &str) -> Option<&Place> {
        self.places.iter().find(|place| place.key == *cluster && place.namespace == namespace)
    }
}

/// Returns a cluster as people enter it for a Pipeline in the namespace `home`.
fn entered(key: &ClusterKey, home: &str) -> String {
    match key {
        ClusterKey::Local => String::new(),
        ClusterKey::Remote { namespace, name } if namespace == home => name.clone(),
        ClusterKey::Remote { namespace, name } => format!("{namespace}/{name}"),
    }
}

/// What was found for a draft.
struct Found<'a> {
    draft: &'a Draft,
    /// The clusters of its targets.
    chosen: BTreeSet<ClusterKey>,
    apps: BTreeSet<String>,
    places: BTreeSet<Place>,
    namespaces: BTreeMap<ClusterKey, BTreeSet<String>>,
}

impl<'a> Found<'a> {
    fn of(draft: &'a Draft) -> Found<'a> {
        let targets = draft.environments.iter().flat_map(|environment| &environment.targets);
        Found {
            draft,
            chosen: targets.map(|target| target.cluster_key(&draft.namespace)).collect(),
            apps: BTreeSet::new(),
            places: BTreeSet::new(),
            namespaces: BTreeMap::new(),
        }
    }

    fn add(&mut self, (key, cluster): (&ClusterKey, &str), object: &ObjectKey, fact: &Fact) {
        if self.chosen.contains(key) {
            self.namespaces.entry(key.clone()).or_default().insert(object.namespace.clone());
        }
        let Fact::Flux(flux) = fact else { return };
        if object.kind.name() != self.draft.app_kind {
            return;
        }
        if self.apps.len() < MAX_NAMES && object.name.contains(&self.draft.app_name) {
            self.apps.insert(object.name.clone());
        }
        if object.name == self.draft.app_name {
            self.places.insert(Place {
                key: key.clone(),
                cluster: cluster.into(),
                namespace: object.namespace.clone(),
                version: flux.version.clone(),
                health: flux.status.health,
            });
        }
    }

    fn choices(self) -> Choices {
        let names = |namespaces: BTreeSet<String>| namespaces.into_iter().take(MAX_NAMES).collect();
        Choices {
            apps: self.apps.into_iter().collect(),
            places: self.places.into_iter().collect(),
            namespaces: self.namespaces.into_iter().map(|(cluster, all)| (cluster, names(all))).collect(),
            ..Choices::default()
        }
    }
}
