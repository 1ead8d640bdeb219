//! The view: what starts a pipeline, in sentences.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::pipeline::{Environment, PromotionPolicy};
use sluice_api::{Pipeline, Promotion};
use sluice_core::Time;
use sluice_core::fleet::trigger_fact::TriggerFact;
use sluice_core::fleet::{ClusterKey, Kind, ObjectKey};

use super::first_targets::{FirstTarget, first_environments, targets};
use super::objects::{AppliedObject, TriggerObject, TriggerObjects};
use super::way::{hook_of, reconciled, way, writes_to};
use crate::fleet::cluster_name;

/// The most objects that the sentence about a Receiver names.
const MAX_NAMED: usize = 10;

/// What starts a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Triggers {
    /// What starts it, by environment.
    pub items: Vec<TriggerView>,
    /// What could not be read, so that something may be missing, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Something that starts a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerView {
    /// The environment that it changes.
    pub environment: String,
    /// The cluster of the object, as `namespace/name` of its GitopsCluster; empty for the hub.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The object as `Kind namespace/name`, or the call.
    pub what: String,
    /// How it starts the pipeline, as a sentence without a full stop.
    pub how: String,
    /// When it last did; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
    /// Why it does not work now; empty if it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// What is known of the objects of each cluster: the objects that may be shown, or why there are none. Of a cluster that
/// is not in it, nothing may be shown.
pub type KnownObjects = BTreeMap<ClusterKey, Result<TriggerObjects, String>>;

/// Returns what starts a pipeline. `promotions` are those of its namespace.
pub fn triggers<P: Borrow<Promotion>>(
    pipeline: &Pipeline,
    promotions: &[P],
    known: &KnownObjects,
) -> Vec<TriggerView> {
    let mut found = Vec::new();
    let nothing = TriggerObjects::new();
    let hub = known.get(&ClusterKey::Local).and_then(|objects| objects.as_ref().ok()).unwrap_or(&nothing);
    for environment in first_environments(pipeline) {
        let (mut applied, mut sources) = (BTreeSet::new(), BTreeSet::new());
        for target in targets(pipeline, environment) {
            let objects = match known.get(&target.cluster).filter(|_| target.is_watched()) {
                Some(Ok(objects)) => objects,
                unknown => {
                    let why = unknown.and_then(|known| known.as_ref().err());
                    found.push(elsewhere(&target, why.cloned().unwrap_or_default()));
                    continue;
                }
            };
            for member in &target.members {
                let way = way(member, |key| objects.get(key).cloned());
                found.extend(way.applied.iter().map(|key| applies(&target, key, objects)));
                // Automations and Receivers are observed on the hub only, and change objects there.
                if target.cluster == ClusterKey::Local {
                    applied.extend(way.applied);
                    sources.extend(way.sources);
                }
            }
        }
        found.extend(automations(environment, &sources, hub));
        found.extend(receivers(environment, applied.union(&sources).cloned().collect(), hub));
        found.extend(hook_call(pipeline, environment));
    }
    found.extend(alerts(pipeline, hub));
    found.extend(trigger_call(pipeline, promotions));
    let mut found = without_repetition(found);
    let place = |name: &str| pipeline.spec.environments.iter().position(|e| e.name == name);
    // Stable: within an environment the order stays.
    found.sort_by_key(|trigger| place(&trigger.environment).unwrap_or(usize::MAX));
    found
}

/// Two targets may have one source.
fn without_repetition(mut found: Vec<TriggerView>) -> Vec<TriggerView> {
    let mut known = BTreeSet::new();
    found.retain(|trigger| {
        let TriggerView { environment, cluster, what, how, .. } = trigger.clone();
        known.insert((environment, cluster, what, how))
    });
    found
}

/// Returns how a Kustomization or HelmRelease gets new revisions, and why it does not.
fn applies(target: &FirstTarget<'_>, key: &ObjectKey, objects: &TriggerObjects) -> TriggerView {
    let trigger = TriggerView {
        environment: target.environment.name.clone(),
        cluster: cluster_name(&target.cluster),
        what: key.to_string(),
        ..TriggerView::default()
    };
    let Some(TriggerObject::Applied(applied)) = objects.get(key) else {
        let how = "it is not on this cluster, or you may not read it".into();
        return TriggerView { how, ..trigger };
    };
    let how = match key.kind {
        Kind::Kustomization => kustomization(applied, objects),
        _ => release(applied, objects),
    };
    let fetched = |source: &Option<ObjectKey>| match objects.get(source.as_ref()?)? {
        TriggerObject::Source(source) => source.fetched,
        _ => None,
    };
    let last = fetched(&applied.chart).or_else(|| fetched(&applied.source));
    TriggerView { how, last, problem: applied.problem.clone(), ..trigger }
}

fn kustomization(applied: &AppliedObject, objects: &TriggerObjects) -> String {
    match &applied.source {
        Some(source) => {
            format!("applies what {} has{}", described(source, objects), folder(&applied.content))
        }
        None => "names no source that Sluice reads".into(),
    }
}

