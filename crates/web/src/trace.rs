//! Where something on a cluster comes from, as far as the caller may see it.

use sluice_core::access::Caller;
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::observed_cluster::ClusterState;
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};
use sluice_view::fleet::trace::{Trace, TraceLink, trace};

use crate::access::Access;
use crate::problem::Problem;
use crate::visible::{allows_cluster, kind_right};

/// Returns the trace of an object.
pub(crate) async fn traced<A: Access>(
    access: &A,
    caller: &Caller,
    fleet: &Fleet,
    (cluster, object): (&ClusterKey, &ObjectKey),
) -> Result<Trace, Problem> {
    // Whether something exists is not told to those who may not see it.
    let not_found = || {
        Problem::not_found(format!(
            "there is no {}/{} in namespace {} of that cluster, or you may not get it: on the hub that needs get on {}, \
             on other clusters get on the GitopsCluster",
            object.kind.name(),
            object.name,
            object.namespace,
            object.kind.resource().1
        ))
    };
    let is_visible = match cluster {
        ClusterKey::Local => allows_object(access, caller, object).await?,
        remote => allows_cluster(access, caller, remote).await?,
    };
    if !is_visible {
        return Err(not_found());
    }
    let read = fleet.read(cluster, |observed| match observed.state() {
        ClusterState::Lost(why) => {
            Err(Problem::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, why.clone()))
        }
        ClusterState::Up | ClusterState::Connecting => Ok(trace(observed, object)),
    });
    let mut links = read.ok_or_else(not_found)??.ok_or_else(not_found)?;
    if *cluster == ClusterKey::Local {
        for link in &mut links {
            hide_unless_allowed(access, caller, link).await?;
        }
    }
    Ok(Trace { links })
}

async fn allows_object<A: Access>(access: &A, caller: &Caller, key: &ObjectKey) -> Result<bool, Problem> {
    let right = kind_right(key.kind).within(&key.namespace).named(&key.name);
    Ok(access.allows(caller, &right).await?)
}

/// Leaves only the name of an object on the hub that the caller may not get. That name is in an object that the caller may
/// get.
async fn hide_unless_allowed<A: Access>(
    access: &A,
    caller: &Caller,
    link: &mut TraceLink,
) -> Result<(), Problem> {
    let (kind, name) = link.object.split_once('/').unwrap_or_default();
    let mut kinds = Kind::OWNED.into_iter().chain(Kind::SHOWN).chain([Kind::GitRepository]);
    let Some(kind) = kinds.find(|known| known.name() == kind) else { return Ok(()) };
    let key = ObjectKey { kind, namespace: link.namespace.clone(), name: name.into() };
    if !allows_object(access, caller, &key).await? {
        let missing = format!("you may not get {} in namespace {}", kind.resource().1, key.namespace);
        let (object, namespace, of) =
            (link.object.clone(), link.namespace.clone(), std::mem::take(&mut link.of));
        *link = TraceLink { object, namespace, of, missing, ..TraceLink::default() };
    }
    Ok(())
}
