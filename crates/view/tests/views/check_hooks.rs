//! The findings of `sluice check` about the objects of Flux that call Sluice, or that a forge calls.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_api::flux::notification::{Alert, Provider, Receiver};
use sluice_view::check::hooks::{Hooks, findings, needed_secrets};
use sluice_view::check::{Reading, Severity};
use sluice_view::object_name::ObjectName;

use crate::check::troubles;
use crate::fixture::{pipeline, runs};

const HOOK: &str = "https://sluice.example.com/promotion/apps/podinfo/dev";

fn object<T: DeserializeOwned>(name: &str, spec: &Value) -> T {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "apps"}, "spec": spec})).unwrap()
}

fn provider(name: &str, address: &str, type_: &str, secret: Option<&str>) -> Provider {
    let secret = secret.map(|name| json!({"name": name}));
    object(name, &json!({"type": type_, "address": address, "secretRef": secret}))
}

fn alert(provider: &str, suspend: bool) -> Alert {
    object(&format!("{provider}-alert"), &json!({"providerRef": {"name": provider}, "suspend": suspend}))
}

/// podinfo with dev, staging and prod, whose calls are checked with the keys of a Secret.
fn with_keys() -> Pipeline {
    let mut pipeline = pipeline(json!({"dev": runs("dev", "6.1.8", "Ready")}));
    let strategy = json!({"secretRef": {"name": "hooks"},
        "commit": {"url": "https://git.example.com/fleet.git", "branch": "main"}});
    pipeline.spec.promotion = serde_json::from_value(json!({"strategy": strategy})).unwrap();
    pipeline
}

fn found(pipelines: &[Pipeline], providers: Vec<Provider>, alerts: Vec<Alert>) -> String {
    troubles(&findings(&facts(pipelines, providers, alerts)))
}

fn facts(pipelines: &[Pipeline], providers: Vec<Provider>, alerts: Vec<Alert>) -> Hooks<'_> {
    let keys = |keys: &[&str]| Reading::Known(keys.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
    let named = |name: &str| ObjectName { namespace: "apps".into(), name: name.into() };
    let secrets = BTreeMap::from([
        (named("good"), keys(&["token"])),
        (named("keyless"), keys(&["hmac-key"])),
        (named("gone"), Reading::Absent),
        (named("hidden"), Reading::Forbidden("get on secrets".into())),
    ]);
    let receivers = Reading::Known(vec![]);
    let (providers, alerts) = (Reading::Known(providers), Reading::Known(alerts));
    let namespace = Some("apps".into());
    Hooks { pipelines, are_all: true, namespace, providers, alerts, receivers, secrets }
}

