//! What starts a pipeline: everything that makes its first environments run a new revision, and every call that Sluice
//! takes for it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_api::flux::image::{ImagePolicy, ImagePolicySpec, ImageUpdateAutomation};
use sluice_api::flux::notification::{Alert, Provider, Receiver};
use sluice_api::flux::{
    FluxCondition, HelmRelease, KUSTOMIZE_OWNER, Kustomization, Source, SourceRef, find, name_of,
};
use sluice_api::pipeline::{Environment, Observe, Target};
use sluice_api::{Pipeline, Promotion};
use sluice_core::Time;
use sluice_core::fleet::Kind;

use crate::members::members;
use crate::object_name::FluxName;

/// Something that starts a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerView {
    /// The environment that it changes.
    pub environment: String,
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

/// The objects of Flux on the hub, as far as they could be read.
#[derive(Debug, Default)]
pub struct FluxObjects {
    /// The Kustomizations.
    pub kustomizations: Vec<Kustomization>,
    /// The HelmReleases.
    pub releases: Vec<HelmRelease>,
    /// The sources of all kinds, each with its kind.
    pub sources: Vec<(String, Source)>,
    /// The ImagePolicies.
    pub policies: Vec<ImagePolicy>,
    /// The ImageUpdateAutomations.
    pub automations: Vec<ImageUpdateAutomation>,
    /// The Receivers.
    pub receivers: Vec<Receiver>,
    /// The Alerts.
    pub alerts: Vec<Alert>,
    /// The Providers.
    pub providers: Vec<Provider>,
}

/// Returns what starts a pipeline. `promotions` are those of its namespace.
pub fn triggers(pipeline: &Pipeline, promotions: &[Promotion], flux: &FluxObjects) -> Vec<TriggerView> {
    let mut found = Vec::new();
    let environments = pipeline.spec.environments.iter().enumerate();
    let first = environments.filter(|(at, _)| pipeline.spec.after(*at).is_empty());
    for (_, environment) in first {
        let mut sources = BTreeSet::new();
        for (target, name) in environment.targets.iter().zip(environment.target_names()) {
            let members = members(pipeline, environment, target, &name);
            match &target.cluster_ref {
                None if target.observe == Observe::Watch => {
                    for (kind, name) in members {
                        let object = FluxName { kind, namespace: target.namespace.clone(), name };
                        found.extend(member(environment, &object, flux, &mut sources));
                    }
                }
                cluster => {
                    let cluster = cluster.as_ref().map(|cluster| cluster.name.as_str());
                    found.push(elsewhere(environment, target, cluster, &members));
                }
            }
        }
        found.extend(automations(environment, &sources, flux));
        found.extend(receivers(environment, &sources, flux));
    }
    found.extend(alerts(pipeline, flux));
    found.extend(trigger_call(pipeline, promotions));
    // Two targets may have one source.
    let mut known = BTreeSet::new();
    found.retain(|trigger| {
        known.insert((trigger.environment.clone(), trigger.what.clone(), trigger.how.clone()))
    });
    found
}

/// Returns how a Kustomization or HelmRelease on the hub gets new revisions, and adds the sources on the way.
fn member(
    environment: &Environment,
    named: &FluxName,
    flux: &FluxObjects,
    sources: &mut BTreeSet<FluxName>,
) -> Vec<TriggerView> {
    let FluxName { namespace, name, .. } = named;
    let trigger = |(how, problem): (String, String)| TriggerView {
        environment: environment.name.clone(),
        what: named.to_string(),
        how,
        last: None,
        problem,
    };
    let unread = || ("it is not on this cluster, or you may not read it".into(), String::new());
    if Kind::of_flux(&named.kind) == Some(Kind::Kustomization) {
        let object = find(&flux.kustomizations, namespace, name);
        let found = object.map_or_else(unread, |object| kustomization(object, namespace, flux, sources));
        return vec![trigger(found)];
    }
    let Some(object) = find(&flux.releases, namespace, name) else { return vec![trigger(unread())] };
    let mut found = vec![trigger(release(object, namespace, flux, sources))];
    // A HelmRelease whose spec is in git changes when the Kustomization that made it does.
    let owner = |at: usize| object.metadata.labels.as_ref()?.get(KUSTOMIZE_OWNER[at]).cloned();
    if let (Some(name), Some(namespace)) = (owner(0), owner(1)) {
        let owner = FluxName { kind: Kind::Kustomization.name().into(), namespace, name };
        found.extend(member(environment, &owner, flux, sources));
    }
    found
}

