//! The draft of a Pipeline: the manifest that it makes, and what is wrong with each field.

use std::path::Path;

use serde_json::Value;
use sluice_api::Pipeline;
use sluice_view::draft::{Draft, DraftDelivery, DraftEnvironment, DraftTarget};

fn target(cluster: &str, namespace: &str) -> DraftTarget {
    DraftTarget { cluster: cluster.into(), namespace: namespace.into(), ..DraftTarget::default() }
}

fn environment(name: &str, targets: &[DraftTarget]) -> DraftEnvironment {
    DraftEnvironment { name: name.into(), targets: targets.to_vec(), ..DraftEnvironment::default() }
}

fn draft() -> Draft {
    let mut eu = target("fleet/eu", "podinfo");
    eu.name = "eu".into();
    Draft {
        namespace: "apps".into(),
        name: "podinfo".into(),
        app_kind: "HelmRelease".into(),
        app_name: "podinfo".into(),
        environments: vec![
            environment("dev", &[target("", "podinfo-dev")]),
            environment("staging", &[target("apps/staging", "podinfo")]),
            DraftEnvironment {
                approval: true,
                after: "dev, staging".into(),
                ..environment("prod", &[eu, target("us", "podinfo")])
            },
        ],
        delivery: DraftDelivery {
            strategy: "pull-request".into(),
            forge: "gitea".into(),
            url: "https://git.example.com/team/fleet".into(),
            secret: "fleet-forge".into(),
            min_ready_targets: "100%".into(),
            ..DraftDelivery::default()
        },
        ..Draft::default()
    }
}

#[test]
fn a_draft_is_the_manifest_that_a_person_would_write() {
    let checked = draft().check(None);
    assert_eq!(checked.problems, []);
    insta::assert_snapshot!(checked.yaml, @r"
    apiVersion: pipelines.weave.works/v1alpha1
    kind: Pipeline
    metadata:
      name: podinfo
      namespace: apps
    spec:
      appRef:
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
        name: podinfo
      environments:
      - name: dev
        targets:
        - namespace: podinfo-dev
      - name: staging
        targets:
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: staging
      - name: prod
        after:
        - dev
        - staging
        targets:
        - name: eu
          namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: eu
            namespace: fleet
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: us
        promotion:
          manual: true
          minReadyTargets: 100%
          strategy:
            pull-request:
              type: gitea
              url: https://git.example.com/team/fleet
              secretRef:
                name: fleet-forge
      promotion:
        minReadyTargets: 100%
        strategy:
          pull-request:
            type: gitea
            url: https://git.example.com/team/fleet
            secretRef:
              name: fleet-forge
    ");
    let pipeline = checked.pipeline.unwrap();
    assert_eq!(serde_saphyr::from_str::<Pipeline>(&checked.yaml).unwrap(), pipeline);
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn each_problem_names_the_field_that_a_person_has_to_change() {
    type Change = fn(&mut Draft);
    let table: [(&str, Change, &str, &str); 17] = [
        (
            "nothing about the change request",
            |d| d.delivery = DraftDelivery { strategy: "pull-request".into(), ..DraftDelivery::default() },
            "spec.promotion.strategy.pull-request.type",
            "is required",
        ),
        ("no name", |d| d.name.clear(), "metadata.name", "is required"),
        ("no namespace", |d| d.namespace.clear(), "metadata.namespace", "is required"),
        ("a name with blanks", |d| d.name = "my app".into(), "metadata.name", "is no name"),
        ("no application", |d| d.app_name.clear(), "spec.appRef.name", "is required"),
        ("another kind", |d| d.app_kind = "Deployment".into(), "spec.appRef.apiVersion", "is required"),
        ("no environment", |d| d.environments.clear(), "spec.environments", "at least 1 items"),
        ("no target", |d| d.environments[1].targets.clear(), "spec.environments[1].targets", "at least 1"),
        (
            "an environment without a name",
            |d| d.environments[1].name.clear(),
            "spec.environments[1].name",
            "is required",
        ),
        (
            "the same environment twice",
            |d| d.environments[1].name = "dev".into(),
            "spec.environments",
            "same name",
        ),
        (
            "after itself",
            |d| d.environments[1].after = "staging".into(),
            "spec.environments",
            "after may only name",
        ),
        (
            "a wrong namespace",
            |d| d.environments[0].targets[0].namespace = "Dev".into(),
            "spec.environments[0].targets[0].namespace",
            "lower-case",
        ),
        (
            "no forge",
            |d| d.delivery.forge.clear(),
            "spec.promotion.strategy.pull-request.type",
            "is required",
        ),
        (
            "no Secret",
            |d| d.delivery.secret.clear(),
            "spec.promotion.strategy.pull-request.secretRef",
            "is required",
        ),
        (
            "no address",
            |d| d.delivery.url = "fleet".into(),
            "spec.promotion.strategy.pull-request.url",
            "write https://",
        ),
        (
            "another strategy",
            |d| d.delivery.strategy = "hope".into(),
            "spec.promotion.strategy.hope",
            "unknown field",
        ),
        (
            "too many targets",
            |d| d.delivery.min_ready_targets = "many".into(),
            "spec.promotion.minReadyTargets",
            "a number from 1 to 128",
        ),
    ];
    for (what, change, path, words) in table {
        let mut draft = draft();
        change(&mut draft);
        let found = draft.check(None).problems;
        let is_there = found.iter().any(|problem| problem.path == path && problem.message.contains(words));
        assert!(is_there, "{what}: {found:?}");
        let is_copy = |path: &str| path.starts_with("spec.environments[2].promotion");
        assert!(!found.iter().any(|problem| is_copy(&problem.path)), "{what}: {found:?}");
    }
}

#[test]
fn hostile_texts_stay_values() {
    let evil = "a\nspec: {suspend: true}\n--- # \u{202e}\u{0}\"'{}[]: &a *a !!x";
    let draft = Draft {
        name: evil.into(),
        namespace: evil.into(),
        app_kind: evil.into(),
        app_name: evil.into(),
        environments: vec![DraftEnvironment {
            was: Some(usize::MAX),
            name: evil.into(),
            after: evil.into(),
            approval: true,
            targets: vec![DraftTarget {
                was: Some(usize::MAX),
                name: evil.into(),
                cluster: format!("{evil}/{evil}"),
                namespace: evil.into(),
                in_git: true,
            }],
        }],
        delivery: DraftDelivery {
            strategy: "commit".into(),
            forge: evil.into(),
            url: evil.into(),
            branch: evil.into(),
            secret: evil.into(),
            min_ready_targets: evil.into(),
        },
        manifest: evil.into(),
        files: evil.into(),
    };
    let checked = draft.check(None);
    assert!(!checked.problems.is_empty());
    let read: Vec<Value> = serde_saphyr::from_multiple(&checked.yaml).unwrap();
    assert_eq!(read.len(), 1, "{}", checked.yaml);
    assert_eq!(read[0]["metadata"]["name"], evil);
    assert_eq!(read[0]["spec"]["suspend"], Value::Null);
    assert_eq!(read[0]["spec"]["environments"][0]["targets"][0]["namespace"], evil);
}

/// Returns the Pipelines of the folder with examples.
fn examples() -> Vec<Pipeline> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let objects = files.flat_map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap()
    });
    let pipelines = objects.filter(|object| object["kind"] == "Pipeline");
    pipelines.map(|object| serde_json::from_value(object).unwrap()).collect()
}

