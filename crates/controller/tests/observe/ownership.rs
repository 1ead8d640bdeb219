//! The workloads that count for a Kustomization or HelmRelease: those in its inventory. Labels alone do not count,
//! because each user who may create a Deployment may write them.

use serde_json::{Value, json};
use sluice_core::observed::Health::{Failed, Progressing, Ready};

use crate::support::{
    applied, by_app, by_label, condition, deployment, helm_release, kustomization, labelled, local,
    namespace, with,
};

/// A failed Deployment in the namespace of another user, with labels that name an owner which does not own it.
fn forged(by: (&str, &str, &str)) -> Value {
    let stuck = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "forged"}]);
    with(deployment("evil", "forged", by, "evil:666"), "status/conditions", stuck)
}

fn observe_owned(
    kind: &str,
    objects: &[Value],
) -> (sluice_core::observed::Health, Vec<String>, Option<String>) {
    let observed = by_app(kind, "apps").observe(&local(objects));
    let names = observed.members[0].workloads.iter().map(|m| format!("{}/{}", m.kind, m.name)).collect();
    (observed.health(), names, observed.revision(&["images".parse().unwrap()]).map(|r| r.to_string()))
}

fn assert_owns_only_web(kind: &str, objects: &[Value]) {
    let found = observe_owned(kind, objects);
    assert_eq!(found, (Ready, vec!["Deployment/web".to_string()], Some("1".into())), "{kind}");
}

#[test]
fn a_workload_that_is_not_in_the_inventory_does_not_count() {
    let member = kustomization("apps", "podinfo", &["runs-here_web_apps_Deployment"]);
    let by = ("kustomize", "apps", "podinfo");
    let web = deployment("runs-here", "web", by, "web:1");
    assert_owns_only_web("Kustomization", &[namespace("apps"), member, web, forged(by)]);

    let inventory = json!({"entries": [{"id": "runs-here_web_apps_Deployment", "v": "v1"}]});
    let member = with(helm_release("apps", "podinfo", "1.0.0"), "status/inventory", inventory);
    let by = ("helm", "apps", "podinfo");
    let web = deployment("runs-here", "web", by, "web:1");
    assert_owns_only_web("HelmRelease", &[namespace("apps"), member, web, forged(by)]);
}

#[test]
fn a_flux_object_that_is_not_in_the_inventory_does_not_count() {
    let member = kustomization("apps", "podinfo", &["apps_web_apps_Deployment"]);
    let web = deployment("apps", "web", ("kustomize", "apps", "podinfo"), "web:1");
    let failed = json!([condition("Ready", "False", "UpgradeFailed", "forged", 2)]);
    let release = with(helm_release("evil", "forged", "6.6.6"), "status/conditions", failed);
    let release = labelled(release, "kustomize.toolkit.fluxcd.io/name", "podinfo");
    let release = labelled(release, "kustomize.toolkit.fluxcd.io/namespace", "apps");
    assert_owns_only_web("Kustomization", &[namespace("apps"), member, web, release]);
}

#[test]
fn a_kustomization_without_an_inventory_owns_nothing() {
    let by = ("kustomize", "apps", "podinfo");
    let mut member = kustomization("apps", "podinfo", &[]);
    member["status"].as_object_mut().unwrap().remove("inventory");
    let (health, names, _) = observe_owned("Kustomization", &[namespace("apps"), member, forged(by)]);
    assert_eq!((health, names), (Ready, vec![]));
}

/// helm-controller writes an inventory since 1.5. Earlier, only Helm's annotations name the release of an object.
#[test]
fn a_helm_release_without_an_inventory_owns_the_annotated_objects_in_its_namespace() {
    let annotated = |object: Value, namespace: &str, name: &str| {
        let annotations =
            json!({"meta.helm.sh/release-namespace": namespace, "meta.helm.sh/release-name": name});
        with(object, "metadata/annotations", annotations)
    };
    let by = ("helm", "apps", "podinfo");
    let snapshot = |namespace: &str, name: &str| {
        let history = json!([{"version": 4, "status": "deployed", "chartVersion": "1.0.0",
            "namespace": namespace, "name": name}]);
        with(helm_release("apps", "podinfo", "1.0.0"), "status/history", history)
    };
    let web = |namespace: &str| deployment(namespace, "web", by, "web:1");
    let owned = annotated(web("runs-here"), "runs-here", "web-release");
    let not_owned = [
        forged(by),
        annotated(forged(by), "runs-here", "web-release"),
        annotated(with(forged(by), "metadata/namespace", "runs-here".into()), "evil", "web-release"),
    ];
    for object in not_owned {
        let member = snapshot("runs-here", "web-release");
        assert_owns_only_web("HelmRelease", &[namespace("apps"), member, owned.clone(), object]);
    }
    // Without a history, the spec names the release.
    let member = || with(helm_release("apps", "podinfo", "1.0.0"), "status/history", json!([]));
    let member = || with(member(), "status/lastAppliedRevision", "1.0.0".into());
    let target = with(member(), "spec/targetNamespace", "runs-here".into());
    let cases = [
        (member(), annotated(web("apps"), "apps", "podinfo")),
        (target.clone(), annotated(web("runs-here"), "runs-here", "runs-here-podinfo")),
        (with(target, "spec/releaseName", "web".into()), annotated(web("runs-here"), "runs-here", "web")),
    ];
    for (member, owned) in cases {
        assert_owns_only_web("HelmRelease", &[namespace("apps"), member, owned, forged(by)]);
    }
}