/// Returns how a Kustomization gets new revisions, and why it does not; and adds its source.
fn kustomization(
    object: &Kustomization,
    namespace: &str,
    flux: &FluxObjects,
    sources: &mut BTreeSet<FluxName>,
) -> (String, String) {
    let source = source_of(&object.spec.source_ref, namespace);
    let path = match object.spec.path.trim_start_matches("./") {
        "" => String::new(),
        path => format!(" in {path}"),
    };
    let how = format!("applies what {} has{path}", described(&source, flux));
    sources.insert(source);
    (how, problem(object.spec.suspend, object.status.as_ref().map(|status| &status.conditions[..])))
}

/// Returns how a HelmRelease gets new revisions, and why it does not; and adds its source.
fn release(
    object: &HelmRelease,
    namespace: &str,
    flux: &FluxObjects,
    sources: &mut BTreeSet<FluxName>,
) -> (String, String) {
    let how = match (&object.spec.chart, &object.spec.chart_ref) {
        (Some(chart), _) => {
            let source = source_of(&chart.spec.source_ref, namespace);
            let from = described(&source, flux);
            sources.insert(source);
            match chart.spec.version.as_str() {
                "" | "*" => format!("installs the newest chart {} of {from}", chart.spec.chart),
                version if is_range(version) => {
                    format!("installs the newest chart {} {version} of {from}", chart.spec.chart)
                }
                version => format!(
                    "installs chart {} {version} of {from}, and another version when its spec is changed",
                    chart.spec.chart
                ),
            }
        }
        (None, Some(reference)) => {
            let source = source_of(reference, namespace);
            let how = format!("installs {}", described(&source, flux));
            sources.insert(source);
            how
        }
        (None, None) => "names no chart".into(),
    };
    (how, problem(object.spec.suspend, object.status.as_ref().map(|status| &status.conditions[..])))
}

/// Returns what is known of a target on another cluster.
fn elsewhere(
    environment: &Environment,
    target: &Target,
    cluster: Option<&str>,
    members: &BTreeSet<(String, String)>,
) -> TriggerView {
    let names: Vec<String> =
        members.iter().map(|(kind, name)| format!("{kind} {}/{name}", target.namespace)).collect();
    let cluster = cluster.unwrap_or("another cluster");
    let what = if names.is_empty() { format!("namespace {}", target.namespace) } else { names.join(", ") };
    let how = format!(
        "what Flux applies on cluster {cluster}: sluice trace shows where it comes from, with the rights to see that cluster"
    );
    TriggerView { environment: environment.name.clone(), what, how, ..TriggerView::default() }
}

/// Returns the automations that write into the repositories of these sources.
fn automations(
    environment: &Environment,
    sources: &BTreeSet<FluxName>,
    flux: &FluxObjects,
) -> Vec<TriggerView> {
    let of_source = |automation: &&ImageUpdateAutomation| {
        let (namespace, _) = name_of(automation);
        sources.contains(&source_of(&automation.spec.source_ref, &namespace))
    };
    let trigger = |automation: &ImageUpdateAutomation| {
        let (namespace, name) = name_of(automation);
        let status = automation.status.clone().unwrap_or_default();
        let chosen: Vec<String> =
            status.observed_policies.keys().map(|policy| chosen_by(&namespace, policy, flux)).collect();
        let policies = if chosen.is_empty() { String::new() } else { format!(": {}", chosen.join(", ")) };
        let path = automation.spec.update.as_ref().map(|update| update.path.trim_start_matches("./"));
        let path = path.filter(|path| !path.is_empty()).map(|path| format!(" in {path}")).unwrap_or_default();
        TriggerView {
            environment: environment.name.clone(),
            what: format!("ImageUpdateAutomation {namespace}/{name}"),
            how: format!(
                "writes new images into the files of GitRepository {}{path}{policies}",
                automation.spec.source_ref.name
            ),
            last: status.last_push_time,
            problem: problem(automation.spec.suspend, Some(&status.conditions)),
        }
    };
    flux.automations.iter().filter(of_source).map(trigger).collect()
}

