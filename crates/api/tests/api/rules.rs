//! Tests of the rules in the definition of Pipeline. Each rule refuses invalid values with a message that says what to
//! write, and accepts all other values.

use std::collections::VecDeque;

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};
use sluice_api::Pipeline;

use crate::hub::validate;

fn pipeline() -> Value {
    let environment = |name: &str| json!({"name": name, "targets": [{"namespace": "apps"}]});
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
        "spec": {
            "environments": [environment("dev"), environment("staging"), environment("prod")],
            "promotion": {"strategy": {"notification": {}}},
        },
    })
}

/// Returns the pipeline with another value at this path.
fn with(path: &str, value: Value) -> Value {
    let mut object = pipeline();
    let mut at = &mut object["spec"];
    for step in path.split('/') {
        at = match step.parse::<usize>() {
            Ok(place) => &mut at[place],
            Err(_) => {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
            }
        };
    }
    *at = value;
    object
}

/// Asserts that each row is refused with its message.
async fn refused(rows: &[(&str, Value, &str)]) {
    for (path, value, sentence) in rows {
        match validate(&with(path, value.clone())).await {
            Ok(_) => panic!("{path}: {value} was accepted"),
            Err(error) => assert!(error.contains(sentence), "{path}: {value} was refused with: {error}"),
        }
    }
}

/// Asserts that each row is accepted.
async fn accepted(rows: &[(&str, Value)]) {
    for (path, value) in rows {
        if let Err(error) = validate(&with(path, value.clone())).await {
            panic!("{path}: {value} was refused with: {error}");
        }
    }
}

#[tokio::test]
async fn a_pipeline_has_environments_with_unique_names() {
    accepted(&[("suspend", true.into()), ("suspend", false.into())]).await;
    refused(&[
        ("environments/2/name", "dev".into(), "two environments have the same name: give each its own"),
        ("environments", json!([]), "spec.environments in body should have at least 1 items"),
        (
            "environments/0/targets",
            json!([]),
            "spec.environments[0].targets in body should have at least 1 items",
        ),
    ])
    .await;
}

#[tokio::test]
async fn names_have_the_form_of_kubernetes_names() {
    let rule =
        "name is made of lower-case letters, digits and '-', and starts and ends with a letter or digit";
    let environment = format!("an environment's {rule}");
    let target = format!("a target's {rule}");
    let namespace = format!("a namespace's {rule}");
    for name in ["Dev", "-dev", "dev-", "dev_1", "dev/eu", "dev.eu", "dév"] {
        refused(&[
            ("environments/0/name", name.into(), &environment),
            ("environments/0/targets/0/name", name.into(), &target),
            ("environments/0/targets/0/namespace", name.into(), &namespace),
        ])
        .await;
    }
    let long = "d".repeat(64);
    refused(&[
        (
            "environments/0/name",
            "".into(),
            "spec.environments[0].name in body should be at least 1 chars long",
        ),
        ("environments/0/name", long.clone().into(), "Too long: may not be more than 63 bytes"),
        ("environments/0/targets/0/name", long.into(), "Too long: may not be more than 63 bytes"),
        ("environments/0/targets/0/namespace", "".into(), "should be at least 1 chars long"),
    ])
    .await;
    accepted(&[
        ("environments/0/name", "1".into()),
        ("environments/0/name", "d".repeat(63).into()),
        ("environments/0/targets/0/name", "eu-1".into()),
    ])
    .await;
}

#[tokio::test]
async fn the_name_of_a_secret_cannot_be_another_request() {
    let rule = "a Secret's name is made of lower-case letters, digits, '-' and '.', and starts and ends with a letter or digit";
    let commit = |secret: &str| json!({"commit": {"url": "https://git.example.com/a/b", "branch": "main", "secretRef": {"name": secret}}});
    for name in ["?x=1", "git?x=1", "git#", "git/", "../../team-b/secrets/git", "Git", "a,b", ""] {
        let expected = if name.is_empty() { "should be at least 1 chars long" } else { rule };
        refused(&[("promotion", json!({"strategy": commit(name)}), expected)]).await;
    }
    accepted(&[("promotion", json!({"strategy": commit("fleet-git.v2")}))]).await;
}

