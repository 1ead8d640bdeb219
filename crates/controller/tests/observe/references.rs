//! References of images and branches, in the forms that users and Flux write.

use serde_json::{Value, json};
use sluice_api::workload::Workload;
use sluice_controller::observe::facts::workload;
use sluice_core::fleet::{Fact, Kind};
use sluice_core::image;

use crate::support::{deployment, fact, with};

#[test]
fn an_image_reference_is_split_into_repository_and_tag() {
    let sum = "sha256:3b6cdcc7adcc9a84d3214ee1c029543789d90b5ae69debe9efa3f66e982875de";
    let table = [
        ("podinfo", "podinfo", "latest"),
        ("podinfo:6.1.8", "podinfo", "6.1.8"),
        ("ghcr.io/stefanprodan/podinfo:6.1.8", "ghcr.io/stefanprodan/podinfo", "6.1.8"),
        ("registry:5000/podinfo", "registry:5000/podinfo", "latest"),
        ("registry:5000/team/podinfo:6.1.8", "registry:5000/team/podinfo", "6.1.8"),
        (&format!("ghcr.io/podinfo@{sum}"), "ghcr.io/podinfo", sum),
        (&format!("registry:5000/podinfo@{sum}"), "registry:5000/podinfo", sum),
        (&format!("ghcr.io/podinfo:6.1.8@{sum}"), "ghcr.io/podinfo", "6.1.8"),
    ];
    for (reference, repository, tag) in table {
        assert_eq!(image::parts(reference), (repository.to_string(), tag.to_string()), "{reference}");
    }
}

#[test]
fn the_images_of_a_workload_are_those_of_all_containers_in_order() {
    let pod = json!({"spec": {"initContainers": [{"image": "migrate:1"}],
        "containers": [{"image": "web:2"}, {"name": "no image yet"}, {"image": "proxy:3"}]}});
    let images = |object: &Value| match fact(object).1 {
        Fact::Workload(workload) => workload.images,
        other => panic!("{other:?}"),
    };
    let object = deployment("apps", "web", ("helm", "apps", "web"), "");
    assert!(images(&object).is_empty());
    assert_eq!(
        images(&with(object.clone(), "spec/template", pod.clone())),
        ["migrate:1", "web:2", "proxy:3"]
    );
    let cron_job = with(object, "kind", "CronJob".into());
    let cron_job = with(cron_job, "spec", json!({"jobTemplate": {"spec": {"template": pod}}}));
    assert_eq!(images(&cron_job), ["migrate:1", "web:2", "proxy:3"]);
}

#[test]
fn a_workload_without_the_labels_of_flux_is_only_shown() {
    let mut object = deployment("apps", "web", ("helm", "apps", "web"), "web:1");
    object["metadata"]["labels"] = json!({"app": "web", "helm.toolkit.fluxcd.io/name": "web"});
    let workload: Workload = serde_json::from_value(object).unwrap();
    let fact = workload::facts(Kind::Deployment, &workload);
    assert!(fact.is_only_shown() && fact.owner().is_none(), "{fact:?}");
}

#[test]
fn the_branch_of_a_git_source_is_the_one_that_flux_follows() {
    let table: [(Value, &str); 12] = [
        (Value::Null, "master"),
        (json!({}), "master"),
        (json!({"branch": "main"}), "main"),
        (json!({"branch": "feature/x"}), "feature/x"),
        (json!({"name": "refs/heads/release"}), "release"),
        // In Flux the name takes precedence over all other fields, and tag and range over the branch.
        (json!({"name": "refs/heads/release", "branch": "main"}), "release"),
        (json!({"name": "refs/tags/v1", "branch": "main"}), ""),
        (json!({"name": "refs/pull/7/head"}), ""),
        (json!({"tag": "v1.2.3"}), ""),
        (json!({"semver": ">=1.0.0", "branch": "main"}), ""),
        (json!({"tag": "v1.2.3", "branch": "main"}), ""),
        (json!({"commit": "6a19e380336e08b2c9535434389af69359f9b1f0", "branch": "main"}), ""),
    ];
    for (reference, branch) in table {
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"namespace": "apps", "name": "fleet"},
            "spec": {"url": "https://example.com/fleet.git", "ref": reference}});
        match fact(&source).1 {
            Fact::Source(found) => {
                assert_eq!(
                    (found.repository.branch.as_str(), found.repository.url.as_str()),
                    (branch, "https://example.com/fleet.git"),
                    "{source}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