/// Returns what an ImagePolicy chooses.
fn chosen_by(namespace: &str, name: &str, flux: &FluxObjects) -> String {
    let Some(policy) = find(&flux.policies, namespace, name) else { return format!("ImagePolicy {name}") };
    let latest = policy.status.as_ref().and_then(|status| status.latest_ref.as_ref());
    let latest = latest.map(|image| format!(", now {}:{}", image.name, image.tag)).unwrap_or_default();
    let status = policy.status.as_ref().map(|status| &status.conditions[..]);
    let problem = match problem(policy.spec.suspend, status) {
        none if none.is_empty() => none,
        problem => format!(", {problem}"),
    };
    format!("ImagePolicy {name} ({}{latest}{problem})", choice(&policy.spec))
}

fn choice(spec: &ImagePolicySpec) -> String {
    match &spec.policy {
        policy if policy.semver.is_some() => {
            format!(
                "range {}",
                policy.semver.as_ref().map(|semver| semver.range.as_str()).unwrap_or_default()
            )
        }
        policy if policy.alphabetical.is_some() => "by the alphabet".into(),
        policy if policy.numerical.is_some() => "by number".into(),
        _ => "no choice".into(),
    }
}

/// Returns the Receivers that make Flux look at these sources immediately.
fn receivers(
    environment: &Environment,
    sources: &BTreeSet<FluxName>,
    flux: &FluxObjects,
) -> Vec<TriggerView> {
    let looked_at = |receiver: &Receiver| -> Vec<String> {
        let (own, _) = name_of(receiver);
        let resources = receiver.spec.resources.iter().flat_map(|resource| {
            let namespace = resource.namespace.clone().unwrap_or_else(|| own.clone());
            let is_meant = move |source: &&FluxName| {
                source.kind == resource.kind
                    && source.namespace == namespace
                    && (resource.name == "*" || resource.name == source.name)
            };
            sources.iter().filter(is_meant)
        });
        let names: BTreeSet<String> = resources.map(FluxName::to_string).collect();
        names.into_iter().collect()
    };
    let trigger = |receiver: &Receiver| {
        let sources = looked_at(receiver);
        let status = receiver.status.clone().unwrap_or_default();
        (!sources.is_empty()).then(|| TriggerView {
            environment: environment.name.clone(),
            what: {
                let (namespace, name) = name_of(receiver);
                format!("Receiver {namespace}/{name}")
            },
            how: format!(
                "a webhook of {} at {} makes Flux look at {} immediately",
                receiver.spec.type_,
                if status.webhook_path.is_empty() {
                    "an address that is not known yet"
                } else {
                    &status.webhook_path
                },
                sources.join(", ")
            ),
            last: None,
            problem: problem(receiver.spec.suspend, Some(&status.conditions)),
        })
    };
    flux.receivers.iter().filter_map(trigger).collect()
}

/// Returns the Alerts that send Flux's events about this pipeline to Sluice.
fn alerts(pipeline: &Pipeline, flux: &FluxObjects) -> Vec<TriggerView> {
    let own = {
        let (namespace, name) = own_name(pipeline);
        format!("/promotion/{namespace}/{name}/")
    };
    let trigger = |alert: &Alert| {
        let (namespace, name) = name_of(alert);
        let provider = find(&flux.providers, &namespace, &alert.spec.provider_ref.name)?;
        let (_, environment) = provider.spec.address.split_once(&own)?;
        let suspended =
            [(alert.spec.suspend, "it is suspended"), (provider.spec.suspend, "its Provider is suspended")];
        let problem = suspended.iter().find(|(suspended, _)| *suspended).map(|(_, why)| (*why).to_string());
        Some(TriggerView {
            environment: environment.into(),
            what: format!("Alert {namespace}/{name}"),
            how: "sends Flux's events to Sluice, which then looks immediately".into(),
            last: None,
            problem: problem.unwrap_or_default(),
        })
    };
    flux.alerts.iter().filter_map(trigger).collect()
}

