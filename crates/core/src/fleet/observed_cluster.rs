//! The observed state of one cluster, built from watch events.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cluster_event::ClusterEvent;
use super::fact::{Fact, FluxFact, Owned};
use super::object_key::ObjectKey;
use super::owned_check::{FoundObject, OwnedAnswer, OwnedCheck};
use super::owned_read::OwnedRead;
use super::release_parts::ReleaseParts;
use super::watched_kind::Kind;

/// The longest chain of Flux objects in which each one owns the next. A Kustomization that owns a HelmRelease is a
/// chain of two.
pub const MAX_NESTING: usize = 8;

/// The state of the connection to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterState {
    /// The lists of some kinds are still missing.
    #[default]
    Connecting,
    /// The lists of all kinds were read, and watches keep them up to date.
    Up,
    /// The cluster cannot be used; the text says why and what to do.
    Lost(String),
}

/// Whether the objects of a kind are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindState {
    /// All objects are known.
    Listed,
    /// The cluster does not serve the kind.
    Absent,
    /// Each namespace has a state of its own.
    ByNamespace,
    /// The objects cannot be read; the text says why and what to do.
    Unreadable(String),
}

/// The observed state of one cluster.
#[derive(Debug, Default)]
pub struct ObservedCluster {
    state: ClusterState,
    pub(super) kind_states: BTreeMap<(Kind, Option<String>), KindState>,
    objects: BTreeMap<ObjectKey, Fact>,
    /// By GitRepository, how many Flux objects of each namespace refer to it.
    referring: HashMap<ObjectKey, BTreeMap<String, usize>>,
    release_parts: ReleaseParts,
    /// The namespaces with targets; `None` before they are known. If a kind is read by namespace, other namespaces
    /// are ignored.
    target_namespaces: Option<BTreeSet<String>>,
    /// The number of the last check of what a Flux object owns.
    last_check: u64,
    /// The Flux objects that need a read of what they own.
    to_read: BTreeSet<ObjectKey>,
    /// The number of the last check that was made when the first lists were complete.
    last_first_check: u64,
}

/// Where a report about an object comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    /// The first list of its kind after the connection.
    FirstList,
    /// A later list, or an event of a watch.
    Later,
}

/// The targets that an event may have changed.
#[derive(Debug, PartialEq, Eq)]
pub enum AffectedTargets {
    /// No target.
    None,
    /// The targets in these namespaces of the cluster.
    InNamespaces(BTreeSet<String>),
    /// Every target on the cluster.
    All,
}

impl ObservedCluster {
    /// Returns the state of the connection.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Returns whether the objects of a kind in a namespace are known; `None` while the first answer is missing.
    /// If the kind is read by namespace, this is the state of that namespace.
    pub fn kind_state(&self, kind: Kind, namespace: &str) -> Option<&KindState> {
        match self.kind_states.get(&(kind, None)) {
            Some(KindState::ByNamespace) => self.kind_states.get(&(kind, Some(namespace.into()))),
            // The objects of one namespace may be left out.
            state => self.kind_states.get(&(kind, Some(namespace.into()))).or(state),
        }
    }

    /// Whether a kind is read only in the namespaces with targets.
    pub fn is_by_namespace(&self, kind: Kind) -> bool {
        self.kind_states.get(&(kind, None)) == Some(&KindState::ByNamespace)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the facts of an object.
    pub fn object(&self, key: &ObjectKey) -> Option<&Fact> {
        self.objects.get(key)
    }

    /// Returns the objects of a kind in all namespaces, ordered by namespace and name.
    pub fn objects_of(&self, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &Fact)> {
        let from = ObjectKey { kind, namespace: String::new(), name: String::new() };
        self.objects.range(from..).take_while(move |(key, _)| key.kind == kind)
    }

    /// Returns the objects of a kind, ordered by namespace and name: those after the object `after`, or all.
    pub fn objects_after<'a>(
        &'a self,
        kind: Kind,
        after: Option<&'a ObjectKey>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Fact)> {
        let from = ObjectKey { kind, namespace: String::new(), name: String::new() };
        let from = after.cloned().unwrap_or(from);
        let objects = self.objects.range(from..).take_while(move |(key, _)| key.kind == kind);
        objects.filter(move |(key, _)| Some(*key) != after)
    }

