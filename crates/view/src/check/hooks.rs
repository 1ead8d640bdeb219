//! The objects of Flux on the hub that call Sluice, or that a forge calls: do Providers have the address of a hook that
//! exists and the key that signs their calls, are they called, and do Receivers accept calls?

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::Pipeline;
use sluice_api::flux::notification::{Alert, Provider, Receiver};
use sluice_api::flux::{name_of, trigger_facts};
use sluice_core::nearest::nearest;
use sluice_core::value_check::visible;

use super::{Finding, Reading, Topic};
use crate::object_name::ObjectName;

/// The first part of the path of a hook.
const HOOK: &str = "promotion";
/// A part of the host of the Service that exposes the hook server.
const HOOK_SERVICE: &str = "sluice-hooks";
/// The type of Provider that signs its calls.
const SIGNING: &str = "generic-hmac";
/// The key of a Provider's Secret that Flux signs calls with (notification-controller, `internal/server/event_handlers.go`).
const TOKEN: &str = "token";
/// The most bytes of a path in a finding.
const MAX_PATH_BYTES: usize = 200;

/// The objects of Flux on the hub that have to do with hooks.
#[derive(Clone, Debug)]
pub struct Hooks<'a> {
    /// The readable pipelines of the checked namespaces.
    pub pipelines: &'a [Pipeline],
    /// Whether these are all. If not, a pipeline that is not among them may exist.
    pub are_all: bool,
    /// The checked namespace; `None` for all.
    pub namespace: Option<String>,
    /// The Providers.
    pub providers: Reading<Vec<Provider>>,
    /// The Alerts.
    pub alerts: Reading<Vec<Alert>>,
    /// The Receivers.
    pub receivers: Reading<Vec<Receiver>>,
    /// The keys of the Secrets that the Providers of hooks name. A Secret that nobody has looked at is not there.
    pub secrets: BTreeMap<ObjectName, Reading<BTreeSet<String>>>,
}

/// What the address of a Provider leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    /// No hook of Sluice.
    Other,
    /// A hook of Sluice with a path that it does not serve.
    Wrong(String),
    /// A hook about an environment: namespace, pipeline and environment.
    Hook([String; 3]),
}

/// Returns the Secrets of Providers that call Sluice.
pub fn needed_secrets(providers: &[Provider]) -> BTreeSet<ObjectName> {
    let calls_sluice = |provider: &&Provider| address(&provider.spec.address) != Address::Other;
    providers.iter().filter(calls_sluice).filter_map(secret).collect()
}

/// Returns the findings.
pub fn findings(facts: &Hooks<'_>) -> Vec<Finding> {
    let topic = Topic::Hooks;
    let unread = [
        facts.providers.unread(topic, "Providers of Flux"),
        facts.alerts.unread(topic, "Alerts of Flux"),
        facts.receivers.unread(topic, "Receivers of Flux"),
    ];
    let mut findings: Vec<Finding> = unread.into_iter().flatten().collect();
    for provider in facts.providers.known().into_iter().flatten() {
        findings.extend(of_provider(provider, facts));
    }
    findings.extend(facts.receivers.known().into_iter().flatten().filter_map(of_receiver));
    findings
}

/// Reads the address of a Provider. Nothing after the path is kept: it may have a token in it.
fn address(address: &str) -> Address {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut parts = path.split('/').filter(|part| !part.is_empty()).skip_while(|part| *part != HOOK).skip(1);
    let is_hook = path.split('/').any(|part| part == HOOK);
    let host = host.rsplit('@').next().unwrap_or_default();
    let to_service = host.split(['.', ':']).next() == Some(HOOK_SERVICE);
    match (is_hook, [parts.next(), parts.next(), parts.next()], parts.next()) {
        (true, [Some(namespace), Some(pipeline), Some(environment)], None) => {
            Address::Hook([namespace, pipeline, environment].map(|name| visible(name, MAX_PATH_BYTES)))
        }
        (true, ..) => Address::Wrong(visible(&format!("/{path}"), MAX_PATH_BYTES)),
        (false, ..) if to_service => Address::Wrong(visible(&format!("/{path}"), MAX_PATH_BYTES)),
        (false, ..) => Address::Other,
    }
}

/// Returns the Secret that a Provider names.
fn secret(provider: &Provider) -> Option<ObjectName> {
    let (namespace, _) = name_of(provider);
    let name = provider.spec.secret_ref.as_ref()?.name.clone();
    Some(ObjectName { namespace, name })
}