/// Returns the call with which a program requests a promotion; `None` if the pipeline names no Secret for its key.
fn trigger_call(pipeline: &Pipeline, promotions: &[Promotion]) -> Option<TriggerView> {
    let first = pipeline.spec.environments.first()?;
    let secret = pipeline.spec.policy(first)?.secret()?;
    let (namespace, name) = own_name(pipeline);
    let own = promotions.iter().filter(|promotion| promotion.spec.pipeline == name);
    let last = own.filter_map(|promotion| promotion.spec.trigger.as_ref().map(|trigger| trigger.at)).max();
    Some(TriggerView {
        environment: first.name.clone(),
        what: format!("POST /trigger/{namespace}/{name}"),
        how: format!(
            "a call signed with the trigger-key of Secret {secret}, if it has one, promotes the revision that it names"
        ),
        last,
        problem: String::new(),
    })
}

fn own_name(pipeline: &Pipeline) -> (String, String) {
    let metadata = &pipeline.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn source_of(reference: &SourceRef, from: &str) -> FluxName {
    let namespace = reference.namespace.clone().filter(|namespace| !namespace.is_empty());
    FluxName {
        kind: reference.kind.clone(),
        namespace: namespace.unwrap_or_else(|| from.into()),
        name: reference.name.clone(),
    }
}

/// Returns a source in words: what it follows, and why Flux cannot fetch it now.
fn described(name: &FluxName, flux: &FluxObjects) -> String {
    let is_it = |(kind, source): &&(String, Source)| {
        *kind == name.kind
            && source.metadata.namespace.as_ref() == Some(&name.namespace)
            && source.metadata.name.as_ref() == Some(&name.name)
    };
    let Some((_, source)) = flux.sources.iter().find(is_it) else {
        return name.to_string();
    };
    let spec = &source.spec;
    let reference = spec.reference.clone().unwrap_or_default();
    let follows = match (reference.fixed(), &reference.branch) {
        (Some((what, value)), _) => format!("{what} {value} of "),
        (None, Some(branch)) => format!("branch {branch} of "),
        (None, None) => String::new(),
    };
    let address = match spec.url.as_str() {
        "" => {
            format!("{}{}", spec.endpoint, if spec.bucket_name.is_empty() { "" } else { "/" })
                + &spec.bucket_name
        }
        url => url.into(),
    };
    let problem = match problem(spec.suspend, source.status.as_ref().map(|status| &status.conditions[..])) {
        none if none.is_empty() => none,
        problem => format!("; {problem}"),
    };
    format!("{name} ({follows}{address}{problem})")
}

/// Returns why Flux does not reconcile an object now; empty if it does.
fn problem(suspended: bool, conditions: Option<&[FluxCondition]>) -> String {
    if suspended {
        return "it is suspended".into();
    }
    let ready = conditions.unwrap_or_default().iter().find(|condition| condition.type_ == "Ready");
    ready.filter(|ready| ready.is_false()).map(|ready| ready.message.clone()).unwrap_or_default()
}

/// Whether a version of a chart is a range of versions
/// ([Helm](https://helm.sh/docs/chart_best_practices/dependencies/)).
fn is_range(version: &str) -> bool {
    let is_part = |c: char| matches!(c, '<' | '>' | '=' | '~' | '^' | '*' | ' ' | '|' | ',');
    let has_wildcard = version.split(['.', '-']).any(|part| matches!(part, "x" | "X" | "*"));
    version.contains(is_part) || has_wildcard || version.split('.').count() < 3
}