#[tokio::test]
async fn targets_of_an_environment_have_unique_names() {
    let two = |a: Value, b: Value| json!([a, b]);
    let named = |name: &str| json!({"namespace": "apps", "name": name});
    let nameless = || json!({"namespace": "apps"});
    refused(&[(
        "environments/0/targets",
        two(named("eu"), named("eu")),
        "two targets of this environment have the same name: give each its own",
    )])
    .await;
    accepted(&[
        ("environments/0/targets", two(named("eu"), named("us"))),
        ("environments/0/targets", two(nameless(), nameless())),
        ("environments/0/targets", two(named("eu"), nameless())),
    ])
    .await;
}

/// The API server evaluates each rule in each write of a status. A rule that compared the 128 targets of an environment with each
/// other took ten seconds for 16 environments.
#[test]
fn no_rule_of_a_long_list_goes_through_it_for_each_element() {
    let mut schemas = VecDeque::from([serde_json::to_value(Pipeline::crd()).unwrap()]);
    let mut rules_of_long_lists = 0;
    while let Some(schema) = schemas.pop_front() {
        if schema["maxItems"].as_u64().is_some_and(|most| most > 16) {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let rule = rule["rule"].as_str().unwrap();
                assert!(rule.matches("self").count() == 1, "{rule} uses the list more than once");
                rules_of_long_lists += 1;
            }
        }
        match schema {
            Value::Object(fields) => schemas.extend(fields.into_iter().map(|(_, value)| value)),
            Value::Array(elements) => schemas.extend(elements),
            _ => {}
        }
    }
    assert!(rules_of_long_lists > 0);
}

#[tokio::test]
async fn after_names_only_earlier_environments() {
    let sentence = "after may only name earlier environments of the list: correct the name, move the environment \
                    down, or remove the name from after";
    refused(&[
        ("environments/1/after", json!(["prod"]), sentence),
        ("environments/1/after", json!(["staging"]), sentence),
        ("environments/2/after", json!(["dev", "qa"]), sentence),
        ("environments/0/after", json!(["dev"]), sentence),
        ("environments/0/after", json!(["prod"]), sentence),
    ])
    .await;
    accepted(&[
        ("environments/2/after", json!(["dev"])),
        ("environments/2/after", json!(["dev", "staging"])),
        ("environments/0/after", json!([])),
    ])
    .await;
}

#[tokio::test]
async fn sixteen_environments_are_the_most_and_the_last_may_name_the_first() {
    let environment = |i: usize| json!({"name": format!("e{i}"), "targets": [{"namespace": "apps"}]});
    let mut most: Vec<Value> = (0..16).map(environment).collect();
    accepted(&[("environments", most.clone().into())]).await;
    most[15]["after"] = json!(["e0", "e14"]);
    accepted(&[("environments", most.clone().into())]).await;
    most[15]["after"] = json!(["e15"]);
    refused(&[("environments", most.clone().into(), "after may only name earlier environments")]).await;
    most.push(environment(16));
    refused(&[("environments", most.into(), "spec.environments: Too many: 17: must have at most 16 items")])
        .await;
}

