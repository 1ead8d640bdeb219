//! Why Flux applies no new state to a target although the target is Ready: a Kustomization that applies its members
//! cannot be built, or a source cannot be fetched. What was committed then never arrives.

use sluice_core::fleet::fact::HealthStatus;
use sluice_core::fleet::observed_cluster::{MAX_NESTING, ObservedCluster};
use sluice_core::fleet::{Fact, FluxFact, Kind, ObjectKey};
use sluice_core::observed::Health;

/// Returns why a Flux object gets no new state; `None` if nothing is known to be wrong.
pub(super) fn not_applied(key: &ObjectKey, flux: &FluxFact, cluster: &ObservedCluster) -> Option<String> {
    let (mut key, mut found) = (key, source_problem(flux, cluster));
    // A hostile cluster may have owners in a circle.
    for _ in 0..MAX_NESTING {
        let Some((owner, flux)) = cluster.owner_of(key).filter(|_| found.is_none()) else { break };
        found = problem(owner, &flux.status).or_else(|| source_problem(flux, cluster));
        key = owner;
    }
    found
}

fn source_problem(flux: &FluxFact, cluster: &ObservedCluster) -> Option<String> {
    let key = flux.git_source()?;
    let Fact::Source(source) = cluster.object(key)? else { return None };
    problem(key, &source.status)
}

/// Returns what is wrong with an object, and the command that shows it on its cluster.
fn problem(key: &ObjectKey, status: &HealthStatus) -> Option<String> {
    let (kind, ObjectKey { namespace, name, .. }) = (key.kind.name(), key);
    let what = match key.kind {
        Kind::Kustomization => "kustomizations",
        Kind::HelmRelease => "helmreleases",
        _ => "sources git",
    };
    matches!(status.health, Health::Failed | Health::Suspended).then(|| {
        format!(
            "{kind} {namespace}/{name} is {} (flux get {what} {name} -n {namespace}): {}",
            status.health, status.message
        )
    })
}