fn of_provider(provider: &Provider, facts: &Hooks<'_>) -> Vec<Finding> {
    let topic = Topic::Hooks;
    let (namespace, name) = name_of(provider);
    let what = format!("Provider {namespace}/{name}");
    let [home, pipeline, environment] = match address(&provider.spec.address) {
        Address::Other => return Vec::new(),
        Address::Wrong(path) => {
            let message = format!(
                "{what} calls Sluice at {path}, which is no hook: /promotion/<namespace>/<pipeline>/<environment> is one"
            );
            let fix = "correct its spec.address, or print it again: sluice export alert PIPELINE -n NS --address URL";
            return vec![Finding::error(topic, message).fix(fix)];
        }
        Address::Hook(names) => names,
    };
    let found = facts.pipelines.iter().find(|known| name_of_pipeline(known) == (&home, &pipeline));
    let Some(known) = found else {
        // Pipelines of other namespaces were not read.
        if facts.namespace.as_ref().is_some_and(|checked| *checked != home) {
            return Vec::new();
        }
        return vec![about_no_pipeline(&what, (&home, &pipeline), facts)];
    };
    let export = format!("sluice export alert {pipeline} -n {home} -e {environment} --address URL");
    let names: Vec<&str> = known.spec.environments.iter().map(|known| known.name.as_str()).collect();
    if !names.contains(&environment.as_str()) {
        let message = format!(
            "{what} calls Sluice about environment {environment} of pipeline {home}/{pipeline}, which has {}",
            names.join(", ")
        );
        let fix = format!(
            "correct its spec.address, or print it again: sluice export alert {pipeline} -n {home} --address URL"
        );
        return vec![Finding::error(topic, message).fix(fix)];
    }
    let about = format!("{environment} of pipeline {home}/{pipeline}");
    let mut findings: Vec<Finding> = signature(provider, known, &environment, facts)
        .map(|(problem, fix)| {
            Finding::error(topic, format!("the calls of {what} about {about} fail: {problem}"))
                .fix(fix.unwrap_or_else(|| format!("print it again: {export} --show-key")))
        })
        .into_iter()
        .collect();
    findings.extend(silence(provider, facts).map(|(problem, fix)| {
        Finding::warning(topic, format!("{what} sends nothing about {about}: {problem}")).fix(fix)
    }));
    if findings.is_empty() {
        findings.push(without_trouble(provider, &what, &about, facts));
    }
    findings
}

/// Returns the finding about a Provider that calls Sluice about a pipeline that is not among those of the check.
fn about_no_pipeline(what: &str, (home, pipeline): (&str, &str), facts: &Hooks<'_>) -> Finding {
    let topic = Topic::Hooks;
    let message = format!("{what} calls Sluice about pipeline {home}/{pipeline}, which does not exist");
    if !facts.are_all {
        let fix =
            format!("sluice get pipeline {pipeline} -n {home}; correct its spec.address if there is none");
        return Finding::warning(topic, format!("{message}, or cannot be read by you")).fix(fix);
    }
    let near = facts.pipelines.iter().map(|known| name_of_pipeline(known).1.as_str());
    let meant = nearest(pipeline, near).map(|meant| format!(" to that of {meant}")).unwrap_or_default();
    Finding::error(topic, message).fix(format!("correct its spec.address{meant}, or delete it"))
}

/// Returns the finding about a Provider in which nothing is wrong, as far as its Secret was read.
fn without_trouble(provider: &Provider, what: &str, about: &str, facts: &Hooks<'_>) -> Finding {
    let topic = Topic::Hooks;
    match secret(provider).and_then(|name| facts.secrets.get(&name)) {
        Some(Reading::Known(_)) => {
            Finding::ok(topic, format!("{what} calls Sluice about {about}, and signs its calls"))
        }
        Some(unread) => {
            let key = format!("the key with which {what} signs its calls");
            unread.unread(topic, &key).unwrap_or_else(|| Finding::ok(topic, what))
        }
        None => Finding::ok(topic, format!("{what} calls Sluice about {about}")),
    }
}

fn name_of_pipeline(pipeline: &Pipeline) -> (&String, &String) {
    static NONE: String = String::new();
    let metadata = &pipeline.metadata;
    (metadata.namespace.as_ref().unwrap_or(&NONE), metadata.name.as_ref().unwrap_or(&NONE))
}