#[tokio::test]
async fn exactly_one_strategy_is_accepted() {
    let request = json!({"type": "github", "url": "https://github.com/org/fleet", "baseBranch": "main",
        "secretRef": {"name": "forge"}});
    let commit = json!({"url": "https://github.com/org/fleet", "branch": "main"});
    let webhook = json!({"url": "https://ci.example/hook"});
    let one = "a strategy is exactly one of pull-request, commit, notification and webhook";
    refused(&[
        ("promotion/strategy", json!({}), one),
        ("promotion/strategy", json!({"secretRef": {"name": "hmac"}}), one),
        ("promotion/strategy", json!({"pull-request": request, "notification": {}}), one),
        ("promotion/strategy", json!({"commit": commit, "webhook": webhook}), one),
        ("environments/1/promotion/strategy", json!({"commit": commit, "pull-request": request}), one),
        (
            "promotion",
            json!({}),
            "promotion needs a strategy: write promotion: {strategy: {pull-request: {...}}}",
        ),
        ("promotion", json!({"manual": true}), "promotion needs a strategy"),
        ("environments/1/promotion", json!({"manual": true}), "promotion needs a strategy"),
    ])
    .await;
    accepted(&[
        ("promotion/strategy", json!({"pull-request": request, "secretRef": {"name": "hmac"}})),
        ("promotion/strategy", json!({"commit": commit})),
        ("promotion/strategy", json!({"notification": {}})),
        ("promotion/strategy", json!({"webhook": webhook})),
        ("environments/1/promotion/strategy", json!({"pull-request": request})),
    ])
    .await;
}

#[tokio::test]
async fn a_branch_is_written_without_refs_heads() {
    let strategies = |branch: &str| {
        let url = "https://github.com/org/fleet";
        let request =
            json!({"type": "github", "url": url, "baseBranch": branch, "secretRef": {"name": "forge"}});
        [json!({"commit": {"url": url, "branch": branch}}), json!({"pull-request": request})]
    };
    let rule = "write the name of the branch without refs/heads/, for example main";
    for strategy in ["refs/heads/main", "refs/x"].into_iter().flat_map(strategies) {
        refused(&[("promotion/strategy", strategy, rule)]).await;
    }
    for strategy in ["main", "refs", "release/refs/heads"].into_iter().flat_map(strategies) {
        accepted(&[("promotion/strategy", strategy)]).await;
    }
}

#[tokio::test]
async fn every_supported_forge_is_a_type() {
    let on = |forge: &str| {
        json!({"pull-request": {"type": forge, "url": "https://forge.example/org/fleet.git",
        "secretRef": {"name": "forge"}}})
    };
    for forge in ["github", "gitlab", "gitea", "forgejo", "bitbucket", "bitbucket-server", "azure-devops"] {
        accepted(&[("promotion/strategy", on(forge))]).await;
    }
    let sentence = "supported values: \"github\", \"gitlab\", \"gitea\", \"forgejo\", \"bitbucket\", \"bitbucket-server\", \
                    \"azure-devops\"";
    refused(&[("promotion/strategy", on("sourceforge"), sentence)]).await;
    let stored = validate(&with("promotion/strategy", on("github"))).await.unwrap();
    let request = &stored.data["spec"]["promotion"]["strategy"]["pull-request"];
    assert_eq!(request["baseBranch"], "main", "the default");
}

#[tokio::test]
async fn an_entry_of_update_has_a_valid_path_and_field() {
    let with_entry = |field: &str, value: Value| {
        let mut entry = json!({"path": "prod/podinfo.yaml", "field": "spec.version"});
        entry[field] = value;
        json!({"commit": {"url": "https://git.example.com/a/b", "update": [entry]}})
    };
    for (field, wrong, sentence) in [
        ("path", "", "should be at least 1 chars long"),
        ("path", "{env}/a.yaml", "a path may have the placeholders {environment}, {target}"),
        ("path", "{a,b}.yaml", "and no other braces: write an entry for each"),
        ("field", "", "should be at least 1 chars long"),
        ("field", ".a", "a field is a path such as spec.values.image.tag"),
        ("field", "a..b", "a field is a path such as"),
        ("field", "a[b]", "a field is a path such as"),
        ("field", "a b", "a field is a path such as"),
        ("value", "version", "value is chart, app, tag, digest, source or image:<repository>"),
        ("value", "images", "value is chart, app, tag"),
        ("value", "image:", "value is chart, app, tag"),
    ] {
        refused(&[("promotion/strategy", with_entry(field, wrong.into()), sentence)]).await;
    }
    for (field, right) in [
        ("path", "clusters/{cluster}/{environment}/**/{target}-{namespace}.yml"),
        ("field", "a"),
        ("field", "spec.template.spec.containers[name=app].image"),
        ("field", "images[name=ghcr.io/stefanprodan/podinfo].newTag"),
        ("field", "[0][12].a[\"example.com/v\"].{environment}"),
        ("value", "image:ghcr.io/stefanprodan/podinfo"),
        ("kind", "HelmRelease"),
        ("name", "podinfo-{environment}"),
        ("workload", "HelmRelease/podinfo"),
    ] {
        accepted(&[("promotion/strategy", with_entry(field, right.into()))]).await;
    }
    let most: Vec<Value> = (0..33).map(|i| json!({"path": format!("{i}.yaml"), "field": "a"})).collect();
    let most = json!({"commit": {"url": "https://git.example.com/a/b", "update": most}});
    refused(&[("promotion/strategy", most, "must have at most 32 items")]).await;
}