#[test]
fn a_provider_with_the_address_of_no_hook_is_found() {
    let all = [with_keys()];
    let at = |name: &str, path: &str| {
        provider(name, &format!("https://sluice.example.com{path}"), "generic-hmac", Some("good"))
    };
    let providers = vec![
        at("short", "/promotion/apps/podinfo"),
        at("typo", "/promotion/apps/podinf/dev"),
        at("environment", "/promotion/apps/podinfo/development"),
        provider("root", "http://sluice-hooks.sluice-system/", "generic-hmac", Some("good")),
        // Pipelines of other namespaces are not read, and this is no hook of Sluice.
        at("elsewhere", "/promotion/shop/podinfo/dev"),
        provider("slack", "https://hooks.slack.com/services/secret", "slack", None),
    ];
    insta::assert_snapshot!(found(&all, providers, vec![]), @"
    Error: Provider apps/short calls Sluice at /promotion/apps/podinfo, which is no hook: /promotion/<namespace>/<pipeline>/<environment> is one ► correct its spec.address, or print it again: sluice export alert PIPELINE -n NS --address URL
    Error: Provider apps/typo calls Sluice about pipeline apps/podinf, which does not exist ► correct its spec.address to that of podinfo, or delete it
    Error: Provider apps/environment calls Sluice about environment development of pipeline apps/podinfo, which has dev, staging, prod ► correct its spec.address, or print it again: sluice export alert podinfo -n apps --address URL
    Error: Provider apps/root calls Sluice at /, which is no hook: /promotion/<namespace>/<pipeline>/<environment> is one ► correct its spec.address, or print it again: sluice export alert PIPELINE -n NS --address URL
    ");
}

#[test]
fn a_provider_whose_calls_nothing_signs_is_found() {
    let all = [with_keys()];
    let providers = vec![
        provider("unsigned", HOOK, "generic", Some("good")),
        provider("without", HOOK, "generic-hmac", None),
        provider("gone", HOOK, "generic-hmac", Some("gone")),
        provider("keyless", HOOK, "generic-hmac", Some("keyless")),
        provider("hidden", HOOK, "generic-hmac", Some("hidden")),
    ];
    let alerts =
        || ["unsigned", "without", "gone", "keyless", "hidden"].map(|name| alert(name, false)).to_vec();
    insta::assert_snapshot!(found(&all, providers, alerts()), @"
    Error: the calls of Provider apps/unsigned about dev of pipeline apps/podinfo fail: type generic does not sign them ► print it again: sluice export alert podinfo -n apps -e dev --address URL --show-key
    Error: the calls of Provider apps/without about dev of pipeline apps/podinfo fail: it names no Secret with the key that signs them ► print it again: sluice export alert podinfo -n apps -e dev --address URL --show-key
    Error: the calls of Provider apps/gone about dev of pipeline apps/podinfo fail: its Secret apps/gone does not exist ► print it again: sluice export alert podinfo -n apps -e dev --address URL --show-key
    Error: the calls of Provider apps/keyless about dev of pipeline apps/podinfo fail: its Secret apps/keyless has no key token, which signs them ► print it again: sluice export alert podinfo -n apps -e dev --address URL --show-key
    Warning: not checked: the key with which Provider apps/hidden signs its calls; you lack get on secrets ► run the check as somebody with this right, or ask the cluster's administrator for it
    ");
    let unsigned = || vec![provider("unsigned", HOOK, "generic", None)];
    let without_keys = [pipeline(json!({"dev": runs("dev", "6.1.8", "Ready")}))];
    insta::assert_snapshot!(found(&without_keys, unsigned(), alerts()), @"
    Error: the calls of Provider apps/unsigned about dev of pipeline apps/podinfo fail: the pipeline has no key to check them with ► name a Secret in promotion.strategy.secretRef of the pipeline: docs/hooks.md#create-the-keys
    ");
    let mut open = with_keys();
    let strategy = open.spec.promotion.as_mut().unwrap().strategy.as_mut().unwrap();
    (strategy.allow_unsigned, strategy.secret_ref) = (true, None);
    assert_eq!(found(&[open], unsigned(), alerts()), "");
}

#[test]
fn a_provider_that_flux_never_calls_is_found() {
    let all = [with_keys()];
    let good = |name: &str| provider(name, HOOK, "generic-hmac", Some("good"));
    let mut suspended = good("suspended");
    suspended.spec.suspend = true;
    let providers = vec![good("lonely"), suspended, good("stopped"), good("half")];
    let alerts =
        vec![alert("suspended", false), alert("stopped", true), alert("half", true), alert("half", false)];
    insta::assert_snapshot!(found(&all, providers, alerts), @"
    Warning: Provider apps/lonely sends nothing about dev of pipeline apps/podinfo: no Alert in its namespace names it ► print one: sluice export alert PIPELINE -n NS --address URL; or delete the Provider
    Warning: Provider apps/suspended sends nothing about dev of pipeline apps/podinfo: it is suspended ► flux resume alert-provider suspended -n apps
    Warning: Provider apps/stopped sends nothing about dev of pipeline apps/podinfo: its Alert stopped-alert is suspended ► flux resume alert stopped-alert -n apps
    ");
    let fine = findings(&facts(&all, vec![good("sluice")], vec![alert("sluice", false)]));
    assert_eq!((fine.len(), fine[0].severity), (1, Severity::Ok));
    assert_eq!(
        fine[0].message,
        "Provider apps/sluice calls Sluice about dev of pipeline apps/podinfo, and signs its calls"
    );
}

#[test]
fn what_the_api_does_not_read_is_not_claimed() {
    let all = [with_keys()];
    let good = |path: &str| {
        let address = format!("https://sluice.example.com/promotion/{path}");
        provider("sluice", &address, "generic-hmac", Some("good"))
    };
    let seen = |path: &str| {
        let facts = facts(&all, vec![good(path)], vec![alert("sluice", false)]);
        findings(&Hooks { are_all: false, secrets: BTreeMap::new(), ..facts }).remove(0)
    };
    assert_eq!(
        seen("apps/podinfo/dev").message,
        "Provider apps/sluice calls Sluice about dev of pipeline apps/podinfo"
    );
    // The caller may not see all pipelines.
    let unknown = seen("apps/search/dev");
    let says = "Provider apps/sluice calls Sluice about pipeline apps/search, which does not exist, or cannot be read by you";
    assert_eq!((unknown.severity, unknown.message.as_str()), (Severity::Warning, says));
}

#[test]
fn a_receiver_that_accepts_no_calls_is_found() {
    let receiver = |name: &str, suspend: bool, ready: &str, message: &str| -> Receiver {
        let condition =
            json!({"type": "Ready", "status": ready, "reason": "TokenNotFound", "message": message});
        let metadata = json!({"name": name, "namespace": "apps"});
        let spec = json!({"type": "github", "suspend": suspend});
        let object = json!({"metadata": metadata, "spec": spec, "status": {"conditions": [condition]}});
        serde_json::from_value(object).unwrap()
    };
    let missing = "unable to read token from secret 'apps/hook'";
    let receivers = vec![
        receiver("good", false, "True", "accepting"),
        receiver("keyless", false, "False", missing),
        receiver("stopped", true, "True", "accepting"),
    ];
    let facts = Hooks { receivers: Reading::Known(receivers), ..facts(&[], vec![], vec![]) };
    insta::assert_snapshot!(troubles(&findings(&facts)), @"
    Warning: Receiver apps/keyless accepts no calls of a forge: unable to read token from secret 'apps/hook' ► correct it, or print it again: sluice export receiver PIPELINE -n NS
    Warning: Receiver apps/stopped accepts no calls of a forge: it is suspended ► flux resume receiver stopped -n apps
    ");
}

#[test]
fn what_cannot_be_read_is_said_and_an_absent_kind_is_not() {
    let forbidden = || "list on providers.notification.toolkit.fluxcd.io in namespace apps".to_string();
    let facts = Hooks {
        providers: Reading::Forbidden(forbidden()),
        alerts: Reading::Absent,
        receivers: Reading::Absent,
        ..facts(&[], vec![], vec![])
    };
    insta::assert_snapshot!(troubles(&findings(&facts)), @"
    Warning: not checked: Providers of Flux; you lack list on providers.notification.toolkit.fluxcd.io in namespace apps ► run the check as somebody with this right, or ask the cluster's administrator for it
    ");
}

#[test]
fn only_secrets_of_providers_that_call_sluice_are_read() {
    let providers = [
        provider("sluice", HOOK, "generic-hmac", Some("good")),
        provider("slack", "https://hooks.slack.com/services/secret", "slack", Some("slack")),
    ];
    let named = ObjectName { namespace: "apps".into(), name: "good".into() };
    assert_eq!(needed_secrets(&providers), BTreeSet::from([named]));
}
