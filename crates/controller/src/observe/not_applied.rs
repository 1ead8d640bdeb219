//! Why Flux applies no new state to a target although the target is Ready: a Kustomization that applies its members
//! cannot be built, or a source cannot be fetched. What was committed then never arrives. No change of those objects has targets
//! read again: they may be far away from the target, and change all the time. The branch of a delivered promotion is checked from
//! time to time, and the targets are read then.

use sluice_core::fleet::fact::HealthStatus;
use sluice_core::fleet::observed_cluster::ObservedCluster;
use sluice_core::fleet::{Fact, FluxFact, Kind, ObjectKey};
use sluice_core::observed::Health;

/// Returns why a Flux object gets no new state; `None` if nothing is known to be wrong. The message of an object in another
/// namespace is left out: who may see this target may not be allowed to read it.
pub(super) fn not_applied(member: &ObjectKey, flux: &FluxFact, cluster: &ObservedCluster) -> Option<String> {
    let found = source_problem(member, flux, cluster).or_else(|| {
        let mut owners = cluster.owners_of(member);
        owners.find_map(|(owner, flux)| {
            problem(owner, &flux.status).or_else(|| source_problem(owner, flux, cluster))
        })
    });
    found.map(|(key, status)| explanation(key, status, key.namespace == member.namespace))
}

/// An object, and the health of it that keeps others from new states.
type Problem<'a> = (&'a ObjectKey, &'a HealthStatus);

/// Returns the source of a Flux object if it fails. One in another namespace does not count: the author of the Flux object chooses
/// that, and would learn whether it exists.
fn source_problem<'a>(
    key: &ObjectKey,
    flux: &'a FluxFact,
    cluster: &'a ObservedCluster,
) -> Option<Problem<'a>> {
    let source = flux.git_source().filter(|source| source.namespace == key.namespace)?;
    let Fact::Source(fact) = cluster.object(source)? else { return None };
    problem(source, &fact.status)
}

fn problem<'a>(key: &'a ObjectKey, status: &'a HealthStatus) -> Option<Problem<'a>> {
    matches!(status.health, Health::Failed | Health::Suspended).then_some((key, status))
}

/// Says what is wrong with an object, and which command shows more on its cluster.
fn explanation(key: &ObjectKey, status: &HealthStatus, with_message: bool) -> String {
    let (kind, ObjectKey { namespace, name, .. }) = (key.kind.name(), key);
    let what = match key.kind {
        Kind::Kustomization => "kustomizations",
        Kind::HelmRelease => "helmreleases",
        _ => "sources git",
    };
    let message = if with_message { format!(": {}", status.message) } else { String::new() };
    format!("{kind} {namespace}/{name} is {} (flux get {what} {name} -n {namespace}){message}", status.health)
}
