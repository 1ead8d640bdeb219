//! The findings of `sluice check` about given facts of an installation.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::{Pipeline, all_crds};
use sluice_view::check::clocks::{self, ClockOf, Clocks};
use sluice_view::check::clusters::{self, Kubeconfig, NamedCluster};
use sluice_view::check::controller::{self, Controller, Deployment, Lease};
use sluice_view::check::definitions::{self, Definitions};
use sluice_view::check::flux::{self, Flux};
use sluice_view::check::hooks::Hooks;
use sluice_view::check::observed::{self, Observed};
use sluice_view::check::pipeline_secrets::{self, Secret, Secrets};
use sluice_view::check::pipelines::Pipelines;
use sluice_view::check::rights::{self, Rights};
use sluice_view::check::values::{self, EnvironmentValues, Values};
use sluice_view::check::{CheckFacts, Finding, Installation, Reading, Severity, Topic, check};
use sluice_view::object_name::ObjectName;

use crate::fixture::now;

/// Returns the findings as lines, without those that are ok.
pub fn troubles(findings: &[Finding]) -> String {
    let troubles = findings.iter().filter(|finding| finding.severity != Severity::Ok);
    let line = |finding: &Finding| {
        let fix = finding.fix.as_ref().map(|fix| format!(" ► {fix}")).unwrap_or_default();
        format!("{:?}: {}{fix}", finding.severity, finding.message)
    };
    troubles.map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the definitions as the API server stores them.
fn installed() -> Definitions {
    let established = json!({"conditions": [{"type": "Established", "status": "True"}]});
    let crds = all_crds().into_iter().map(|crd| {
        let mut crd = serde_json::to_value(crd).unwrap();
        crd["status"] = established.clone();
        (crd["metadata"]["name"].as_str().unwrap().to_owned(), Reading::Known(crd))
    });
    Definitions {
        served: Reading::Known(()),
        crds: crds.collect(),
        policy: Reading::Known(None),
        gitops_clusters: Reading::Known(()),
        targets_elsewhere: 1,
    }
}

/// Returns the definitions, after a change of the definition of Pipeline.
fn changed(change: impl FnOnce(&mut Value)) -> Definitions {
    let mut facts = installed();
    if let Some(Reading::Known(crd)) = facts.crds.get_mut("pipelines.pipelines.weave.works") {
        change(crd);
    }
    facts
}

#[test]
fn definitions_of_another_version_are_recognized() {
    let found = |facts: Definitions| troubles(&definitions::findings(&facts));
    assert_eq!(found(installed()), "");
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let older = changed(|crd| {
        crd.pointer_mut(spec).unwrap().as_object_mut().unwrap().remove("suspend").unwrap();
    });
    let looser = changed(|crd| {
        crd.pointer_mut(&format!("{spec}/environments/maxItems")).unwrap().take();
    });
    let newer = changed(|crd| {
        crd.pointer_mut(spec).unwrap()["colour"] = json!({"type": "string"});
    });
    let other_text = changed(|crd| {
        crd.pointer_mut(spec).unwrap()["suspend"]["description"] = "In other words.".into();
    });
    let refused = changed(|crd| crd["status"]["conditions"][0]["status"] = "False".into());
    assert_eq!(found(other_text), "");
    let lines = [
        found(older),
        found(looser),
        found(newer),
        found(refused),
        found(Definitions { crds: BTreeMap::new(), ..installed() }).lines().next().unwrap().into(),
        found(Definitions { served: Reading::Absent, ..installed() }),
        found(Definitions { gitops_clusters: Reading::Absent, ..installed() }),
        found(Definitions {
            policy: Reading::Known(Some("it is not installed: sluice crds | kubectl".into())),
            ..installed()
        }),
        found(Definitions { policy: Reading::Absent, ..installed() }),
        found(Definitions { policy: Reading::Forbidden("get on policies".into()), ..installed() }),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    Error: the definition pipelines.pipelines.weave.works does not match this sluice: .spec.suspend is missing or differs ► sluice crds | kubectl apply --server-side -f -
    Error: the definition pipelines.pipelines.weave.works does not match this sluice: .spec.environments.maxItems is missing or differs ► sluice crds | kubectl apply --server-side -f -
    Warning: the definition pipelines.pipelines.weave.works is newer than this sluice: it also has .spec.colour ► use the sluice of the controller's version: sluice version
    Error: the API server does not accept the definition pipelines.pipelines.weave.works (Established is not True) ► kubectl describe crd pipelines.pipelines.weave.works
    Error: the definition pipelines.pipelines.weave.works is not installed ► sluice crds | kubectl apply --server-side -f -
    Error: the kinds Pipeline and Promotion are not installed in this cluster ► sluice crds | kubectl apply --server-side -f -
    Error: pipelines name GitopsClusters, and the kind GitopsCluster is not installed ► kubectl apply --server-side -f deploy/gitopscluster.yaml
    Error: the admission policy does not protect approvals: it is not installed; everybody who may change promotions can approve them in any name ► sluice crds | kubectl apply --server-side -f -
    Warning: this API server has no ValidatingAdmissionPolicy (Kubernetes before 1.30): everybody who may change promotions can approve them in any name ► docs/approvals.md#if-the-policy-is-missing
    Warning: not checked: whether the admission policy is in force; you lack get on policies ► run the check as somebody with this right, or ask the cluster's administrator for it
    ");
    let without_targets =
        Definitions { gitops_clusters: Reading::Absent, targets_elsewhere: 0, ..installed() };
    assert_eq!(found(without_targets), "");
}

fn deployment(wanted: i32, ready: i32, image: &str) -> Deployment {
    Deployment {
        namespace: "sluice-system".into(),
        name: "sluice".into(),
        wanted,
        ready,
        images: vec![image.into()],
    }
}

fn lease(holder: &str, seconds: i64) -> Lease {
    let renewed = now().checked_sub(SignedDuration::from_secs(seconds)).unwrap();
    let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
    Lease {
        name: "sluice.shard-0".into(),
        holder,
        renewed: Some(renewed),
        duration: SignedDuration::from_secs(10),
    }
}

fn controller_with(deployments: Vec<Deployment>, leases: Vec<Lease>) -> Controller {
    Controller {
        namespace: "sluice-system".into(),
        version: "0.2.0".into(),
        is_running: false,
        now: now(),
        leases: Reading::Known(leases),
        deployments: Reading::Known(deployments),
    }
}

#[test]
fn a_controller_that_does_not_act_is_an_error() {
    let found = |deployments, leases| troubles(&controller::findings(&controller_with(deployments, leases)));
    let good = "ghcr.io/example/sluice:v0.2.0@sha256:0cc9";
    assert_eq!(found(vec![deployment(2, 2, good)], vec![lease("a", 2)]), "");
    assert_eq!(found(vec![], vec![lease("a", 24)]), "", "the clock of the holder may be behind");
    assert_eq!(found(vec![deployment(2, 2, "localhost:5000/sluice")], vec![lease("a", -3)]), "");
    let lines = [
        found(vec![deployment(2, 1, "sluice:0.1.0")], vec![lease("a", 2)]),
        found(vec![deployment(2, 0, good)], vec![lease("a", 26)]),
        found(vec![deployment(0, 0, good)], vec![lease("", 2)]),
        found(vec![deployment(2, 2, good)], vec![]),
        found(vec![], vec![]),
        found(vec![], vec![Lease { renewed: None, ..lease("a", 0) }]),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    Warning: 1 of 2 replicas of Deployment sluice-system/sluice are ready ► kubectl describe pods -n sluice-system -l app.kubernetes.io/name=sluice
    Warning: the controller is version 0.1.0, and this sluice is 0.2.0 ► use the same version of both: docs/operations.md#upgrade
    Error: 0 of 2 replicas of Deployment sluice-system/sluice are ready ► kubectl describe pods -n sluice-system -l app.kubernetes.io/name=sluice
    Error: a has not renewed the Lease sluice.shard-0 for 26 s: nothing is promoted ► kubectl get pods -n sluice-system; kubectl logs -n sluice-system deployment/sluice
    Error: Deployment sluice-system/sluice is scaled to 0: nothing is promoted ► kubectl scale deployment/sluice -n sluice-system --replicas=2
    Error: no replica holds the Lease sluice.shard-0: nothing is promoted for its pipelines ► kubectl get pods -n sluice-system; kubectl logs -n sluice-system deployment/sluice
    Warning: namespace sluice-system has no Lease of Sluice: the controller did not start, or runs without Leases ► kubectl logs -n sluice-system deployment/sluice
    Error: no controller was found in namespace sluice-system ► kubectl apply --server-side -k deploy; if it runs elsewhere, name its namespace with --system-namespace
    Error: a has never renewed the Lease sluice.shard-0 ► kubectl get pods -n sluice-system; kubectl logs -n sluice-system deployment/sluice
    ");
    // A controller that answers runs, whatever its namespace shows.
    let answering = Controller { is_running: true, ..controller_with(vec![], vec![]) };
    let without_leases = "Warning: namespace sluice-system has no Lease and no Deployment of Sluice: the controller that answers runs without Leases";
    assert_eq!(troubles(&controller::findings(&answering)), without_leases);
    let unknown = Controller {
        leases: Reading::Forbidden("list on leases".into()),
        deployments: Reading::Failed("etcd is full".into()),
        ..controller_with(vec![], vec![])
    };
    insta::assert_snapshot!(troubles(&controller::findings(&unknown)), @"
    Warning: not checked: the Deployment of the controller; the API server answered: etcd is full
    Warning: not checked: whether a replica of the controller acts; you lack list on leases ► run the check as somebody with this right, or ask the cluster's administrator for it
    ");
}

#[test]
fn rights_are_reported_by_command() {
    let with = |lacking: &[&str]| {
        let answers = rights::all().into_iter().map(|right| {
            (right, Reading::Known(!lacking.contains(&format!("{} {}", right.verb, right.resource).as_str())))
        });
        let facts = Rights {
            user: Some("jane".into()),
            namespace: Some("apps".into()),
            controller_namespace: "sluice-system".into(),
            unidentified: None,
            answers: answers.collect(),
        };
        rights::findings(&facts)
    };
    assert_eq!(troubles(&with(&[])), "");
    insta::assert_snapshot!(
        troubles(&with(&["get pipelines", "list pipelines", "approve promotions", "patch pipelines", "list events", "create pods/portforward"])),
        @"
        Error: jane may not use get, status, explain, history in namespace apps: this needs get, list on pipelines.pipelines.weave.works ► ask for the ClusterRole sluice-viewer: docs/approvals.md#decide-who-may
        Warning: jane may not use approve, reject in namespace apps: this needs approve on promotions.pipelines.weave.works ► ask for the ClusterRole sluice-approver: docs/approvals.md#decide-who-may
        Warning: jane may not use suspend, resume in namespace apps: this needs patch on pipelines.pipelines.weave.works ► ask for the ClusterRole sluice-editor: docs/approvals.md#decide-who-may
        Warning: jane may not use events in namespace apps: this needs list on events ► ask for the ClusterRole view
        Warning: jane may not use trace, charts --fleet, images --fleet, clusters --fleet: this needs create on pods/portforward in namespace sluice-system ► ask for the ClusterRole sluice-api-client in namespace sluice-system: docs/fleet.md#reach-the-controller
        "
    );
}

#[test]
fn a_cluster_that_the_controller_cannot_use_is_an_error() {
    let with = |secret: Reading<Option<String>>, kubeconfig: Reading<Kubeconfig>| {
        let cluster = NamedCluster {
            namespace: "fleet".into(),
            name: "eu".into(),
            pipelines: vec!["apps/podinfo".into(), "apps/search".into()],
            secret: Some(secret),
            kubeconfig,
        };
        troubles(&clusters::findings(&[cluster]))
    };
    let named = || Reading::Known(Some("eu-kubeconfig".to_owned()));
    let read = |refused: Option<&str>, program: Option<&str>| {
        let (refused, program) = (refused.map(String::from), program.map(String::from));
        Reading::Known(Kubeconfig::Read { server: "https://eu/".into(), refused, program })
    };
    assert_eq!(with(named(), read(None, None)), "");
    let lines = [
        with(Reading::Absent, Reading::Absent),
        with(Reading::Known(None), Reading::Absent),
        with(named(), Reading::Absent),
        with(named(), Reading::Known(Kubeconfig::NoKey)),
        with(named(), Reading::Known(Kubeconfig::Unreadable("it is not YAML".into()))),
        with(named(), read(Some("has a proxy-url"), None)),
        with(named(), read(None, Some("aws"))),
        with(named(), Reading::Forbidden("get on secrets in namespace fleet".into())),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    Error: GitopsCluster fleet/eu does not exist, but pipelines name it: apps/podinfo, apps/search ► docs/operations.md#add-a-cluster
    Error: GitopsCluster fleet/eu names no Secret ► docs/operations.md#add-a-cluster
    Error: Secret fleet/eu-kubeconfig of GitopsCluster fleet/eu does not exist ► kubectl create secret generic eu-kubeconfig -n fleet --from-file=value=KUBECONFIG; see docs/operations.md#add-a-cluster
    Error: Secret fleet/eu-kubeconfig of GitopsCluster fleet/eu has no kubeconfig under the key value ► kubectl create secret generic eu-kubeconfig -n fleet --from-file=value=KUBECONFIG; see docs/operations.md#add-a-cluster
    Error: the kubeconfig of GitopsCluster fleet/eu (Secret eu-kubeconfig) cannot be used: it is not YAML ► kubectl create secret generic eu-kubeconfig -n fleet --from-file=value=KUBECONFIG; see docs/operations.md#add-a-cluster
    Error: the kubeconfig of GitopsCluster fleet/eu (Secret eu-kubeconfig) has a proxy-url, which the controller refuses ► docs/operations.md#add-a-cluster
    Warning: the kubeconfig of GitopsCluster fleet/eu (Secret eu-kubeconfig) runs the program aws, which the controller refuses by default ► use a token or a client certificate, or start the controller with --insecure-kubeconfig-exec
    Warning: not checked: kubeconfigs in namespace fleet; you lack get on secrets in namespace fleet ► run the check as somebody with this right, or ask the cluster's administrator for it
    ");
}

#[test]
fn flux_is_needed_where_targets_are() {
    let with = |served: Reading<()>, deployments: Vec<Deployment>, targets_here: usize| {
        let version = Reading::Known(Some("v2.8.0".into()));
        troubles(&flux::findings(&Flux {
            served,
            version,
            deployments: Reading::Known(deployments),
            targets_here,
        }))
    };
    let helm = |ready: i32, tag: &str| Deployment {
        namespace: "flux-system".into(),
        name: "helm-controller".into(),
        wanted: 1,
        ready,
        images: vec![format!("ghcr.io/fluxcd/helm-controller:{tag}")],
    };
    assert_eq!(with(Reading::Absent, vec![], 0), "");
    assert_eq!(with(Reading::Known(()), vec![helm(1, "v1.5.0")], 1), "");
    let lines = [
        with(Reading::Absent, vec![], 2),
        with(Reading::Known(()), vec![helm(0, "v1.5.1")], 1),
        with(Reading::Known(()), vec![helm(1, "v1.4.3")], 1),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    Error: 2 targets on this cluster need Flux, and it is not installed ► flux install; see https://fluxcd.io/flux/installation/
    Warning: helm-controller 1.5.1 in namespace flux-system: 0 of 1 replicas are ready ► kubectl describe deployment helm-controller -n flux-system
    Warning: helm-controller before 1.5 does not list the objects of a HelmRelease: Sluice recognizes them by Helm's annotations ► upgrade Flux; see docs/troubleshooting.md#which-workloads-count-for-a-target
    ");
}

/// Returns the findings about a cluster with these fields in the controller's answer, and these images.
fn observed_on(row: Value, images: &[(&str, &str, &str)], pipelines: &[&str]) -> Vec<Finding> {
    let cluster = NamedCluster {
        namespace: "fleet".into(),
        name: "eu".into(),
        pipelines: pipelines.iter().copied().map(String::from).collect(),
        secret: Some(Reading::Known(Some("eu-kubeconfig".into()))),
        kubeconfig: Reading::Forbidden("get on secrets".into()),
    };
    let image = |(name, version, health): &(&str, &str, &str)| {
        let object = format!("Deployment/{}", name.rsplit('/').next().unwrap());
        json!({"name": name, "version": version, "cluster": "fleet/eu", "namespace": "flux-system", "object": object,
            "health": health})
    };
    let mut images: Vec<Value> = images.iter().map(image).collect();
    // The hub and other clusters do not matter.
    images.push(json!({"name": "helm-controller", "version": "v1.0.0", "cluster": "fleet/us", "namespace": "flux-system",
        "object": "Deployment/helm-controller", "health": "Failed"}));
    let of = |value: Value| serde_json::from_value(value).unwrap();
    let answer = Observed::Answered {
        clusters: vec![of(row)],
        images: serde_json::from_value(images.into()).unwrap(),
    };
    observed::findings(&answer, &[cluster])
}

#[test]
fn flux_on_other_clusters_is_what_the_controller_sees() {
    let row = |state: &str, message: &str| json!({"name": "fleet/eu", "state": state, "message": message, "objects": 9});
    let flux = |helm: &'static str, health: &'static str| {
        [
            ("ghcr.io/fluxcd/source-controller", "v1.7.0", "Ready"),
            ("registry.example.com/mirror/helm-controller", helm, health),
            ("registry.k8s.io/ingress-nginx/ingress-controller", "v1.0.0", "Failed"),
        ]
    };
    let good = observed_on(row("Up", ""), &flux("v1.5.0", "Ready"), &["apps/podinfo"]);
    assert_eq!(good[0].message, "fleet/eu runs helm-controller 1.5.0, source-controller 1.7.0");
    assert_eq!((troubles(&good).as_str(), good.len()), ("", 1));
    let none = observed_on(row("Up", ""), &[], &[]);
    assert!(troubles(&none).is_empty() && none[0].message.contains("no checked pipeline has a target"));
    let other = json!({"name": "fleet/us", "state": "Up", "objects": 0});
    assert!(observed_on(other.clone(), &[], &[]).is_empty(), "nobody needs it");
    let refused = "connection refused: start its API server";
    let lines = [
        observed_on(row("Up", ""), &flux("v1.4.3", "Progressing"), &["apps/podinfo"]),
        observed_on(row("Partial", "may not list buckets"), &flux("v1.5.0", "Ready"), &["apps/podinfo"]),
        observed_on(row("Up", ""), &[], &["apps/podinfo"]),
        observed_on(row("Connecting", ""), &[], &["apps/podinfo"]),
        observed_on(row("Lost", refused), &[], &[]),
        observed_on(other, &[], &["apps/podinfo"]),
        observed::findings(
            &Observed::Unanswered { why: "no pod of the controller is ready".into(), fix: None },
            &[],
        ),
    ];
    insta::assert_snapshot!(lines.map(|findings| troubles(&findings)).join("\n"), @"
    Warning: deployment/helm-controller in namespace flux-system on fleet/eu is Progressing ► on that cluster: kubectl describe deployment/helm-controller -n flux-system
    Warning: helm-controller before 1.5 on fleet/eu does not list the objects of a HelmRelease: Sluice recognizes them by Helm's annotations ► upgrade Flux; see docs/troubleshooting.md#which-workloads-count-for-a-target
    Warning: the controller cannot read all of fleet/eu: may not list buckets ► docs/operations.md#choose-what-sluice-observes
    Warning: the controller sees no Deployment of Flux on fleet/eu ► if Flux is missing there: flux install; if not: docs/operations.md#choose-what-sluice-observes
    Warning: the controller has not read fleet/eu yet ► wait a moment, and check again
    Error: the controller cannot read fleet/eu: connection refused: start its API server ► docs/operations.md#add-a-cluster
    Warning: the controller does not show GitopsCluster fleet/eu: it does not observe it, or you may not get it ► kubectl auth can-i get gitopsclusters/eu -n fleet; see docs/operations.md#choose-what-sluice-observes
    Warning: not checked: whether the controller can read the clusters, and which Flux they run; no pod of the controller is ready ► docs/fleet.md#reach-the-controller
    ");
}

#[test]
fn commands_that_the_api_rejects_are_not_called_allowed() {
    let needs_pods: Vec<_> = rights::all().into_iter().filter(|right| right.near_controller).collect();
    let facts = Rights {
        user: Some("jane".into()),
        namespace: Some("apps".into()),
        controller_namespace: "sluice-system".into(),
        unidentified: Some(("the API needs a token".into(), "use a token".into())),
        answers: needs_pods.into_iter().map(|right| (right, Reading::Known(true))).collect(),
    };
    let findings = rights::findings(&facts);
    insta::assert_snapshot!(troubles(&findings), @"
    Warning: jane may not use trace, charts --fleet, images --fleet, clusters --fleet: the API needs a token ► use a token: docs/fleet.md#reach-the-controller
    ");
    assert_eq!(findings.len(), 1, "{findings:?}");
}

/// Returns a pipeline with these strategies in three environments.
fn with_strategies(url: &str) -> Pipeline {
    let strategy = json!({"pull-request": {"type": "github", "url": url, "secretRef": {"name": "forge"}},
        "secretRef": {"name": "hooks"}});
    let commit = json!({"commit": {"url": url, "secretRef": {"name": "git"}}});
    let webhook = json!({"webhook": {"url": "https://ci.example.com", "secretRef": {"name": "ci"}}});
    let environment = |name: &str, strategy: Value| json!({"name": name, "targets": [{"namespace": "podinfo"}], "promotion": {"strategy": strategy}});
    serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": "apps"},
        "spec": {"environments": [
            environment("dev", strategy), environment("staging", commit), environment("prod", webhook)]},
    }))
    .unwrap()
}

fn named(namespace: &str, name: &str) -> ObjectName {
    ObjectName { namespace: namespace.into(), name: name.into() }
}

#[test]
fn a_secret_needs_the_keys_of_its_use() {
    let with = |url: &str, secrets: &[(&str, Reading<Secret>)]| {
        let of = |(name, secret): &(&str, Reading<Secret>)| (named("apps", name), secret.clone());
        let needs = pipeline_secrets::needs(&with_strategies(url));
        troubles(&pipeline_secrets::findings(&Secrets { needs, found: secrets.iter().map(of).collect() }))
    };
    let keys = |keys: &[&str]| {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Reading::Known(Secret { type_: "Opaque".into(), used_by: None, keys })
    };
    let locked = |type_: &str, used_by: Option<&str>| {
        let keys = ["token", "hmac-key"].map(String::from).into();
        Reading::Known(Secret { type_: type_.into(), used_by: used_by.map(String::from), keys })
    };
    let https = "https://git.example.com/fleet.git";
    let app = keys(&["githubAppID", "githubAppPrivateKey"]);
    let push = keys(&["report-key.edge"]);
    assert_eq!(
        with(
            https,
            &[("forge", app), ("hooks", push), ("git", keys(&["username", "password"])), ("ci", keys(&[]))]
        ),
        ""
    );
    let none = keys(&["username", "caFile"]);
    insta::assert_snapshot!(
        with(https, &[("forge", none.clone()), ("hooks", keys(&["token"])), ("git", none), ("ci", keys(&["proxy"]))]),
        @"
        Error: Secret apps/ci (for the strategy webhook of pipeline podinfo) has the key proxy, which this version refuses ► docs/strategies/webhook.md#the-secret
        Error: Secret apps/forge (for the strategy pull-request of pipeline podinfo) has none of the keys token, password, or githubAppID with githubAppPrivateKey ► docs/forges/README.md
        Error: Secret apps/git (for the strategy commit of pipeline podinfo) has none of the keys token, password, or githubAppID with githubAppPrivateKey ► docs/strategies/commit.md#the-secret
        Error: Secret apps/hooks (for the hooks of pipeline podinfo) has no key for hooks, such as hmac-key ► docs/hooks.md#create-the-keys
        "
    );
    insta::assert_snapshot!(
        with(
            "git@git.example.com:fleet.git",
            &[
                ("forge", keys(&["identity", "known_hosts"])),
                ("hooks", locked("Opaque", Some("commit, webhook"))),
                ("git", keys(&["identity"])),
                ("ci", locked("helm.sh/release.v1", None)),
            ],
        ),
        @r#"
        Error: Secret apps/ci is not for the strategy webhook of pipeline podinfo: its type is helm.sh/release.v1, and it has no annotation pipelines.weave.works/used-by ► docs/operations.md#who-may-use-a-secret
        Error: Secret apps/forge (for the strategy pull-request of pipeline podinfo) has keys for git, and no token for the forge ► docs/forges/README.md
        Error: Secret apps/git (for the strategy commit of pipeline podinfo) has no key known_hosts ► docs/strategies/commit.md#the-secret
        Error: Secret apps/hooks is not for the hooks of pipeline podinfo: its annotation pipelines.weave.works/used-by is "commit, webhook" ► docs/operations.md#who-may-use-a-secret
        "#
    );
    let forbidden = || Reading::Forbidden("get on secrets in namespace apps".to_owned());
    insta::assert_snapshot!(
        with(https, &[("forge", forbidden()), ("hooks", locked("x", Some("hook"))), ("git", forbidden())]),
        @"
        Error: Secret apps/ci (for the strategy webhook of pipeline podinfo) does not exist ► create it: docs/strategies/webhook.md#the-secret
        Warning: not checked: Secrets in namespace apps; you lack get on secrets in namespace apps ► run the check as somebody with this right, or ask the cluster's administrator for it
        Warning: not checked: Secrets in namespace apps; you lack get on secrets in namespace apps ► run the check as somebody with this right, or ask the cluster's administrator for it
        "
    );
}

#[test]
fn clocks_that_differ_are_found() {
    let with = |here: i64, newest: i64| {
        let at = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let newest = Some((at(newest), "Lease sluice.shard-0".into()));
        let of = ClockOf::Command;
        troubles(&clocks::findings(&Clocks { of, here: at(here), server: Reading::Known(now()), newest }))
    };
    assert_eq!(with(4, -600), "");
    assert_eq!(with(-4, 4), "");
    let lines = [with(60, 0), with(-7300, 0), with(0, 300)];
    insta::assert_snapshot!(lines.join("\n"), @"
    Warning: the clock of this machine is 60 s ahead of the API server's: shown ages are wrong ► set the clock of the wrong machine by NTP
    Error: the clock of this machine is 2 hours behind the API server's: tokens and certificates may be refused ► set the clock of the wrong machine by NTP
    Warning: the controller's clock is at least 5 minutes ahead of the API server's: see Lease sluice.shard-0 ► set the clock of the wrong machine by NTP
    ");
    let without =
        Clocks { of: ClockOf::Api, here: Timestamp::UNIX_EPOCH, server: Reading::Absent, newest: None };
    assert_eq!(clocks::findings(&without)[0].severity, Severity::Warning);
}

#[test]
fn values_that_cannot_be_set_are_errors() {
    let of = |environment: &str, found: Result<usize, &str>| EnvironmentValues {
        pipeline: "apps/podinfo".into(),
        environment: environment.into(),
        found: found.map_err(String::from),
    };
    let values = Values {
        repository: "https://git.example.com/fleet".into(),
        environments: vec![of("staging", Ok(2)), of("prod", Err("NoMarker: no file has the marker"))],
        other_repositories: vec!["https://git.example.com/other".into()],
    };
    insta::assert_snapshot!(troubles(&values::findings(&values)), @"
    Error: prod of pipeline apps/podinfo: NoMarker: no file has the marker ► docs/setting-values.md
    Warning: not checked: the values in https://git.example.com/other ► sluice check --repository https://git.example.com/other --checkout DIR, with a checkout of it
    ");
    let ok = values::findings(&values).into_iter().find(|finding| finding.severity == Severity::Ok).unwrap();
    assert_eq!(ok.message, "https://git.example.com/fleet has 2 values to set, for 1 environment");
    assert_eq!(troubles(&values::findings(&Values::default())), "");
    let none = Values { environments: vec![of("prod", Err("NoMarker"))], ..Values::default() };
    assert!(values::findings(&none).iter().all(|finding| finding.severity == Severity::Error));
}

/// Facts in which one cluster names no Secret, and is there twice.
fn facts(served: Reading<()>) -> CheckFacts<'static> {
    let clusters = ["eu", "us", "us"].map(|name| NamedCluster {
        namespace: "fleet".into(),
        name: name.into(),
        pipelines: vec![],
        secret: Some(Reading::Known((name == "eu").then(|| "s".into()))),
        kubeconfig: Reading::Known(Kubeconfig::Read {
            server: "https://eu/".into(),
            refused: None,
            program: None,
        }),
    });
    CheckFacts {
        installation: Some(Installation {
            definitions: Definitions { served, ..installed() },
            controller: controller_with(vec![], vec![lease("a", 1)]),
            rights: Rights {
                user: None,
                namespace: None,
                controller_namespace: "sluice-system".into(),
                unidentified: None,
                answers: vec![],
            },
            flux: Flux {
                served: Reading::Absent,
                version: Reading::Absent,
                deployments: Reading::Absent,
                targets_here: 0,
            },
            hooks: Hooks {
                pipelines: &[],
                are_all: true,
                namespace: None,
                providers: Reading::Absent,
                alerts: Reading::Absent,
                receivers: Reading::Absent,
                secrets: Default::default(),
            },
            clocks: Clocks { of: ClockOf::Command, here: now(), server: Reading::Known(now()), newest: None },
        }),
        clusters: clusters.to_vec(),
        observed: Observed::NoClusters,
        secrets: Some(Secrets::default()),
        pipelines: Pipelines {
            namespace: None,
            found: Reading::Known((&[], vec![])),
            promotions: Reading::Known(vec![]),
        },
        values: None,
    }
}

#[test]
fn a_report_counts_each_finding_once_and_shows_the_worst_of_a_topic_first() {
    let report = check(&facts(Reading::Known(())));
    assert_eq!((report.errors, report.warnings), (1, 0), "{report:?}");
    let clusters: Vec<&str> = report
        .findings
        .iter()
        .filter(|finding| finding.message.contains("GitopsCluster"))
        .map(|finding| finding.message.as_str())
        .collect();
    assert_eq!(
        clusters,
        ["GitopsCluster fleet/us names no Secret", "GitopsCluster fleet/eu leads to https://eu/"]
    );
    // If the definitions are missing, findings that would only repeat that are left out.
    assert_eq!(check(&facts(Reading::Absent)).findings.len(), 3);
}

#[test]
fn without_the_installation_the_other_topics_are_checked() {
    let observed = check(&CheckFacts { installation: None, ..facts(Reading::Known(())) });
    let topics: Vec<Topic> = observed.findings.iter().map(|finding| finding.topic).collect();
    assert_eq!(topics, [Topic::Clusters, Topic::Clusters, Topic::Pipelines]);
}

/// Every page and heading that a fix names exists.
#[test]
fn fixes_name_pages_that_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let anchor = |heading: &str| {
        let words: String =
            heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-')).collect();
        words.to_lowercase().replace(' ', "-")
    };
    let mut named = 0;
    for file in std::fs::read_dir(format!("{root}/crates/view/src/check")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let link = text[at..].split(['"', ' ', ';', ')']).next().unwrap();
            let (page, heading) = link.split_once('#').unwrap_or((link, ""));
            let page = std::fs::read_to_string(format!("{root}/{page}")).unwrap();
            let headings = page.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor(line.trim_start_matches(['#', ' '])));
            assert!(heading.is_empty() || anchors.any(|there| there == heading), "{link}");
            named += 1;
        }
    }
    assert!(named > 10, "{named}");
}
