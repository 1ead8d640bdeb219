//! What starts a pipeline, as far as the caller may see it.

use std::collections::BTreeSet;

use sluice_api::Pipeline;
use sluice_core::access::{AccessError, Caller};
use sluice_core::fleet::index::Fleet;
use sluice_core::fleet::{ClusterKey, Kind};
use sluice_view::triggers::{
    KnownObjects, Related, Triggers, all_related, clusters, related, triggers, unobserved,
};

use crate::board::ShownPipeline;
use crate::fleet_versions::readable;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::visible_fleet::{kind_right, visible_among, visible_objects};

/// The most triggers of one answer. A pipeline may begin with 2,000 targets.
const MAX_TRIGGERS: usize = 1000;
/// What it costs a caller who may not get all objects that start pipelines, in requests: Sluice asks about single objects,
/// and the cost does not show how many there are.
const COST_BY_NAME: usize = 4;
/// What is said to those who may not get all objects that start pipelines, whether or not there are others.
const ONLY_VISIBLE: &str = "of the objects on the hub, only those that you may get are shown";

/// Returns what starts a pipeline that the caller may see.
pub(crate) async fn triggers_of<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    shown: &ShownPipeline,
) -> Result<Triggers, Problem> {
    let pipeline = shown.stored.whole();
    let mut known = KnownObjects::new();
    for key in visible_among(&api.hub, caller, &api.fleet, clusters(&pipeline)).await? {
        let objects = api.fleet.read(&key, |cluster| {
            readable(cluster).map(|()| related(&pipeline, &key, cluster, |_| true).objects)
        });
        known.extend(objects.map(|objects| (key, objects)));
    }
    let all_of = visible_kinds(&api.hub, caller).await?;
    if all_of.len() < Kind::SHOWN_ON_HUB.len() {
        api.budgets.spend(caller.limit_group(), COST_BY_NAME)?;
    }
    let (hub, mut unread) = of_hub(&api.hub, caller, &api.fleet, (&pipeline, &all_of)).await?;
    if let Some(hub) = hub {
        if let Ok(hub) = &hub {
            unread.extend(hub.cut_sentences());
        }
        known.insert(ClusterKey::Local, hub.map(|hub| hub.objects));
    }
    let mut items = triggers(&pipeline, &shown.promotions, &known);
    if items.len() > MAX_TRIGGERS {
        unread.push(format!("there are {} triggers: only {MAX_TRIGGERS} are shown", items.len()));
        items.truncate(MAX_TRIGGERS);
    }
    Ok(Triggers { items, unread })
}

/// The objects of the hub, and what is missing among them in sentences.
type OfHub = (Option<Result<Related, String>>, Vec<String>);

async fn of_hub<H: Hub>(
    access: &H,
    caller: &Caller,
    fleet: &Fleet,
    (pipeline, all_of): (&Pipeline, &BTreeSet<Kind>),
) -> Result<OfHub, AccessError> {
    let all = fleet.read(&ClusterKey::Local, |hub| all_related(pipeline, &ClusterKey::Local, hub));
    let visible = visible_objects(access, caller, all.unwrap_or_default()).await?;
    let read = fleet.read(&ClusterKey::Local, |hub| {
        // Cut after what the caller may not see is gone, so that the cut says nothing about that.
        let objects =
            readable(hub).map(|()| related(pipeline, &ClusterKey::Local, hub, |key| visible.contains(key)));
        (objects, unobserved(hub))
    });
    let (objects, unknown) = read.unzip();
    let unknown = unknown.unwrap_or_default().into_iter();
    let mut unread: Vec<String> =
        unknown.filter(|(kind, _)| all_of.contains(kind)).map(|(_, why)| why).collect();
    if all_of.len() < Kind::SHOWN_ON_HUB.len() {
        unread.push(ONLY_VISIBLE.into());
    }
    Ok((objects, unread))
}

/// Returns the kinds that start pipelines of which a caller may get all objects on the hub.
async fn visible_kinds<H: Hub>(access: &H, caller: &Caller) -> Result<BTreeSet<Kind>, AccessError> {
    let mut all_of = BTreeSet::new();
    for kind in Kind::SHOWN_ON_HUB {
        if access.allows(caller, &kind_right(kind)).await? {
            all_of.insert(kind);
        }
    }
    Ok(all_of)
}