fn release(applied: &AppliedObject, objects: &TriggerObjects) -> String {
    let Some(source) = &applied.source else { return "names no chart that Sluice reads".into() };
    let from = described(source, objects);
    let chart = &applied.content;
    match applied.version.as_deref() {
        _ if chart.is_empty() => format!("installs {from}"),
        None => format!("installs chart {chart} of {from}"),
        Some("" | "*") => format!("installs the newest chart {chart} of {from}"),
        Some(version) if is_range(version) => {
            format!("installs the newest chart {chart} {version} of {from}")
        }
        Some(version) => {
            format!(
                "installs chart {chart} {version} of {from}, and another version when its spec is changed"
            )
        }
    }
}

/// Returns what is known of a target on a cluster whose objects are not shown.
fn elsewhere(target: &FirstTarget<'_>, problem: String) -> TriggerView {
    let FirstTarget { environment, target: spec, cluster, members } = target;
    let names: Vec<String> = members.iter().map(ObjectKey::to_string).collect();
    let what = if names.is_empty() { format!("namespace {}", spec.namespace) } else { names.join(", ") };
    let place = match cluster {
        ClusterKey::Local => "another cluster".into(),
        cluster => cluster.to_string(),
    };
    let how = if !problem.is_empty() {
        format!("what Flux applies on {place}, which cannot be read now")
    } else if target.is_watched() {
        format!(
            "what Flux applies on {place}: sluice trace shows where it comes from, with the rights to see that cluster"
        )
    } else {
        format!("what Flux applies on {place}, which Sluice does not read")
    };
    let (environment, cluster) = (environment.name.clone(), cluster_name(cluster));
    TriggerView { environment, cluster, what, how, last: None, problem }
}

/// Returns the automations that write into the repositories of these sources.
fn automations(
    environment: &Environment,
    sources: &BTreeSet<ObjectKey>,
    objects: &TriggerObjects,
) -> Vec<TriggerView> {
    let trigger = |(key, fact): (&ObjectKey, &TriggerFact)| {
        let TriggerFact::ImageUpdateAutomation { repository, path, policies, last_push, problem } = fact
        else {
            return None;
        };
        let policies: Vec<String> = policies.iter().map(|policy| chosen_by(key, policy, objects)).collect();
        let policies = if policies.is_empty() { String::new() } else { format!(": {}", policies.join(", ")) };
        Some(TriggerView {
            environment: environment.name.clone(),
            what: key.to_string(),
            how: format!(
                "writes new images into the files of {}{}{policies}",
                repository.as_ref()?,
                folder(path)
            ),
            last: *last_push,
            problem: problem.clone(),
            ..TriggerView::default()
        })
    };
    facts(objects, Kind::ImageUpdateAutomation)
        .filter(|(_, fact)| writes_to(fact, sources))
        .filter_map(trigger)
        .collect()
}

/// Returns what an ImagePolicy beside an automation chooses.
fn chosen_by(automation: &ObjectKey, name: &str, objects: &TriggerObjects) -> String {
    let key = ObjectKey { kind: Kind::ImagePolicy, name: name.into(), ..automation.clone() };
    let Some(TriggerObject::Trigger(TriggerFact::ImagePolicy { choice, latest, problem })) =
        objects.get(&key)
    else {
        return format!("ImagePolicy {name}");
    };
    let latest = if latest.is_empty() { String::new() } else { format!(", now {latest}") };
    let problem = if problem.is_empty() { String::new() } else { format!(", {problem}") };
    format!("ImagePolicy {name} ({choice}{latest}{problem})")
}

/// Returns the Receivers that make Flux look at these objects, or at what writes into their sources, immediately.
fn receivers(
    environment: &Environment,
    mut receivable: BTreeSet<ObjectKey>,
    objects: &TriggerObjects,
) -> Vec<TriggerView> {
    for (key, fact) in facts(objects, Kind::ImageUpdateAutomation) {
        let TriggerFact::ImageUpdateAutomation { policies, .. } = fact else { continue };
        if writes_to(fact, &receivable) {
            let policy =
                |name: &String| ObjectKey { kind: Kind::ImagePolicy, name: name.clone(), ..key.clone() };
            receivable.extend(policies.iter().map(policy));
            receivable.insert(key.clone());
        }
    }
    let trigger = |(key, fact): (&ObjectKey, &TriggerFact)| {
        let TriggerFact::Receiver { sender, problem, .. } = fact else { return None };
        let found: Vec<String> =
            reconciled(fact, &receivable).into_iter().map(ObjectKey::to_string).collect();
        let named = found[..found.len().min(MAX_NAMED)].join(", ");
        let further = found.len().saturating_sub(MAX_NAMED);
        let further = if further == 0 { String::new() } else { format!(" and {further} more") };
        (!found.is_empty()).then(|| TriggerView {
            environment: environment.name.clone(),
            what: key.to_string(),
            // The path is not shown: it is the password of a Receiver of type generic.
            how: format!(
                "a webhook of {sender} makes Flux look at {named}{further} immediately (kubectl get receiver {} -n {} shows its path)",
                key.name,
                key.namespace
            ),
            problem: problem.clone(),
            ..TriggerView::default()
        })
    };
    facts(objects, Kind::Receiver).filter_map(trigger).collect()
}