    /// Returns the Kustomization or HelmRelease that made an object; `None` if there is none, or if only the object's
    /// labels say so.
    pub fn owner_of(&self, key: &ObjectKey) -> Option<(&ObjectKey, &FluxFact)> {
        let fact = self.objects.get(key)?;
        match self.objects.get_key_value(fact.owner()?)? {
            (owner, Fact::Flux(flux)) if flux.owns(key, fact) => Some((owner, flux)),
            _ => None,
        }
    }

    /// Returns the owner of an object, the owner's owner, and so on: at most [`MAX_NESTING`], because owners may form a circle.
    pub fn owners_of<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a FluxFact)> {
        std::iter::successors(self.owner_of(key), |(owner, _)| self.owner_of(owner)).take(MAX_NESTING)
    }

    /// Returns the objects of a kind in a namespace, ordered by name.
    pub fn objects_in(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Iterator<Item = (&ObjectKey, &Fact)> + use<'_> {
        let from = ObjectKey { kind, namespace: namespace.into(), name: String::new() };
        let namespace = namespace.to_string();
        self.objects.range(from..).take_while(move |(k, _)| k.kind == kind && k.namespace == namespace)
    }

    /// Returns the objects that a Kustomization or HelmRelease owns, ordered by kind, namespace and name.
    pub fn owned_by<'a>(
        &'a self,
        owner: &'a ObjectKey,
        flux: &'a FluxFact,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Fact)> {
        let objects = self.may_own(&flux.owned).filter_map(|key| self.objects.get_key_value(&*key));
        objects.filter(move |(key, fact)| fact.owner() == Some(owner) && flux.owns(key, fact))
    }

    /// Returns the objects that a Kustomization or HelmRelease owns if their labels name it as owner. It looks at no
    /// others, because each user of a namespace may fill it with objects.
    pub(super) fn may_own<'a>(
        &'a self,
        owned: &'a Owned,
    ) -> Box<dyn Iterator<Item = Cow<'a, ObjectKey>> + 'a> {
        match owned {
            Owned::Inventory(entries) => Box::new(entries.iter().map(Cow::Borrowed)),
            Owned::Release(release) => Box::new(self.release_parts.of(release).map(Cow::Owned)),
        }
    }

    pub(super) fn set_target_namespaces(&mut self, namespaces: BTreeSet<String>) {
        let dropped: Vec<(Kind, String)> = self
            .kind_states
            .keys()
            .filter(|(kind, _)| self.is_by_namespace(*kind))
            .filter_map(|(kind, scope)| Some((*kind, scope.clone().filter(|s| !namespaces.contains(s))?)))
            .collect();
        for (kind, scope) in dropped {
            self.replace(kind, Some(&scope), Vec::new());
            self.kind_states.remove(&(kind, Some(scope)));
        }
        self.target_namespaces = Some(namespaces);
    }

    /// Whether an event is about a namespace without targets, of a kind that is read by namespace.
    fn is_out_of_scope(&self, event: &ClusterEvent) -> bool {
        let has_no_targets =
            |namespace: &String| self.target_namespaces.as_ref().is_some_and(|n| !n.contains(namespace));
        match event {
            ClusterEvent::Listed(_, Some(scope), _) | ClusterEvent::Unreadable(_, Some(scope), _) => {
                has_no_targets(scope)
            }
            // A watch of the whole cluster may leave out any namespace.
            ClusterEvent::TooLarge(kind, Some(scope), _) => {
                self.is_by_namespace(*kind) && has_no_targets(scope)
            }
            ClusterEvent::Applied(key, _) => {
                self.kind_states.get(&(key.kind, None)) == Some(&KindState::ByNamespace)
                    && has_no_targets(&key.namespace)
            }
            _ => false,
        }
    }

    /// Removes all objects. The objects of a lost cluster are outdated, and would only take memory.
    fn clear(&mut self) {
        self.objects.clear();
        self.to_read.clear();
        self.referring.clear();
        self.release_parts.clear();
    }

    /// Applies an event. While the cluster is connecting, its targets have no state, so no event changes them.
    pub(super) fn apply(&mut self, event: ClusterEvent) -> AffectedTargets {
        if self.is_out_of_scope(&event) {
            return AffectedTargets::None;
        }
        let affected = match event {
            ClusterEvent::Connected => {
                self.state = ClusterState::Connecting;
                self.kind_states.clear();
                self.clear();
                AffectedTargets::None
            }
            ClusterEvent::Lost(why) => {
                let changed = self.state != ClusterState::Lost(why.clone());
                self.state = ClusterState::Lost(why);
                self.clear();
                return if changed { AffectedTargets::All } else { AffectedTargets::None };
            }
            ClusterEvent::Listed(kind, scope, facts) => self.apply_list(kind, scope, facts),
            ClusterEvent::PartlyListed(kind, facts, left_out) => {
                self.apply_list(kind, None, facts);
                let unreadable = |(namespace, why)| ((kind, Some(namespace)), KindState::Unreadable(why));
                self.kind_states.extend(left_out.into_iter().map(unreadable));
                AffectedTargets::All
            }
            ClusterEvent::Unreadable(kind, scope, why) => {
                self.set_kind_state(kind, scope, KindState::Unreadable(why))
            }
            ClusterEvent::TooLarge(kind, scope, why) => {
                self.replace(kind, scope.as_deref(), Vec::new());
                self.set_kind_state(kind, scope, KindState::Unreadable(why))
            }
            ClusterEvent::ByNamespace(kind) => self.set_kind_state(kind, None, KindState::ByNamespace),
            ClusterEvent::Absent(kind) => {
                self.replace(kind, None, Vec::new());
                self.set_kind_state(kind, None, KindState::Absent)
            }
            ClusterEvent::Applied(key, fact) => self.insert(key, fact, Report::Later),
            ClusterEvent::Deleted(key) => self.remove(&key),
            ClusterEvent::OwnedWasRead(key, number, found) => self.answer_check(&key, number, found),
        };
        let is_listed = |cluster: &Self| {
            Kind::DECIDING.iter().all(|kind| cluster.kind_states.contains_key(&(*kind, None)))
        };
        if self.state == ClusterState::Connecting && is_listed(self) {
            self.state = ClusterState::Up;
            self.make_first_checks();
            return AffectedTargets::All;
        }
        if self.state == ClusterState::Up { affected } else { AffectedTargets::None }
    }

    /// Begins the checks of the targets with several workloads. One of the first lists may arrive late, with changes that
    /// were made after the other lists. Then such a target shows new images of one workload and old images of another.
    fn make_first_checks(&mut self) {
        let is_checked = |(key, fact): &(&ObjectKey, &Fact)| match fact {
            Fact::Flux(flux) => flux.needs_check() && self.may_mix_images(key, flux),
            _ => false,
        };
        let owners: Vec<ObjectKey> =
            self.objects.iter().filter(is_checked).map(|(key, _)| key.clone()).collect();
        for owner in owners {
            self.begin_check(&owner);
        }
        self.last_first_check = self.last_check;
    }

    /// Whether the first check of a Flux object after the first lists is not answered yet.
    pub fn awaits_first_check(&self, flux: &FluxFact) -> bool {
        flux.owned_check.as_ref().is_some_and(|check| {
            check.number <= self.last_first_check && check.answer == OwnedAnswer::Pending
        })
    }

    /// Whether a Flux object is in a namespace with targets, or has an owner in such a namespace.
    fn is_of_target(&self, key: &ObjectKey) -> bool {
        self.target_namespaces
            .as_ref()
            .is_none_or(|targets| !self.affected_namespaces(key).is_disjoint(targets))
    }

    /// Whether a Flux object may be a target or a part of one, and owns several objects with images.
    fn may_mix_images(&self, key: &ObjectKey, flux: &FluxFact) -> bool {
        self.is_of_target(key)
            && match &flux.owned {
                Owned::Inventory(entries) => entries.iter().nth(1).is_some(),
                // Objects that are read by namespace are not known yet.
                Owned::Release(_) => {
                    Kind::OWNED.into_iter().any(|kind| self.is_by_namespace(kind))
                        || self.owned_by(key, flux).nth(1).is_some()
                }
            }
    }

    fn set_kind_state(&mut self, kind: Kind, scope: Option<String>, state: KindState) -> AffectedTargets {
        let former = self.kind_states.insert((kind, scope), state.clone());
        let changes_nothing = kind.is_shown_only() || former == Some(state);
        if changes_nothing { AffectedTargets::None } else { AffectedTargets::All }
    }

    fn apply_list(
        &mut self,
        kind: Kind,
        scope: Option<String>,
        facts: Vec<(ObjectKey, Fact)>,
    ) -> AffectedTargets {
        let affected = self.replace(kind, scope.as_deref(), facts);
        if scope.is_none() {
            self.kind_states.retain(|(of, scope), _| *of != kind || scope.is_none());
        }
        match self.set_kind_state(kind, scope, KindState::Listed) {
            AffectedTargets::All => AffectedTargets::All,
            _ if affected.is_empty() => AffectedTargets::None,
            _ => AffectedTargets::InNamespaces(affected),
        }
    }

    /// Replaces the objects of a kind (in one namespace, or in all), and returns the namespaces of the affected
    /// targets.
    fn replace(
        &mut self,
        kind: Kind,
        scope: Option<&str>,
        facts: Vec<(ObjectKey, Fact)>,
    ) -> BTreeSet<String> {
        let listed: BTreeSet<&ObjectKey> = facts.iter().map(|(key, _)| key).collect();
        let in_scope = |key: &ObjectKey| key.kind == kind && scope.is_none_or(|s| *s == key.namespace);
        let removed: Vec<ObjectKey> =
            self.objects.keys().filter(|k| in_scope(k) && !listed.contains(k)).cloned().collect();
        let mut affected = BTreeSet::new();
        let mut add = |targets: AffectedTargets| {
            if let AffectedTargets::InNamespaces(namespaces) = targets {
                affected.extend(namespaces);
            }
        };
        for key in removed {
            add(self.remove(&key));
        }
        // After the first lists, targets with several workloads are checked together.
        let is_first =
            self.state == ClusterState::Connecting && !self.kind_states.contains_key(&(kind, None));
        let report = if is_first { Report::FirstList } else { Report::Later };
        for (key, fact) in facts {
            add(self.insert(key, fact, report));
        }
        affected
    }

    /// Adds or replaces an object.
    fn insert(&mut self, key: ObjectKey, fact: Fact, report: Report) -> AffectedTargets {
        let former = self.objects.get(&key);
        let fact = match fact {
            Fact::Flux(flux) => {
                let mut flux = flux.with_former_status(former);
                flux.owned_check = match former {
                    Some(Fact::Flux(former)) if flux.is_same_state(former) => former.owned_check.clone(),
                    _ if report == Report::FirstList || !flux.needs_check() => None,
                    _ => Some(new_check(&mut self.last_check, &mut self.to_read, &key)),
                };
                Fact::Flux(Box::new(flux))
            }
            other => other,
        };
        if former == Some(&fact) {
            return AffectedTargets::None;
        }
        // What Flux has fetched from a source is only shown. Decisions need its address and its branch.
        let is_only_shown = matches!((former, &fact), (Some(Fact::Source(former)), Fact::Source(new))
            if former.repository == new.repository);
        let has_new_images = match former {
            Some(former) => fact.has_new_images(former),
            // Flux may have created it again, with other images.
            None => report != Report::FirstList && matches!(fact, Fact::Workload(_)),
        };
        if is_only_shown {
            self.objects.insert(key, fact);
            return AffectedTargets::None;
        }
        let mut affected = self.affected_namespaces(&key);
        let source = fact.git_source().cloned();
        if let Some(former) = self.objects.remove(&key) {
            self.remove_references(&former, &key);
        }
        self.release_parts.add(&key, &fact);
        self.objects.insert(key.clone(), fact);
        if let Some(source) = source {
            *self.referring.entry(source).or_default().entry(key.namespace.clone()).or_default() += 1;
        }
        affected.extend(self.affected_namespaces(&key));
        if has_new_images {
            self.check_owners(&key);
        }
        AffectedTargets::InNamespaces(affected)
    }

    /// Checks what the owners of a workload with new images own. Flux changes several workloads one after another, and
    /// the watches of their kinds, and of the owners, may lag behind each other. Then some new images and some old ones
    /// would be a revision that nobody has intended. The workloads may be those of two HelmReleases of one
    /// Kustomization.
    fn check_owners(&mut self, workload: &ObjectKey) {
        let is_checked =
            |(owner, flux): &(&ObjectKey, &FluxFact)| flux.needs_check() && self.is_of_target(owner);
        let owners: Vec<ObjectKey> =
            self.owners_of(workload).filter(is_checked).map(|(owner, _)| owner.clone()).collect();
        for owner in owners {
            self.begin_check(&owner);
        }
    }

    /// Begins a new check of what a Flux object owns. The new check replaces an earlier one.
    fn begin_check(&mut self, owner: &ObjectKey) {
        if let Some(Fact::Flux(flux)) = self.objects.get_mut(owner) {
            flux.owned_check = Some(new_check(&mut self.last_check, &mut self.to_read, owner));
        }
    }

    /// Applies the answer of the API server to the check with this number.
    fn answer_check(
        &mut self,
        owner: &ObjectKey,
        number: u64,
        found: Result<Vec<FoundObject>, String>,
    ) -> AffectedTargets {
        let Some(reads) = self.reads_of(owner, number) else { return AffectedTargets::None };
        let answer = match found {
            Ok(found) => OwnedAnswer::missing(found, |key| self.objects.get(key)?.spec_version()),
            Err(why) => Some(OwnedAnswer::Failed(why)),
        };
        let affected = AffectedTargets::InNamespaces(self.affected_namespaces(owner));
        let Some(Fact::Flux(flux)) = self.objects.get_mut(owner) else { return AffectedTargets::None };
        let is_known = flux.owned_check.as_ref().map(|check| &check.answer) == answer.as_ref();
        flux.owned_check = answer.map(|answer| Box::new(OwnedCheck { number, reads: reads + 1, answer }));
        if is_known { AffectedTargets::None } else { affected }
    }

    /// Returns the check of what a Flux object owns; `None` if there is none, or if it has ended.
    fn check_of(&self, owner: &ObjectKey) -> Option<&OwnedCheck> {
        match self.objects.get(owner)? {
            Fact::Flux(flux) => flux.owned_check.as_deref(),
            _ => None,
        }
    }

    /// Returns the reads that are needed since the last call.
    pub(super) fn take_reads(&mut self) -> Vec<OwnedRead> {
        let owners = std::mem::take(&mut self.to_read);
        owners.iter().filter_map(|owner| self.read_of(owner, self.check_of(owner)?.number)).collect()
    }

    /// Returns how many reads the check of this number has had; `None` if the check has ended.
    pub fn reads_of(&self, owner: &ObjectKey, number: u64) -> Option<u32> {
        self.check_of(owner).filter(|check| check.number == number).map(|check| check.reads)
    }

    /// Returns the next read for the check of this number; `None` if the check has ended.
    pub fn read_of(&self, owner: &ObjectKey, number: u64) -> Option<OwnedRead> {
        self.reads_of(owner, number)?;
        let Some(Fact::Flux(flux)) = self.objects.get(owner) else { return None };
        let mut scopes = flux.owned.scopes();
        scopes.retain(|(kind, namespace)| self.is_watched(*kind, namespace));
        let (owner, owned) = (owner.clone(), flux.owned.clone());
        Some(OwnedRead { owner, owned, scopes, number })
    }

    /// Whether a watch reports the objects of a kind in a namespace, or will report them after its first list.
    fn is_watched(&self, kind: Kind, namespace: &str) -> bool {
        match self.kind_states.get(&(kind, None)) {
            Some(KindState::Absent) => false,
            Some(KindState::ByNamespace) => {
                self.target_namespaces.as_ref().is_none_or(|targets| targets.contains(namespace))
            }
            Some(KindState::Listed | KindState::Unreadable(_)) | None => true,
        }
    }

    /// Returns why a Flux object that is Ready does not count as such yet; `None` if it does.
    pub fn why_not_yet(&self, flux: &FluxFact) -> Option<String> {
        flux.owned_check.as_ref()?.answer.why_not_yet(|key| {
            // If a kind cannot be read, the state of the kind already reports that.
            let is_listed = self.kind_state(key.kind, &key.namespace) == Some(&KindState::Listed);
            is_listed.then(|| self.objects.get(key).and_then(Fact::spec_version))
        })
    }

    fn remove(&mut self, key: &ObjectKey) -> AffectedTargets {
        if !self.objects.contains_key(key) {
            return AffectedTargets::None;
        }
        let affected = self.affected_namespaces(key);
        let removed = self.objects.remove(key);
        if let Some(removed) = removed.as_ref() {
            self.remove_references(removed, key);
        }
        AffectedTargets::InNamespaces(affected)
    }

    /// Removes an object from the objects that refer to its GitRepository, and from those of its Helm release.
    fn remove_references(&mut self, former: &Fact, key: &ObjectKey) {
        self.release_parts.remove(key, former);
        if let Some(source) = former.git_source() {
            remove_one(&mut self.referring, source, &key.namespace);
        }
    }

    /// Returns the namespaces of the targets that an object currently affects: those of all its owners and, for a
    /// Flux object, its own.
    fn affected_namespaces(&self, key: &ObjectKey) -> BTreeSet<String> {
        let mut namespaces = BTreeSet::new();
        let owner_namespaces = || self.owners_of(key).map(|(owner, _)| owner.namespace.clone());
        match key.kind {
            Kind::Namespace => {
                namespaces.insert(key.name.clone());
            }
            Kind::GitRepository => {
                // Flux objects of all namespaces may refer to it, and it may change each moment.
                let referring = self.referring.get(key);
                let refers = |namespace: &&String| referring.is_some_and(|all| all.contains_key(*namespace));
                match &self.target_namespaces {
                    Some(targets) => namespaces.extend(targets.iter().filter(refers).cloned()),
                    None => namespaces.extend(referring.into_iter().flat_map(BTreeMap::keys).cloned()),
                }
            }
            Kind::Kustomization | Kind::HelmRelease => {
                namespaces.insert(key.namespace.clone());
                namespaces.extend(owner_namespaces());
            }
            Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::CronJob => {
                namespaces.extend(owner_namespaces());
            }
            // No decision follows from these.
            Kind::OciRepository
            | Kind::HelmRepository
            | Kind::HelmChart
            | Kind::Bucket
            | Kind::ExternalArtifact
            | Kind::ImagePolicy
            | Kind::ImageUpdateAutomation
            | Kind::Receiver
            | Kind::Alert
            | Kind::Provider => {}
        }
        namespaces
    }
}

/// Returns a new check of what a Flux object owns, and requests the read for it.
fn new_check(last: &mut u64, to_read: &mut BTreeSet<ObjectKey>, owner: &ObjectKey) -> Box<OwnedCheck> {
    *last += 1;
    to_read.insert(owner.clone());
    Box::new(OwnedCheck { number: *last, reads: 0, answer: OwnedAnswer::Pending })
}

/// Counts one Flux object less that refers to a GitRepository.
fn remove_one(
    referring: &mut HashMap<ObjectKey, BTreeMap<String, usize>>,
    source: &ObjectKey,
    namespace: &str,
) {
    let Some(counts) = referring.get_mut(source) else { return };
    if let Some(count) = counts.get_mut(namespace) {
        *count -= 1;
        if *count == 0 {
            counts.remove(namespace);
        }
    }
    if counts.is_empty() {
        referring.remove(source);
    }
}