/// Returns why the calls of a Provider are not signed with a key of the pipeline, and what to do if it is not to print the
/// Provider again.
fn signature(
    provider: &Provider,
    pipeline: &Pipeline,
    environment: &str,
    facts: &Hooks<'_>,
) -> Option<(String, Option<String>)> {
    let policies = pipeline.spec.policies_about(environment);
    let strategies = || policies.iter().filter_map(|policy| policy.strategy.as_ref());
    if strategies().any(|strategy| strategy.allow_unsigned) {
        return None;
    }
    if strategies().all(|strategy| strategy.secret_ref.is_none()) {
        let fix =
            "name a Secret in promotion.strategy.secretRef of the pipeline: docs/hooks.md#create-the-keys";
        return Some(("the pipeline has no key to check them with".into(), Some(fix.into())));
    }
    let type_ = &provider.spec.type_;
    if type_ != SIGNING {
        let problem = format!("type {} does not sign them", visible(type_, MAX_PATH_BYTES));
        return Some((problem, None));
    }
    let Some(name) = secret(provider) else {
        return Some(("it names no Secret with the key that signs them".into(), None));
    };
    match facts.secrets.get(&name) {
        Some(Reading::Absent) => Some((format!("its Secret {name} does not exist"), None)),
        Some(Reading::Known(keys)) if !keys.contains(TOKEN) => {
            Some((format!("its Secret {name} has no key {TOKEN}, which signs them"), None))
        }
        _ => None,
    }
}

/// Returns why Flux never calls a Provider, and what to do.
fn silence(provider: &Provider, facts: &Hooks<'_>) -> Option<(String, String)> {
    let (namespace, name) = name_of(provider);
    if provider.spec.suspend {
        let fix = format!("flux resume alert-provider {name} -n {namespace}");
        return Some(("it is suspended".into(), fix));
    }
    let alerts = facts.alerts.known()?;
    let mut own = alerts
        .iter()
        .filter(|alert| name_of(*alert).0 == namespace && alert.spec.provider_ref.name == name)
        .peekable();
    if own.peek().is_none() {
        let fix =
            "print one: sluice export alert PIPELINE -n NS --address URL; or delete the Provider".into();
        return Some(("no Alert in its namespace names it".into(), fix));
    }
    let own: Vec<&Alert> = own.collect();
    let alert = name_of(own.first()?).1;
    own.iter().all(|alert| alert.spec.suspend).then(|| {
        (format!("its Alert {alert} is suspended"), format!("flux resume alert {alert} -n {namespace}"))
    })
}

/// Returns the finding about a Receiver that accepts no calls.
fn of_receiver(receiver: &Receiver) -> Option<Finding> {
    let (namespace, name) = name_of(receiver);
    let conditions = receiver.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let problem = trigger_facts::problem(receiver.spec.suspend, conditions);
    let fix = match receiver.spec.suspend {
        true => format!("flux resume receiver {name} -n {namespace}"),
        false => "correct it, or print it again: sluice export receiver PIPELINE -n NS".into(),
    };
    (!problem.is_empty()).then(|| {
        let message = format!("Receiver {namespace}/{name} accepts no calls of a forge: {problem}");
        Finding::warning(Topic::Hooks, message).fix(fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_provider_is_read() {
        let hook = |names: [&str; 3]| Address::Hook(names.map(String::from));
        for (text, expected) in [
            ("https://sluice.example.com/promotion/apps/podinfo/dev", hook(["apps", "podinfo", "dev"])),
            (
                "http://sluice-hooks.sluice-system/promotion/apps/podinfo/dev/?x=1",
                hook(["apps", "podinfo", "dev"]),
            ),
            ("https://a.example.com/sluice/promotion/apps/podinfo/dev", hook(["apps", "podinfo", "dev"])),
            (
                "https://sluice.example.com/promotion/apps/podinfo",
                Address::Wrong("/promotion/apps/podinfo".into()),
            ),
            (
                "https://sluice.example.com/promotion/apps/podinfo/dev/eu",
                Address::Wrong("/promotion/apps/podinfo/dev/eu".into()),
            ),
            ("http://sluice-hooks.sluice-system:8082/", Address::Wrong("/".into())),
            ("http://sluice-hooks", Address::Wrong("/".into())),
            ("https://hooks.slack.com/services/T/B/secret", Address::Other),
            ("https://example.com/promotions/apps", Address::Other),
            ("", Address::Other),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
    }
}