#[tokio::test]
async fn tracks_has_only_facets() {
    let sentence = "tracks may have chart, app, images, tag, digest, source and image:<repository>";
    refused(&[
        ("tracks", json!(["version"]), sentence),
        ("tracks", json!(["image:"]), sentence),
        ("tracks", json!(["image"]), sentence),
        ("tracks", json!(["chart", ""]), sentence),
        ("tracks", json!(["Chart"]), sentence),
    ])
    .await;
    accepted(&[
        ("tracks", json!([])),
        ("tracks", json!(["chart", "app", "images", "tag", "digest", "source"])),
        ("tracks", json!(["chart", "image:registry:5000/team/podinfo"])),
    ])
    .await;
}

#[tokio::test]
async fn a_timeout_is_a_readable_duration() {
    let sentence = "timeout is a duration such as 30m or 1h30m";
    for timeout in ["", "30", "m", "1d", "0s", "0h0m", "30m1h", "1h1h", "1.5h", "-5m", "999999h"] {
        refused(&[("promotion/timeout", timeout.into(), sentence)]).await;
    }
    for timeout in ["30m", "1h30m", "90s", "1h0m5s", "99999h"] {
        accepted(&[("promotion/timeout", timeout.into())]).await;
    }
}

#[tokio::test]
async fn min_ready_targets_is_a_number_or_a_percentage() {
    let sentence = "minReadyTargets is a number from 1 to 128, or a percentage from 1% to 100%";
    for wrong in
        [json!(0), json!(-1), json!("0%"), json!("101%"), json!("3"), json!("%"), json!("all"), json!("050%")]
    {
        refused(&[("promotion/minReadyTargets", wrong, sentence)]).await;
    }
    for right in [json!(1), json!(3), json!("1%"), json!("50%"), json!("100%")] {
        accepted(&[("promotion/minReadyTargets", right)]).await;
    }
}

#[tokio::test]
async fn references_have_supported_kinds() {
    let cluster = |kind: &str| json!({"kind": kind, "name": "dev"});
    let workload = |kind: &str| json!([{"kind": kind, "name": "podinfo"}]);
    refused(&[
        ("environments/0/targets/0/clusterRef", cluster("Cluster"), "supported values: \"GitopsCluster\""),
        (
            "environments/0/targets/0/workloads",
            workload("Deployment"),
            "supported values: \"Kustomization\", \"HelmRelease\"",
        ),
    ])
    .await;
    accepted(&[
        ("environments/0/targets/0/clusterRef", cluster("GitopsCluster")),
        ("environments/0/targets/0/workloads", workload("Kustomization")),
        ("environments/0/targets/0/workloads", workload("HelmRelease")),
    ])
    .await;
}

