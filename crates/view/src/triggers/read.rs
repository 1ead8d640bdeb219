//! The objects of Flux as an API server returns them.

use sluice_api::flux::image::{ImagePolicy, ImageUpdateAutomation};
use sluice_api::flux::notification::{Alert, Provider, Receiver};
use sluice_api::flux::trigger_facts::{self, problem};
use sluice_api::flux::{HelmRelease, KUSTOMIZE_OWNER, Kustomization, Source, name_of};
use sluice_core::Time;
use sluice_core::fleet::trigger_fact::TriggerFact;
use sluice_core::fleet::{Kind, ObjectKey};

use super::objects::{AppliedObject, SourceObject, TriggerObject, TriggerObjects};

/// The objects of Flux on the hub, as far as they could be read.
#[derive(Debug, Default)]
pub struct ReadObjects {
    /// The Kustomizations.
    pub kustomizations: Vec<Kustomization>,
    /// The HelmReleases.
    pub releases: Vec<HelmRelease>,
    /// The sources of all kinds, each with its kind.
    pub sources: Vec<(Kind, Source)>,
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

impl From<&ReadObjects> for TriggerObjects {
    fn from(read: &ReadObjects) -> TriggerObjects {
        let key = |kind, (namespace, name)| ObjectKey { kind, namespace, name };
        let applied = |object| TriggerObject::Applied(object);
        let trigger = |fact: TriggerFact| TriggerObject::Trigger(fact);
        let mut all = TriggerObjects::new();
        all.extend(
            read.kustomizations
                .iter()
                .map(|o| (key(Kind::Kustomization, name_of(o)), applied(kustomization(o)))),
        );
        all.extend(read.releases.iter().map(|o| (key(Kind::HelmRelease, name_of(o)), applied(release(o)))));
        let sources = read.sources.iter();
        all.extend(
            sources.map(|(kind, o)| (key(*kind, name_of(o)), TriggerObject::Source(source(*kind, o)))),
        );
        let policies = read.policies.iter();
        all.extend(
            policies.map(|o| (key(Kind::ImagePolicy, name_of(o)), trigger(trigger_facts::image_policy(o)))),
        );
        all.extend(read.automations.iter().map(|o| {
            let fact = trigger_facts::image_update_automation(o);
            (key(Kind::ImageUpdateAutomation, name_of(o)), trigger(fact))
        }));
        let receivers = read.receivers.iter();
        all.extend(receivers.map(|o| (key(Kind::Receiver, name_of(o)), trigger(trigger_facts::receiver(o)))));
        all.extend(
            read.alerts.iter().map(|o| (key(Kind::Alert, name_of(o)), trigger(trigger_facts::alert(o)))),
        );
        let providers = read.providers.iter();
        all.extend(providers.map(|o| (key(Kind::Provider, name_of(o)), trigger(trigger_facts::provider(o)))));
        all
    }
}

fn kustomization(object: &Kustomization) -> AppliedObject {
    let (namespace, _) = name_of(object);
    let conditions = object.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    AppliedObject {
        source: object.spec.source_ref.key(&namespace),
        content: object.spec.path.clone(),
        problem: problem(object.spec.suspend, conditions),
        ..AppliedObject::default()
    }
}

fn release(object: &HelmRelease) -> AppliedObject {
    let (namespace, _) = name_of(object);
    let conditions = object.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let template = object.spec.chart.as_ref().map(|chart| &chart.spec);
    let reference = template.map(|template| &template.source_ref).or(object.spec.chart_ref.as_ref());
    let chart = object.status.as_ref().and_then(|status| status.helm_chart.as_deref()?.split_once('/'));
    let label = |at: usize| object.metadata.labels.as_ref()?.get(KUSTOMIZE_OWNER[at]).cloned();
    let owner = label(0).zip(label(1));
    AppliedObject {
        source: reference.and_then(|reference| reference.key(&namespace)),
        chart: chart.map(|(namespace, name)| named(Kind::HelmChart, namespace, name)),
        content: template.map(|template| template.chart.clone()).unwrap_or_default(),
        version: template.map(|template| template.version.clone()),
        owner: owner.map(|(name, namespace)| named(Kind::Kustomization, &namespace, &name)),
        problem: problem(object.spec.suspend, conditions),
    }
}

fn source(kind: Kind, object: &Source) -> SourceObject {
    let (namespace, _) = name_of(object);
    let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
    let fetched = status.artifact.as_ref().and_then(|artifact| artifact.last_update_time);
    SourceObject {
        follows: spec.follows(kind),
        address: spec.address(kind),
        made_from: spec.source_ref.as_ref().and_then(|source| source.key(&namespace)),
        fetched: fetched.filter(|at| *at != Time::default()),
        problem: problem(spec.suspend, &status.conditions),
    }
}

fn named(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: namespace.into(), name: name.into() }
}
