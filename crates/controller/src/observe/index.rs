//! The observed state of all clusters: what watch events have added up to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use super::facts::{ClusterEvent, ClusterKey, Fact, FluxFact, Kind, ObjectKey};

/// How many Flux objects may be nested in each other: a Kustomization that made a HelmRelease is two.
pub const NESTING: usize = 8;

/// All clusters.
#[derive(Debug, Default)]
pub struct Index {
    clusters: HashMap<ClusterKey, Cluster>,
}

/// Whether a cluster can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// Being asked for everything; nothing is known yet.
    Connecting,
    /// Known, and kept up to date.
    Up,
    /// Why not, and what to do.
    Lost(String),
}

/// Whether the objects of a kind are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindState {
    /// They are.
    Listed,
    /// The cluster has no such kind.
    Absent,
    /// Some may be, by namespace.
    Narrowed,
    /// Why not, and what to do.
    Unreadable(String),
}

/// The observed state of one cluster.
#[derive(Debug)]
pub struct Cluster {
    link: ClusterState,
    readings: BTreeMap<(Kind, Option<String>), KindState>,
    objects: BTreeMap<ObjectKey, Fact>,
    made: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// By namespace and name of a GitRepository: the Flux objects that refer to it.
    referring: HashMap<(String, String), BTreeSet<ObjectKey>>,
    /// The namespaces in which targets are, once that is known. Of others nothing counts that was read by
    /// namespace.
    namespaces: Option<BTreeSet<String>>,
}

/// Which targets an event may have changed.
#[derive(Debug, PartialEq, Eq)]
pub enum AffectedTargets {
    /// None.
    Nothing,
    /// Those in these namespaces of the cluster.
    Namespaces(BTreeSet<String>),
    /// Every target on the cluster.
    Everything,
}

impl Index {
    /// Takes in what happened on a cluster.
    pub fn apply(&mut self, cluster: &ClusterKey, event: ClusterEvent) -> AffectedTargets {
        self.clusters.entry(cluster.clone()).or_insert_with(Cluster::new).apply(event)
    }

    /// Sets the namespaces of a cluster in which targets are. What was read by namespace of any other is
    /// forgotten: nobody reads it any more, and it would be out of date if it were wanted again.
    pub fn narrow(&mut self, cluster: &ClusterKey, namespaces: BTreeSet<String>) {
        self.clusters.entry(cluster.clone()).or_insert_with(Cluster::new).narrow(namespaces);
    }

    /// Forgets a cluster that nobody refers to any more.
    pub fn forget(&mut self, cluster: &ClusterKey) {
        self.clusters.remove(cluster);
    }

    /// The state of a cluster, once something is known of it.
    pub fn cluster(&self, key: &ClusterKey) -> Option<&Cluster> {
        self.clusters.get(key)
    }

    /// How many clusters are up, and how many there are.
    pub fn clusters_up(&self) -> (usize, usize) {
        (self.clusters.values().filter(|c| c.link == ClusterState::Up).count(), self.clusters.len())
    }
}

impl Cluster {
    fn new() -> Self {
        Self {
            link: ClusterState::Connecting,
            readings: BTreeMap::new(),
            objects: BTreeMap::new(),
            made: HashMap::new(),
            referring: HashMap::new(),
            namespaces: None,
        }
    }

    /// Whether it can be used.
    pub fn state(&self) -> &ClusterState {
        &self.link
    }

    /// Whether the objects of a kind in a namespace are known; `None` before that is clear. Where
    /// the whole cluster may not be read, what was learned of the namespace counts.
    pub fn kind_state(&self, kind: Kind, namespace: &str) -> Option<&KindState> {
        match self.readings.get(&(kind, None)) {
            Some(KindState::Narrowed) => self.readings.get(&(kind, Some(namespace.into()))),
            known => known,
        }
    }

    /// An object.
    pub fn object(&self, key: &ObjectKey) -> Option<&Fact> {
        self.objects.get(key)
    }