#[test]
fn a_change_of_a_workload_that_is_not_owned_affects_no_target() {
    let member = kustomization("apps", "podinfo", &["runs-here_web_apps_Deployment"]);
    let by = ("kustomize", "apps", "podinfo");
    let mut index = local(&[namespace("apps"), member]);
    let affects_apps = |affected| format!("{affected:?}").contains("apps");
    assert!(affects_apps(applied(&mut index, &deployment("runs-here", "web", by, "web:1"))));
    assert!(!affects_apps(applied(&mut index, &forged(by))));
}

/// A chain of objects in which each one owns the next must not exhaust the stack.
#[test]
fn a_chain_of_flux_objects_is_followed_to_a_limited_depth() {
    let name = |n: usize| if n == 0 { "podinfo".to_string() } else { format!("k{n}") };
    let mut objects = vec![namespace("apps")];
    for n in 0..500 {
        let next = format!("apps_{}_kustomize.toolkit.fluxcd.io_Kustomization", name(n + 1));
        let object = kustomization("apps", &name(n), &[&next]);
        let object = labelled(object, "kustomize.toolkit.fluxcd.io/namespace", "apps");
        let by = if n == 0 { "other".into() } else { name(n - 1) };
        objects.push(labelled(object, "kustomize.toolkit.fluxcd.io/name", &by));
    }
    let error = by_app("Kustomization", "apps").error(&local(&objects));
    assert!(error.contains("nested"), "{error}");
}

/// With `disableWait` Helm reports success as soon as the API server has accepted the objects.
#[test]
fn a_helm_release_that_does_not_wait_is_only_as_healthy_as_its_workloads() {
    let inventory = json!({"entries": [{"id": "apps_web_apps_Deployment", "v": "v1"}]});
    let member = with(helm_release("apps", "podinfo", "1.0.0"), "status/inventory", inventory);
    let web = deployment("apps", "web", ("helm", "apps", "podinfo"), "web:1");
    let health = |member: &Value, web: &[Value]| {
        let objects = [&[namespace("apps"), member.clone()], web].concat();
        by_app("HelmRelease", "apps").observe(&local(&objects)).health()
    };
    assert_eq!(health(&member, &[]), Ready);
    for action in ["install", "upgrade", "rollback"] {
        let member = with(member.clone(), &format!("spec/{action}/disableWait"), true.into());
        assert_eq!(health(&member, &[]), Progressing, "{action}: its Deployment was not observed");
        assert_eq!(health(&member, std::slice::from_ref(&web)), Ready, "{action}");
        assert_eq!(health(&member, &[with(web.clone(), "metadata/generation", 9.into())]), Progressing);
        let stuck = with(web.clone(), "status/conditions/1/reason", "ProgressDeadlineExceeded".into());
        assert_eq!(health(&member, &[stuck]), Failed, "{action}");
    }
}

/// A Deployment with 64 containers, whose images have long names.
fn large_deployment(name: &str, by: (&str, &str, &str)) -> Value {
    let containers: Vec<Value> = (0..64)
        .map(|n| json!({"name": format!("c{n}"), "image": format!("{}:{n}", "x".repeat(900))}))
        .collect();
    with(deployment("apps", name, by, "web:1"), "spec/template/spec/containers", containers.into())
}

/// Returns Kustomizations of this application, each with Deployments of its own.
fn large_members(members: usize, deployments: usize) -> Vec<Value> {
    let mut objects = vec![namespace("apps")];
    for m in 0..members {
        let owner = format!("k{m}");
        let names: Vec<String> = (0..deployments).map(|d| format!("{owner}-{d}")).collect();
        let inventory: Vec<String> =
            names.iter().map(|name| format!("apps_{name}_apps_Deployment")).collect();
        let inventory: Vec<&str> = inventory.iter().map(String::as_str).collect();
        let member = kustomization("apps", &owner, &inventory);
        objects.push(labelled(member, "pipelines.weave.works/pipeline", "podinfo"));
        objects.extend(names.iter().map(|name| large_deployment(name, ("kustomize", "apps", &owner))));
    }
    objects
}

#[test]
fn a_target_with_workloads_of_many_bytes_is_not_read() {
    let observed = |members, deployments| {
        by_label("apps").tracking(&["source"]).observe(&local(&large_members(members, deployments))).error
    };
    assert_eq!(observed(2, 50), None);
    let of_one = observed(1, 80).unwrap();
    assert!(of_one.starts_with("what owns Deployment k0-") && of_one.contains("more than 4 MiB"), "{of_one}");
    let of_all = observed(8, 50).unwrap();
    assert!(
        of_all.starts_with("the target in namespace apps of") && of_all.contains("more than 16 MiB"),
        "{of_all}"
    );
}