#[test]
fn a_pipeline_that_is_opened_and_not_changed_is_the_same() {
    let all = examples();
    assert!(all.len() >= 6, "{}", all.len());
    for pipeline in all {
        let checked = Draft::from(&pipeline).check(Some(&pipeline));
        assert_eq!(checked.problems, []);
        assert_eq!(checked.pipeline.unwrap(), pipeline, "{}", checked.yaml);
        assert_eq!(serde_saphyr::from_str::<Pipeline>(&checked.yaml).unwrap(), pipeline);
    }
}

#[test]
fn an_edit_keeps_what_the_form_does_not_show() {
    let mut known = draft().check(None).pipeline.unwrap();
    known.metadata.labels = Some(
        [("team", "a"), ("kustomize.toolkit.fluxcd.io/name", "apps")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
    );
    known.metadata.resource_version = Some("7".into());
    known.spec.tracks = vec!["chart".into()];
    known.spec.promotion.as_mut().unwrap().timeout = Some("1h".into());
    known.spec.environments[2].promotion.as_mut().unwrap().timeout = Some("2h".into());
    let mut draft = Draft::from(&known);
    assert!(draft.environments[2].approval && !draft.environments[1].approval);
    // dev is removed, so that staging has another index.
    draft.environments.remove(0);
    draft.environments[1].after = "staging".into();
    draft.environments[0].approval = true;
    draft.delivery.url = "https://git.example.com/team/other".into();
    let checked = draft.check(Some(&known));
    assert_eq!(checked.problems, []);
    let edited = checked.pipeline.unwrap();
    assert_eq!(edited.spec.tracks, ["chart"]);
    let labels: Vec<String> = edited.metadata.labels.unwrap().into_keys().collect();
    assert_eq!(labels, ["team"]);
    assert_eq!(edited.metadata.resource_version, None);
    let [staging, prod] = &edited.spec.environments[..] else { panic!("{:?}", edited.spec.environments) };
    let url = |policy: &sluice_api::pipeline::PromotionPolicy| {
        policy.strategy.clone().unwrap().pull_request.unwrap().url
    };
    let (staging, prod) = (staging.promotion.as_ref().unwrap(), prod.promotion.as_ref().unwrap());
    // An environment with only an approval of its own follows the pipeline; one with other rules of its own keeps them.
    assert_eq!((staging.manual, staging.timeout.as_deref()), (true, Some("1h")));
    assert_eq!(url(staging), "https://git.example.com/team/other");
    assert_eq!((prod.manual, prod.timeout.as_deref()), (true, Some("2h")));
    assert_eq!(url(prod), "https://git.example.com/team/fleet");
}

#[test]
fn an_approval_is_added_and_removed() {
    let known = draft().check(None).pipeline.unwrap();
    let mut draft = Draft::from(&known);
    draft.environments[2].approval = false;
    let edited = draft.check(Some(&known)).pipeline.unwrap();
    assert!(edited.spec.environments.iter().all(|environment| environment.promotion.is_none()));
    draft.environments[1].approval = true;
    let edited = draft.check(Some(&edited)).pipeline.unwrap();
    let manual: Vec<bool> = edited
        .spec
        .environments
        .iter()
        .map(|environment| edited.spec.policy(environment).unwrap().manual)
        .collect();
    assert_eq!(manual, [false, true, false]);
    // Without any strategy environments are only shown.
    draft.delivery.strategy.clear();
    let edited = draft.check(Some(&known)).pipeline.unwrap();
    assert!(edited.spec.promotion.is_none() && edited.spec.environments[0].promotion.is_none());
}

#[test]
fn new_environments_get_the_usual_names() {
    let mut draft = Draft::new("apps");
    (0..3).for_each(|_| draft.add_environment());
    let names: Vec<&str> = draft.environments.iter().map(|environment| &*environment.name).collect();
    assert_eq!(names, ["dev", "staging", "prod", ""]);
}
