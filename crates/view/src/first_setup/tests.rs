//! First set-ups as tables: what the files have, and what hostile manifests and forms get for an answer.

use serde_json::json;
use sluice_core::revision::{Facet, FacetKey, Revision};
use sluice_core::setters::{MarkerRequest, set_marked};

use super::*;
use crate::draft::{DraftEnvironment, DraftTarget};

/// What `kubectl get helmrelease podinfo -o yaml` prints.
const RELEASE: &str = r#"apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"helm.toolkit.fluxcd.io/v2"}
    reconcile.fluxcd.io/requestedAt: "1"
    team: a
  creationTimestamp: "2026-01-01T00:00:00Z"
  finalizers:
  - finalizers.fluxcd.io
  generation: 3
  labels:
    kustomize.toolkit.fluxcd.io/name: apps
    kustomize.toolkit.fluxcd.io/namespace: flux-system
    kustomize.toolkit.fluxcd.io/prune: disabled
  managedFields:
  - manager: helm-controller
  name: podinfo
  namespace: podinfo-dev
  ownerReferences:
  - {apiVersion: v1, kind: ConfigMap, name: a, uid: b}
  resourceVersion: "7"
  uid: 0b
spec:
  chart:
    spec:
      chart: podinfo
      sourceRef:
        kind: HelmRepository
        name: podinfo
      version: 6.x
  interval: 5m
  targetNamespace: podinfo-dev
  values:
    on: "yes"
    text: |
      two
      lines
status:
  conditions: []
  history:
  - {chartVersion: 6.1.4, status: superseded, version: 1}
  - {chartVersion: 6.1.5+abc, status: deployed, version: 2}
"#;

const KUSTOMIZATION: &str = "apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: flux-system}
spec:
  interval: 10m
  path: ./deploy
  prune: true
  sourceRef: {kind: GitRepository, name: shop}
  postBuild:
    substituteFrom:
    - {kind: Secret, name: vars}
  images:
  - {name: web, newName: ghcr.io/team/web, newTag: '1.10'}
  - {name: ghcr.io/team/worker, newTag: 2.0.0}
";

/// A draft with an environment for each cluster, which is empty for the hub.
fn draft(clusters: &[(&str, &str)], files: &str) -> Draft {
    let mut draft = Draft { environments: Vec::new(), files: files.into(), ..Draft::new("apps") };
    draft.name = "podinfo".into();
    draft.app_name = "podinfo".into();
    for (name, cluster) in clusters {
        let target = DraftTarget {
            cluster: (*cluster).into(),
            namespace: format!("podinfo-{name}"),
            ..DraftTarget::default()
        };
        draft.environments.push(DraftEnvironment {
            name: (*name).into(),
            targets: vec![target],
            ..DraftEnvironment::default()
        });
    }
    draft
}

fn set_up(manifest: &str, draft: &Draft) -> FirstSetup {
    let application = Application::read(manifest).unwrap();
    let (app_kind, app_name) = (application.kind.name().into(), application.name.clone());
    let draft = Draft { app_kind, app_name, ..draft.clone() };
    FirstSetup::of(&application, &draft, &draft.check(None).pipeline.unwrap())
}