/// Returns the Alerts that send Flux's events about this pipeline to Sluice.
fn alerts(pipeline: &Pipeline, objects: &TriggerObjects) -> Vec<TriggerView> {
    let trigger = |(key, fact): (&ObjectKey, &TriggerFact)| {
        let TriggerFact::Alert { provider, suspended } = fact else { return None };
        let provider = ObjectKey { kind: Kind::Provider, name: provider.clone(), ..key.clone() };
        let Some(TriggerObject::Trigger(provider)) = objects.get(&provider) else { return None };
        let hook = hook_of(provider, own_name(pipeline))?;
        let problem = match provider {
            _ if *suspended => "it is suspended",
            TriggerFact::Provider { suspended: true, .. } => "its Provider is suspended",
            _ => "",
        };
        Some(TriggerView {
            environment: hook.environment.clone(),
            what: key.to_string(),
            how: "sends Flux's events to Sluice, which then looks immediately".into(),
            problem: problem.into(),
            ..TriggerView::default()
        })
    };
    facts(objects, Kind::Alert).filter_map(trigger).collect()
}

/// Returns the call with which Flux has Sluice look immediately; `None` if no key can sign it.
fn hook_call(pipeline: &Pipeline, environment: &Environment) -> Option<TriggerView> {
    let policies = pipeline.spec.policies_about(&environment.name);
    let is_open = policies.iter().filter_map(|policy| policy.strategy.as_ref()).any(|s| s.allow_unsigned);
    let mut secrets: Vec<&str> = policies.into_iter().filter_map(PromotionPolicy::secret).collect();
    secrets.dedup();
    let signed = match (is_open, secrets.as_slice()) {
        (true, _) => "without a signature".into(),
        (false, []) => return None,
        (false, secrets) => {
            format!("signed with the hmac-key of Secret {}, if it has one,", secrets.join(" or "))
        }
    };
    let (namespace, name) = own_name(pipeline);
    Some(TriggerView {
        environment: environment.name.clone(),
        what: format!("POST /promotion/{namespace}/{name}/{}", environment.name),
        how: format!("an event of Flux {signed} makes Sluice look immediately"),
        ..TriggerView::default()
    })
}

/// Returns the call with which a program requests a promotion; `None` if the pipeline names no Secret for its key.
fn trigger_call<P: Borrow<Promotion>>(pipeline: &Pipeline, promotions: &[P]) -> Option<TriggerView> {
    let first = pipeline.spec.environments.first()?;
    let secret = pipeline.spec.policy(first)?.secret()?;
    let (namespace, name) = own_name(pipeline);
    let own = promotions.iter().map(Borrow::borrow).filter(|promotion| promotion.spec.pipeline == name);
    let last = own.filter_map(|promotion| promotion.spec.trigger.as_ref().map(|trigger| trigger.at)).max();
    Some(TriggerView {
        environment: first.name.clone(),
        what: format!("POST /trigger/{namespace}/{name}"),
        how: format!(
            "a call signed with the trigger-key of Secret {secret}, if it has one, promotes the revision that it names"
        ),
        last,
        ..TriggerView::default()
    })
}

fn own_name(pipeline: &Pipeline) -> (&str, &str) {
    let metadata = &pipeline.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn facts(objects: &TriggerObjects, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &TriggerFact)> {
    objects.iter().filter_map(move |(key, object)| match object {
        TriggerObject::Trigger(fact) if key.kind == kind => Some((key, fact)),
        _ => None,
    })
}

fn folder(path: &str) -> String {
    match path.trim_start_matches("./") {
        "" => String::new(),
        path => format!(" in {path}"),
    }
}

/// Returns a source in words: what it follows, and why Flux cannot fetch it now.
fn described(key: &ObjectKey, objects: &TriggerObjects) -> String {
    let Some(TriggerObject::Source(source)) = objects.get(key) else { return key.to_string() };
    let from = match &source.made_from {
        Some(from) if source.address.is_empty() => from.to_string(),
        _ => source.address.clone(),
    };
    let follows = match (source.follows.as_str(), from.as_str()) {
        (follows, "") => follows.into(),
        ("", from) => from.into(),
        (follows, from) => format!("{follows} of {from}"),
    };
    let parts = [follows, source.problem.clone()];
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { key.to_string() } else { format!("{key} ({})", parts.join("; ")) }
}

/// Whether a version of a chart is a range of versions
/// ([Helm](https://helm.sh/docs/chart_best_practices/dependencies/)).
fn is_range(version: &str) -> bool {
    let is_part = |c: char| matches!(c, '<' | '>' | '=' | '~' | '^' | '*' | ' ' | '|' | ',');
    let has_wildcard = version.split(['.', '-']).any(|part| matches!(part, "x" | "X" | "*"));
    version.contains(is_part) || has_wildcard || version.split('.').count() < 3
}