    /// The objects of a kind in a namespace, by name.
    pub fn objects_in(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = (&ObjectKey, &Fact)> {
        let from = ObjectKey { kind, namespace: namespace.into(), name: String::new() };
        let namespace = namespace.to_string();
        self.objects.range(from..).take_while(move |(k, _)| k.kind == kind && k.namespace == namespace)
    }

    /// The objects that a Kustomization or HelmRelease owns, by kind and name.
    pub fn owned_by(&self, owner: &ObjectKey, flux: &FluxFact) -> impl Iterator<Item = (&ObjectKey, &Fact)> {
        let labelled = self.made.get(owner).into_iter().flatten();
        labelled.filter_map(|k| self.objects.get_key_value(k)).filter(move |(k, fact)| flux.owns(k, fact))
    }

    fn narrow(&mut self, namespaces: BTreeSet<String>) {
        let dropped: Vec<(Kind, String)> = self
            .readings
            .keys()
            .filter_map(|(kind, scope)| Some((*kind, scope.clone().filter(|s| !namespaces.contains(s))?)))
            .collect();
        for (kind, scope) in dropped {
            self.replace(kind, Some(&scope), Vec::new());
            self.readings.remove(&(kind, Some(scope)));
        }
        self.namespaces = Some(namespaces);
    }

    /// Whether an event is about a namespace that is read by itself and has no targets any more.
    fn is_out_of_scope(&self, event: &ClusterEvent) -> bool {
        let dropped = |namespace: &String| self.namespaces.as_ref().is_some_and(|n| !n.contains(namespace));
        match event {
            ClusterEvent::Listed(_, Some(scope), _)
            | ClusterEvent::Unreadable(_, Some(scope), _)
            | ClusterEvent::TooLarge(_, Some(scope), _) => dropped(scope),
            ClusterEvent::Applied(key, _) => {
                self.readings.get(&(key.kind, None)) == Some(&KindState::Narrowed) && dropped(&key.namespace)
            }
            _ => false,
        }
    }

    /// Forgets all objects: those of a cluster that is lost say nothing, and take room.
    fn clear(&mut self) {
        self.objects.clear();
        self.made.clear();
        self.referring.clear();
    }

    /// While nothing can be told of the cluster yet, nothing has changed for its targets either.
    fn apply(&mut self, event: ClusterEvent) -> AffectedTargets {
        if self.is_out_of_scope(&event) {
            return AffectedTargets::None;
        }
        let touched = match event {
            ClusterEvent::Connected => {
                self.link = ClusterState::Connecting;
                self.readings.clear();
                self.clear();
                AffectedTargets::None
            }
            ClusterEvent::Lost(why) => {
                let changed = self.link != ClusterState::Lost(why.clone());
                self.link = ClusterState::Lost(why);
                self.clear();
                return if changed { AffectedTargets::All } else { AffectedTargets::None };
            }
            ClusterEvent::Listed(kind, scope, facts) => self.listed(kind, scope, facts),
            ClusterEvent::Unreadable(kind, scope, why) => self.read(kind, scope, KindState::Unreadable(why)),
            ClusterEvent::TooLarge(kind, scope, why) => {
                self.replace(kind, scope.as_deref(), Vec::new());
                self.read(kind, scope, KindState::Unreadable(why))
            }
            ClusterEvent::Narrowed(kind) => self.read(kind, None, KindState::Narrowed),
            ClusterEvent::Absent(kind) => {
                self.replace(kind, None, Vec::new());
                self.read(kind, None, KindState::Absent)
            }
            ClusterEvent::Applied(key, fact) => self.put(key, fact),
            ClusterEvent::Deleted(key) => self.take(&key),
        };
        if self.link == ClusterState::Up { touched } else { AffectedTargets::None }
    }

    fn read(&mut self, kind: Kind, scope: Option<String>, reading: KindState) -> AffectedTargets {
        let before = self.readings.insert((kind, scope), reading.clone());
        let was_up = self.link == ClusterState::Up;
        if self.link == ClusterState::Connecting
            && Kind::ALL.iter().all(|k| self.readings.contains_key(&(*k, None)))
        {
            self.link = ClusterState::Up;
        }
        if was_up && before == Some(reading) { AffectedTargets::None } else { AffectedTargets::All }
    }

    fn listed(
        &mut self,
        kind: Kind,
        scope: Option<String>,
        facts: Vec<(ObjectKey, Fact)>,
    ) -> AffectedTargets {
        let touched = self.replace(kind, scope.as_deref(), facts);
        match self.read(kind, scope, KindState::Listed) {
            AffectedTargets::All => AffectedTargets::All,
            _ if touched.is_empty() => AffectedTargets::None,
            _ => AffectedTargets::InNamespaces(touched),
        }
    }

    /// Makes these the objects of a kind (in one namespace, or in all), and returns the namespaces of
    /// the targets that this concerns.
    fn replace(
        &mut self,
        kind: Kind,
        scope: Option<&str>,
        facts: Vec<(ObjectKey, Fact)>,
    ) -> BTreeSet<String> {
        let there: BTreeSet<&ObjectKey> = facts.iter().map(|(key, _)| key).collect();
        let in_scope = |key: &ObjectKey| key.kind == kind && scope.is_none_or(|s| *s == key.namespace);
        let gone: Vec<ObjectKey> =
            self.objects.keys().filter(|k| in_scope(k) && !there.contains(k)).cloned().collect();
        let mut touched = BTreeSet::new();
        let mut note = |t: AffectedTargets| {
            if let AffectedTargets::InNamespaces(namespaces) = t {
                touched.extend(namespaces);
            }
        };
        for key in gone {
            note(self.take(&key));
        }
        for (key, fact) in facts {
            note(self.put(key, fact));
        }
        touched
    }

    fn put(&mut self, key: ObjectKey, fact: Fact) -> AffectedTargets {
        let before = self.objects.get(&key);
        let fact = match fact {
            Fact::Flux(flux) => Fact::Flux(Box::new(flux.after(before))),
            other => other,
        };
        if before == Some(&fact) {
            return AffectedTargets::None;
        }
        let mut touched = self.concerns(&key);
        let owner = fact.owner().cloned();
        let source = source_of(&fact).cloned();
        let replaced = self.objects.insert(key.clone(), fact);
        if let Some(former) = replaced.as_ref() {
            self.disconnect(former, &key);
        }
        if let Some(source) = source {
            self.referring.entry(source).or_default().insert(key.clone());
        }
        if let Some(owner) = owner {
            self.made.entry(owner).or_default().insert(key.clone());
        }
        touched.extend(self.concerns(&key));
        AffectedTargets::InNamespaces(touched)
    }

    fn take(&mut self, key: &ObjectKey) -> AffectedTargets {
        if !self.objects.contains_key(key) {
            return AffectedTargets::None;
        }
        let touched = self.concerns(key);
        let gone = self.objects.remove(key);
        if let Some(gone) = gone.as_ref() {
            self.disconnect(gone, key);
        }
        AffectedTargets::InNamespaces(touched)
    }

    /// Removes an object from what its owner made and from what refers to its source.
    fn disconnect(&mut self, former: &Fact, key: &ObjectKey) {
        if let Some(owner) = former.owner() {
            remove(&mut self.made, owner, key);
        }
        if let Some(source) = source_of(former) {
            remove(&mut self.referring, source, key);
        }
    }

    /// The namespaces whose targets an object belongs to, as things stand: its own if it is a Flux
    /// object, and those of all that it was made by.
    fn concerns(&self, key: &ObjectKey) -> BTreeSet<String> {
        let mut namespaces = BTreeSet::new();
        match key.kind {
            Kind::Namespace => {
                namespaces.insert(key.name.clone());
            }
            Kind::GitRepository => {
                // Any Flux object may refer to it, from its own namespace or another.
                let of = (key.namespace.clone(), key.name.clone());
                let referring = self.referring.get(&of).into_iter().flatten();
                namespaces.extend(referring.map(|k| k.namespace.clone()));
            }
            Kind::Kustomization | Kind::HelmRelease => {
                namespaces.insert(key.namespace.clone());
                self.makers(key, &mut namespaces);
            }
            Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::CronJob => {
                self.makers(key, &mut namespaces);
            }
        }
        namespaces
    }

    /// The namespaces of the owners of an object, of their owners, and so on. Owners may form a ring.
    fn makers(&self, key: &ObjectKey, namespaces: &mut BTreeSet<String>) {
        let mut at = key;
        for _ in 0..NESTING {
            let Some(fact) = self.objects.get(at) else { return };
            let Some(owner) = fact.owner() else { return };
            let Some(Fact::Flux(flux)) = self.objects.get(owner) else { return };
            if !flux.owns(at, fact) {
                return;
            }
            namespaces.insert(owner.namespace.clone());
            at = owner;
        }
    }
}

/// Namespace and name of the GitRepository that a Flux object refers to.
fn source_of(fact: &Fact) -> Option<&(String, String)> {
    match fact {
        Fact::Flux(flux) => flux.git_source.as_ref(),
        _ => None,
    }
}

/// Removes an object from a set, and the set where nothing is left in it.
fn remove<K: Eq + Hash>(sets: &mut HashMap<K, BTreeSet<ObjectKey>>, of: &K, key: &ObjectKey) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(key);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}