#[test]
fn a_release_becomes_a_clean_manifest_with_a_marker_for_each_environment() {
    let mut draft = draft(&[("dev", ""), ("prod", "eu")], "clusters/{environment}/podinfo.yaml");
    draft.environments[0].targets[0].in_git = true;
    let setup = set_up(RELEASE, &draft);
    assert_eq!(setup.problems, [""; 0]);
    let [file] = &setup.files[..] else { panic!("{setup:?}") };
    assert_eq!((file.path.as_str(), file.target.as_str()), ("clusters/prod/podinfo.yaml", "eu-podinfo-prod"));
    assert!(!file.is_on_hub);
    insta::assert_snapshot!(file.yaml, @r#"
    apiVersion: helm.toolkit.fluxcd.io/v2
    kind: HelmRelease
    metadata:
      name: podinfo
      namespace: podinfo-prod
      labels:
        kustomize.toolkit.fluxcd.io/prune: disabled
      annotations:
        team: a
    spec:
      chart:
        spec:
          chart: podinfo
          sourceRef:
            kind: HelmRepository
            name: podinfo
          version: "6.1.5" # {"$promotion": "apps:podinfo:prod"}
      interval: 5m
      targetNamespace: podinfo-prod
      values:
        "on": "yes"
        text: |
          two
          lines
    "#);
    let read: Value = serde_saphyr::from_str(&file.yaml).unwrap();
    assert_eq!(read, file.object);
    insta::assert_snapshot!(setup.notes.join("\n"), @r"
    the value spec.chart.spec.version was 6.x: the files have 6.1.5, which runs now, because a marker needs one version
    the files name HelmRepository podinfo: these must exist where each file is applied, as must its namespace
    ");
    let [dev] = &setup.in_git[..] else { panic!("{setup:?}") };
    assert_eq!(
        dev.markers,
        [("spec.chart.spec.version".into(), r#"{"$promotion": "apps:podinfo:dev"}"#.into())]
    );
}

#[test]
fn a_kustomization_has_a_marker_for_each_image() {
    let setup = set_up(KUSTOMIZATION, &draft(&[("dev", "")], "{namespace}/{target}.yaml"));
    let [file] = &setup.files[..] else { panic!("{setup:?}") };
    assert!(file.is_on_hub);
    insta::assert_snapshot!(format!("{}\n{}\n{}", file.path, file.yaml, setup.notes.join("\n")), @r#"
    podinfo-dev/podinfo-dev.yaml
    apiVersion: kustomize.toolkit.fluxcd.io/v1
    kind: Kustomization
    metadata:
      name: shop
      namespace: podinfo-dev
    spec:
      path: ./deploy
      images:
      - name: web
        newName: ghcr.io/team/web
        newTag: "1.10" # {"$promotion": "apps:podinfo:dev", "value": "image:ghcr.io/team/web"}
      - name: ghcr.io/team/worker
        newTag: "2.0.0" # {"$promotion": "apps:podinfo:dev", "value": "image:ghcr.io/team/worker"}
      interval: 10m
      postBuild:
        substituteFrom:
        - kind: Secret
          name: vars
      prune: true
      sourceRef:
        kind: GitRepository
        name: shop

    the files name GitRepository shop, Secret vars: these must exist where each file is applied, as must its namespace
    the workloads must run each image that has a marker: remove the marker of any other image
    the field spec.path is ./deploy in each file: change it if environments differ there
    "#);
    // Sluice sets each image to its own part of a revision.
    let key = |image: &str| FacetKey {
        kind: "Kustomization".into(),
        name: "shop".into(),
        facet: Facet::Image(format!("ghcr.io/team/{image}")),
    };
    let facets = [(key("web"), "1.11".to_string()), (key("worker"), "3.0.0".to_string())];
    let revision = Revision::new(facets.into()).unwrap();
    let wanted = MarkerRequest {
        namespace: "apps",
        pipeline: "podinfo",
        environment: "dev",
        target: None,
        revision: &revision,
    };
    let set = set_marked("a", file.yaml.as_bytes(), &wanted).unwrap().unwrap();
    let values: Vec<_> = set.values.iter().map(|value| (value.old.as_str(), value.new.as_str())).collect();
    assert_eq!(values, [("1.10", "1.11"), ("2.0.0", "3.0.0")]);
}

#[test]
fn the_manifest_of_the_form_gives_the_same_application() {
    for text in [RELEASE, KUSTOMIZATION] {
        let application = Application::read(text).unwrap();
        let again = Application::read(&application.manifest()).unwrap();
        assert_eq!(again, application);
        assert!(!application.manifest().contains("resourceVersion"));
    }
}

#[test]
fn a_version_is_one_that_runs_or_is_written() {
    let of = |written: &str, status: Value| {
        let mut object: Value = serde_saphyr::from_str(RELEASE).unwrap();
        put(&mut object, "/spec/chart/spec/version", serde_saphyr::from_str(written).unwrap());
        object["status"] = status;
        let application = Application::of(object)?;
        Ok(application.promoted[0].value.clone())
    };
    let runs = || json!({"history": [{"chartVersion": "6.1.5", "status": "deployed"}]});
    for written in ["6.1.5", "v6.1.5", "6.1.5-rc.1+build.7"] {
        assert_eq!(of(written, Value::Null), Ok(written.into()), "{written}");
    }
    for range in
        ["6.x", "'*'", "'>=6.0.0 <7.0.0'", "6.1.0 - 6.2.0", "~6.1.5", "=6.1.5", "'6.1'", "6", "''", "null"]
    {
        // A number is no version for Flux either.
        let none = if range == "6" { value_error() } else { ApplicationError::Range };
        assert_eq!(of(range, Value::Null), Err(none), "{range}");
        if range != "6" {
            assert_eq!(of(range, runs()), Ok("6.1.5".into()), "{range}");
        }
    }
    let strange = json!({"history": [{"chartVersion": "6.1.5 # {}\nx", "status": "deployed"}]});
    assert_eq!(of("6.x", strange), Err(ApplicationError::Range));
    assert_eq!(of("6.x", json!({"lastAppliedRevision": "6.1.3"})), Ok("6.1.3".into()));
    let template = ApplicationError::Substitution { field: "spec.chart.spec.version".into() };
    assert_eq!(of("${version}", runs()), Err(template.clone()));
    assert_eq!(of("${version:=6.1.5}", runs()), Err(template));
}

fn value_error() -> ApplicationError {
    ApplicationError::Value { field: "spec.chart.spec.version".into() }
}

fn replaced(manifest: &str, from: &str, to: &str) -> String {
    assert!(manifest.contains(from), "{from}");
    manifest.replace(from, to)
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_is_no_application_is_refused_with_what_to_paste_instead() {
    use ApplicationError as E;
    let image =
        |to: &str| replaced(KUSTOMIZATION, "{name: web, newName: ghcr.io/team/web, newTag: '1.10'}", to);
    let tag = |at: &str| format!("spec.images[{at}].newTag");
    let bomb = format!(
        "a: &a [x]\n{}",
        (0..9).map(|n| format!("b{n}: &b{n} [*a, *a, *a, *a, *a, *a, *a]\n")).collect::<String>()
    );
    for (text, error) in [
        (String::new(), E::Empty),
        (" \n".into(), E::Empty),
        ("a: [".into(), E::NotYaml { line: 1 }),
        ("just a text".into(), E::Kind),
        ("- a".into(), E::Kind),
        ("\0".into(), E::NotYaml { line: 1 }),
        (format!("a: {}", "x".repeat(MAX_BYTES)), E::TooLarge),
        (format!("a: {}{}", "[".repeat(200), "]".repeat(200)), E::TooLarge),
        (bomb, E::Anchors),
        (replaced(RELEASE, "spec:\n  chart:", "spec: &a\n  chart:"), E::Anchors),
        (replaced(RELEASE, "on: \"yes\"", "on: *a"), E::NotYaml { line: 36 }),
        (replaced(RELEASE, "on: \"yes\"", "<<: {a: b}"), E::Anchors),
        (replaced(RELEASE, "\"yes\"", "\"a\\u202Eb\""), E::Invisible),
        (replaced(RELEASE, "on: \"yes\"", "\"a\\u200b\": b"), E::Invisible),
        (format!("{RELEASE}---\n{RELEASE}"), E::Documents),
        (format!("{RELEASE}---\nkind: Secret\n"), E::Documents),
        (replaced(RELEASE, "kind: HelmRelease", "kind: HelmReleaseList"), E::List),
        ("apiVersion: v1\nkind: List\nitems: []\n".into(), E::List),
        ("apiVersion: v1\nkind: Secret\ndata: {password: aHVudGVyMg==}\n".into(), E::Secret),
        (replaced(RELEASE, "kind: HelmRelease", "kind: Secret"), E::Secret),
        ("apiVersion: apps/v1\nkind: Deployment\n".into(), E::Kind),
        (replaced(RELEASE, "helm.toolkit.fluxcd.io/v2\nkind", "evil.example.com/v2\nkind"), E::Kind),
        (replaced(RELEASE, "kind: HelmRelease", "kind: Kustomization"), E::Kind),
        (replaced(RELEASE, "helm.toolkit.fluxcd.io/v2\nkind", "helm.toolkit.fluxcd.io/v2#\nkind"), E::Kind),
        (
            replaced(RELEASE, "helm.toolkit.fluxcd.io/v2\nkind", "helm.toolkit.fluxcd.io/../../v1\nkind"),
            E::Kind,
        ),
        ("resources: [a.yaml]\n".into(), E::KustomizeFile),
        ("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n".into(), E::KustomizeFile),
        (replaced(RELEASE, "  name: podinfo\n  namespace", "  name: ../../a\n  namespace"), E::Name),
        (replaced(RELEASE, "  name: podinfo\n  namespace", "  namespace"), E::Name),
        (replaced(RELEASE, "namespace: podinfo-dev\n  owner", "namespace: a/b\n  owner"), E::Namespace),
        ("apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: a}\n".into(), E::NoSpec),
        (
            replaced(RELEASE, "  chart:\n", "  chartRef: {kind: OCIRepository, name: a}\n  chart:\n"),
            E::ChartRef { kind: "OCIRepository" },
        ),
        (replaced(RELEASE, "kind: HelmRepository", "kind: GitRepository"), E::ChartSource),
        (
            replaced(KUSTOMIZATION, "kind: GitRepository", "kind: OCIRepository"),
            E::Source { kind: "OCIRepository" },
        ),
        (replaced(KUSTOMIZATION, "kind: GitRepository", "kind: Bucket"), E::Source { kind: "Bucket" }),
        (KUSTOMIZATION.split("  images:").next().unwrap().into(), E::NoImages),
        (image("{name: web, newTag: 1.10}"), E::Value { field: tag("0") }),
        (image("{name: web, newTag: 'a b'}"), E::Value { field: tag("0") }),
        (image("{name: 'a\"}', newTag: '1'}"), E::Value { field: tag("0") }),
        (image("{name: web, newTag: '${tag}'}"), E::Substitution { field: tag("0") }),
        (image("{name: web, newName: '${registry}/web', newTag: '1'}"), E::Substitution { field: tag("0") }),
        (image("{name: web, newTag: '1', digest: 'sha256:aa'}"), E::Digest),
    ] {
        let refused = Application::read(&text);
        assert_eq!(refused.as_ref().err(), Some(&error), "{}", text.chars().take(300).collect::<String>());
        // A message never has a part of the manifest.
        let message = error.to_string();
        assert!(
            !message.contains("aHVud") && !message.contains("evil") && !message.contains(".."),
            "{message}"
        );
    }
}

#[test]
fn paths_and_names_that_cannot_be_used_are_named() {
    let two = [("dev", ""), ("prod", "eu")];
    for (files, words) in [
        ("", "write one such as"),
        ("../{environment}.yaml", "may begin with a dot"),
        ("a/{environment}/../../b.yaml", "may begin with a dot"),
        (".github/workflows/{environment}.yaml", "may begin with a dot"),
        ("{environment}/kustomization.yaml", "another program reads a file of this name"),
        ("{environment}.json", "end it with .yaml"),
        ("a.yaml", "several targets have the file a.yaml"),
        ("{secret}.yaml", "{secret} is no placeholder"),
        ("{environment", "has no closing }"),
        ("{cluster}.yaml", "{cluster} has no value for the target podinfo-dev of dev"),
    ] {
        let setup = set_up(RELEASE, &draft(&two, files));
        assert_eq!(setup.files, [], "{files}");
        assert!(
            setup.problems.iter().any(|problem| problem.contains(words)),
            "{files}: {:?}",
            setup.problems
        );
    }
    let other = Draft { app_name: "web".into(), ..draft(&two, "{environment}.yaml") };
    let setup =
        FirstSetup::of(&Application::read(RELEASE).unwrap(), &other, &other.check(None).pipeline.unwrap());
    assert!(
        setup.problems[0].contains("HelmRelease web, and the manifest is HelmRelease podinfo"),
        "{setup:?}"
    );
    let by_labels = Draft { app_kind: String::new(), ..draft(&two, "{environment}.yaml") };
    let pipeline = by_labels.check(None).pipeline.unwrap();
    let setup = FirstSetup::of(&Application::read(RELEASE).unwrap(), &by_labels, &pipeline);
    assert!(setup.problems[0].contains("choose what Flux applies"), "{setup:?}");
    for name in ["", "..", "a/b", "a\"b", "a\nb"] {
        let mut draft = draft(&two, "{environment}.yaml");
        draft.environments[1].name = name.into();
        let setup = set_up(RELEASE, &draft);
        assert!(setup.problems[0].contains("have a name") && setup.files.is_empty(), "{name} {setup:?}");
    }
    let many: Vec<_> = (0..MAX_FILES + 1).map(|n| format!("e{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    let setup = set_up(RELEASE, &draft(&many, "{environment}.yaml"));
    assert!(
        setup.problems[0].contains("more than 64 new files") && setup.files.is_empty(),
        "{:?}",
        setup.problems
    );
}

#[test]
fn values_that_look_like_markers_or_hide_characters_are_refused() {
    let two = draft(&[("dev", "")], "a.yaml");
    for (value, words) in [
        ("\"x # {\\\"$promotion\\\": \\\"apps:podinfo:dev\\\"}\\n\"", "with $promotion in it"),
        ("\"x # {\\\"$promotion\\\": \\\"other:web:prod\\\"}\\n\"", "with $promotion in it"),
        ("\"sluice-promoted-value-0-\\n\"", "cannot have a marker"),
    ] {
        let setup = set_up(&replaced(RELEASE, "\"yes\"", value), &two);
        assert!(setup.files.is_empty() && setup.problems[0].contains(words), "{value}: {setup:?}");
    }
    // What YAML 1.1 reads as something else than a text stays what it was.
    let odd = "\"yes\"\n    a: 0755\n    b: yes\n    c: 1e3\n    d: 12:30\n    e: \"0755\"\n    f: ~\n    g: 2026-01-01";
    let setup = set_up(&replaced(RELEASE, "\"yes\"", odd), &two);
    let values = &setup.files[0].object["spec"]["values"];
    assert_eq!((&values["a"], &values["b"], &values["e"]), (&json!(493), &json!(true), &json!("0755")));
    assert!(
        setup.files[0].yaml.contains("a: 493") && setup.files[0].yaml.contains("b: true"),
        "{}",
        setup.files[0].yaml
    );
}

#[test]
fn a_draft_starts_from_an_application_and_keeps_what_was_entered() {
    let application = Application::read(RELEASE).unwrap();
    let targets = |draft: &Draft| -> Vec<(String, String, bool)> {
        let all = draft.environments.iter().flat_map(|environment| &environment.targets);
        all.map(|target| (target.cluster.clone(), target.namespace.clone(), target.in_git)).collect()
    };
    let place =
        |cluster: &str, namespace: &str, in_git: bool| (cluster.to_string(), namespace.to_string(), in_git);
    let mut new = Draft { app_kind: "Kustomization".into(), ..Draft::new("apps") };
    new.start_from(&application, Some("eu"));
    assert_eq!((new.app_kind.as_str(), new.name.as_str()), ("HelmRelease", "podinfo"));
    assert_eq!(new.files, "apps/{environment}/podinfo.yaml");
    assert_eq!(targets(&new), [place("eu", "podinfo-dev", true)]);
    // Again, elsewhere, and with a target that is there already.
    new.start_from(&application, Some("eu"));
    assert_eq!(targets(&new), [place("eu", "podinfo-dev", true)]);
    new.start_from(&application, Some(""));
    assert_eq!(targets(&new), [place("eu", "podinfo-dev", true), place("", "podinfo-dev", true)]);
    let mut known = draft(&[("dev", "us"), ("prod", "us")], "{environment}.yaml");
    known.start_from(&application, None);
    assert_eq!(targets(&known), [place("us", "podinfo-dev", true), place("us", "podinfo-prod", false)]);
    assert_eq!((known.files.as_str(), known.name.as_str()), ("{environment}.yaml", "podinfo"));
    // It is unknown where it runs: no cluster is guessed.
    let mut unknown = Draft::new("apps");
    unknown.start_from(&application, None);
    assert_eq!(targets(&unknown), [place("", "", false)]);
}

#[test]
fn any_text_of_a_manifest_stays_what_it_is() {
    let texts = [
        "a\n",
        "a",
        "\n",
        "\n\na\n\n",
        "  a\nb\n",
        "a  \nb\t\n",
        "a\n\n\n",
        "\ta\n",
        "# a\n# b\n",
        "---\na\n...\n",
        "a: b\n",
        "- a\n  - b\n",
        "'a'\n\"b\"\n",
        "{{ .Values.a }}\n",
        "%YAML\na\n",
        "a\n b\n  c\n",
        "",
        " ",
        "~",
        "yes",
        "0755",
        "1e3",
        "12:30",
        "a #b\n",
        "@a",
        "*a",
        "&a",
        "!a",
        "|\n",
        ">\n",
        "é\n日本\n",
        "a\r\nb\r\n",
    ];
    let long = format!("{}\n{}\n", "word ".repeat(60), "x  y".repeat(60));
    for text in texts.into_iter().chain([long.as_str()]) {
        let mut object: Value = serde_saphyr::from_str(RELEASE).unwrap();
        put(
            &mut object,
            "/spec/values",
            json!({"text": text, "list": [text, {text: text}], "n": [1, -1, 0.5, 1e300, u64::MAX, null]}),
        );
        let application = Application::of(object.clone()).unwrap();
        let draft = Draft { app_name: "podinfo".into(), ..draft(&[("dev", "")], "a.yaml") };
        let setup = FirstSetup::of(&application, &draft, &draft.check(None).pipeline.unwrap());
        assert_eq!(setup.problems, [""; 0], "{text}");
        let read: Value = serde_saphyr::from_str(&setup.files[0].yaml).unwrap();
        assert_eq!(read["spec"]["values"], object["spec"]["values"], "{text}");
        assert_eq!(Application::read(&application.manifest()).unwrap(), application, "{text}");
    }
}