#[tokio::test]
async fn a_missing_field_is_named_by_its_path() {
    let without = |path: &[&str], field: &str| {
        let mut object = pipeline();
        let mut at = &mut object;
        for step in path {
            at = match step.parse::<usize>() {
                Ok(place) => &mut at[place],
                Err(_) => &mut at[*step],
            };
        }
        at.as_object_mut().unwrap().remove(field);
        object
    };
    let table = [
        (without(&["spec"], "environments"), "spec.environments: Required value"),
        (without(&["spec", "environments", "0"], "name"), "spec.environments[0].name: Required value"),
        (without(&["spec", "environments", "0"], "targets"), "spec.environments[0].targets: Required value"),
        (
            without(&["spec", "environments", "0", "targets", "0"], "namespace"),
            "spec.environments[0].targets[0].namespace: Required value",
        ),
        (without(&[], "spec"), "spec: Required value"),
    ];
    for (object, sentence) in table {
        let error = validate(&object).await.expect_err(sentence);
        assert!(error.contains(sentence), "{error}");
    }
}

/// Returns a pipeline whose last environment has a target with `observe: Push`, with these changes.
fn pushed(changes: &[(&str, Value)]) -> Value {
    let mut object = with(
        "environments/2/targets/0",
        json!({"namespace": "apps", "observe": "Push", "clusterRef": {"kind": "GitopsCluster", "name": "edge"},
            "workloads": [{"kind": "HelmRelease", "name": "podinfo"}]}),
    );
    object["spec"]["promotion"] = json!({"strategy": {"notification": {}, "secretRef": {"name": "hook"}}});
    for (pointer, value) in changes {
        *object["spec"].pointer_mut(pointer).unwrap() = value.clone();
    }
    object
}

#[tokio::test]
async fn a_target_with_observe_push_needs_a_cluster_workloads_and_a_key() {
    let keyless = json!({"strategy": {"notification": {}}});
    let app = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"});
    let without_workloads = json!({"namespace": "apps", "observe": "Push", "clusterRef": {"kind": "GitopsCluster", "name": "edge"}});
    let without_cluster =
        json!({"namespace": "apps", "observe": "Push", "workloads": [{"kind": "HelmRelease", "name": "a"}]});
    let mut tracked = pushed(&[]);
    for (tracks, passes) in
        [(json!(["chart", "app"]), true), (json!(["images"]), false), (json!(["image:a"]), false)]
    {
        tracked["spec"]["tracks"] = tracks;
        let error = validate(&tracked).await.err().unwrap_or_default();
        assert_eq!(error.is_empty(), passes, "{error}");
        assert!(passes || error.contains("tracks may name chart, app, tag, digest and source"), "{error}");
    }
    let mut named = pushed(&[("/environments/2/targets/0", without_workloads.clone())]);
    named["spec"]["appRef"] = app;
    let mut own = pushed(&[("/promotion", keyless.clone())]);
    own["spec"]["environments"][2]["promotion"] =
        json!({"strategy": {"notification": {}, "secretRef": {"name": "hook"}}});
    let mut elsewhere = pushed(&[("/promotion", keyless.clone())]);
    elsewhere["spec"]["environments"][1]["promotion"] =
        json!({"strategy": {"notification": {}, "secretRef": {"name": "hook"}}});
    let mut watched = pushed(&[("/promotion", keyless.clone())]);
    watched["spec"]["environments"][2]["targets"][0]["observe"] = "Watch".into();
    for passes in [pushed(&[]), named, own, watched] {
        validate(&passes).await.unwrap();
    }
    for (object, sentence) in [
        (
            pushed(&[("/environments/2/targets/0", without_workloads)]),
            "name its application in spec.appRef, or in the target's workloads",
        ),
        (
            pushed(&[("/environments/2/targets/0", without_cluster)]),
            "needs a clusterRef: its events must name that cluster",
        ),
        (
            pushed(&[("/promotion", keyless)]),
            "name a Secret with a key report-key.<cluster> for each cluster in promotion.strategy.secretRef",
        ),
        // The key of an earlier environment is not accepted for reports about this one.
        (elsewhere, "of its environment or of one that comes after it"),
        (
            pushed(&[("/environments/2/targets/0/observe", "Pull".into())]),
            "supported values: \"Watch\", \"Push\"",
        ),
    ] {
        let error = validate(&object).await.expect_err(sentence);
        assert!(error.contains(sentence), "{error}");
    }
}
