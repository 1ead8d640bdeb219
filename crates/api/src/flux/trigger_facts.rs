//! What Sluice keeps of the objects that start pipelines. The controller that watches them and the command that reads them
//! keep the same.

use kube::core::Object;
use sluice_core::Time;
use sluice_core::dns_name::{is_label, is_subdomain};
use sluice_core::fleet::trigger_fact::{HookName, NamedObjects, TriggerFact};
use sluice_core::fleet::{Kind, ObjectKey};
use sluice_core::value_check::visible;

use super::condition::FluxCondition;
use super::image::{ImagePolicy, ImageUpdateAutomation, PolicyChoice};
use super::notification::{Alert, ObjectsRef, Provider, Receiver};

/// The most bytes that are kept of a text.
const MAX_TEXT_BYTES: usize = 1024;
/// The most policies of an automation, and the most objects of a Receiver, that are kept.
const MAX_NAMES: usize = 100;
/// The path of a hook before the names of the environment.
const HOOK_PATH: &str = "/promotion/";

/// Returns the facts of an ImagePolicy.
pub fn image_policy(object: &ImagePolicy) -> TriggerFact {
    let status = object.status.clone().unwrap_or_default();
    let latest = status.latest_ref.map(|image| text(&format!("{}:{}", image.name, image.tag)));
    TriggerFact::ImagePolicy {
        choice: choice(&object.spec.policy),
        latest: latest.unwrap_or_default(),
        problem: problem(object.spec.suspend, &status.conditions),
    }
}

/// Returns the facts of an ImageUpdateAutomation.
pub fn image_update_automation(object: &ImageUpdateAutomation) -> TriggerFact {
    let status = object.status.clone().unwrap_or_default();
    let policies = status.observed_policies.keys().filter(|name| is_subdomain(name));
    TriggerFact::ImageUpdateAutomation {
        repository: object.spec.source_ref.key(&namespace_of(object)).filter(is_name),
        path: object.spec.update.as_ref().map(|update| text(&update.path)).unwrap_or_default(),
        policies: policies.take(MAX_NAMES).cloned().collect(),
        last_push: status.last_push_time.filter(|at| *at != Time::default()),
        problem: problem(object.spec.suspend, &status.conditions),
    }
}

/// Returns the facts of a Receiver.
pub fn receiver(object: &Receiver) -> TriggerFact {
    let own = namespace_of(object);
    let conditions = object.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let objects = object.spec.resources.iter().filter_map(|objects| named(objects, &own));
    TriggerFact::Receiver {
        sender: text(&object.spec.type_),
        objects: objects.take(MAX_NAMES).collect(),
        problem: problem(object.spec.suspend, conditions),
    }
}

/// Returns the facts of an Alert.
pub fn alert(object: &Alert) -> TriggerFact {
    let provider = Some(&object.spec.provider_ref.name).filter(|name| is_subdomain(name));
    TriggerFact::Alert { provider: provider.cloned().unwrap_or_default(), suspended: object.spec.suspend }
}

/// Returns the facts of a Provider.
pub fn provider(object: &Provider) -> TriggerFact {
    TriggerFact::Provider { hook: hook(&object.spec.address), suspended: object.spec.suspend }
}

/// Returns why Flux does not reconcile an object now; empty if it does.
pub fn problem(suspended: bool, conditions: &[FluxCondition]) -> String {
    if suspended {
        return "it is suspended".into();
    }
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.filter(|ready| ready.is_false()).map(|ready| text(&ready.message)).unwrap_or_default()
}

/// Returns the environment of the hook at an address. Nothing else of an address is kept, because it may have a token in
/// it.
fn hook(address: &str) -> Option<HookName> {
    let path = address.split(['?', '#']).next()?;
    let (_, names) = path.split_once(HOOK_PATH)?;
    let mut names = names.trim_end_matches('/').split('/');
    let (namespace, pipeline, environment) = (names.next()?, names.next()?, names.next()?);
    let is_hook =
        names.next().is_none() && is_label(namespace) && is_subdomain(pipeline) && is_label(environment);
    is_hook.then(|| HookName {
        namespace: namespace.into(),
        pipeline: pipeline.into(),
        environment: environment.into(),
    })
}

/// Returns the objects that a Receiver refers to, if Sluice observes their kind.
fn named(objects: &ObjectsRef, own: &str) -> Option<NamedObjects> {
    let namespace = objects.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or(own);
    let name = Some(&objects.name).filter(|name| *name != "*");
    let is_valid = is_label(namespace) && name.is_none_or(|name| is_subdomain(name));
    let kind = Kind::of_receiver(&objects.kind).filter(|_| is_valid)?;
    Some(NamedObjects { kind, namespace: namespace.into(), name: name.cloned() })
}

fn choice(policy: &PolicyChoice) -> String {
    match policy {
        PolicyChoice { semver: Some(semver), .. } => format!("range {}", text(&semver.range)),
        PolicyChoice { alphabetical: Some(_), .. } => "by the alphabet".into(),
        PolicyChoice { numerical: Some(_), .. } => "by number".into(),
        _ => "no choice".into(),
    }
}

fn namespace_of<S: Clone, T: Clone>(object: &Object<S, T>) -> String {
    object.metadata.namespace.clone().unwrap_or_default()
}

fn is_name(key: &ObjectKey) -> bool {
    is_label(&key.namespace) && is_subdomain(&key.name)
}

fn text(from: &str) -> String {
    visible(from, MAX_TEXT_BYTES)
}
