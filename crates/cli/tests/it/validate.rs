//! `sluice validate`: the problems that it finds in files, and its exit codes.

use std::path::Path;

use anyhow::{Result, ensure};
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_cli::Exit;

use crate::hub::{bare, servers};

const PIPELINE: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  environments:
  - {name: dev, targets: [{namespace: dev}]}
  - {name: staging, targets: [{namespace: staging}]}
  - name: prod
    targets: [{name: eu, namespace: prod}]
    promotion:
      strategy:
        commit:
          url: https://git.example.com/team/fleet
          update: [{path: '{environment}/*.yaml', kind: HelmRelease, field: spec.version}]
  promotion: {strategy: {commit: {url: https://git.example.com/team/fleet}}}
";

struct Ran {
    out: String,
    err: String,
    exit: Exit,
}

async fn validate(arguments: &[&str]) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = bare(&[&["validate"], arguments].concat(), &mut out, &mut err).await;
    let text = |bytes| String::from_utf8(bytes).unwrap_or_default();
    Ran { out: text(out), err: text(err), exit }
}

fn write(folder: &Path, files: &[(&str, &str)]) -> Result<()> {
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

pub fn checkout() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let release = "kind: HelmRelease\nspec: {version: '6.1.5'} # x\n";
    write(
        folder.path(),
        &[
            ("pipelines/podinfo.yaml", PIPELINE),
            ("staging/a.yml", "v: 6.1.5 # {\"$promotion\": \"apps:podinfo:staging\"}\n"),
            ("prod/release.yaml", release),
            ("prod/other.yaml", "kind: Service\n"),
            ("prod/template.yaml", "{{- if }}\n"),
            (".git/x.yaml", "v: 1 # {\"$promotion\": \"apps:podinfo:staging\"}\n"),
        ],
    )?;
    Ok(folder)
}

#[tokio::test]
async fn values_and_lines_to_set_are_shown() -> Result<()> {
    let folder = checkout()?;
    let root = folder.path().display().to_string();
    let ran = validate(&["podinfo", "--checkout", &root]).await;
    ensure!(ran.exit == Exit::Ok, "{} {}", ran.out, ran.err);
    insta::assert_snapshot!(ran.out.replace(&root, "ROOT"), @r"
    ✔ apps/podinfo is a valid Pipeline (ROOT/pipelines/podinfo.yaml)
    ◎ dev: first environment: Sluice writes nothing here; to use /trigger, add a marker
    ✔ staging: staging/a.yml:1 6.1.5 → REVISION
    ✔ prod: prod/release.yaml:2 6.1.5 → REVISION
    ");
    let ran = validate(&["--checkout", &root, "-e", "prod", "--revision", "6.1.5", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&ran.out)?;
    let environments = &report["view"][0]["environments"];
    assert_eq!(environments.as_array().map(Vec::len), Some(1));
    assert_eq!(environments[0]["values"][0]["path"], "prod/release.yaml");
    assert_eq!(
        (&environments[0]["values"][0]["line"], &environments[0]["values"][0]["to"]),
        (&2.into(), &"6.1.5".into())
    );
    let ran = validate(&["--checkout", &root, "-e", "prod", "--revision", "chart=6.1.5"]).await;
    assert!(ran.out.contains("prod/release.yaml:2 is 6.1.5 already"), "{}", ran.out);
    // The checkout is unchanged.
    assert!(std::fs::read_to_string(folder.path().join("prod/release.yaml"))?.contains("6.1.5"));
    Ok(())
}

#[tokio::test]
async fn values_that_cannot_be_set_have_the_errors_of_the_controller() -> Result<()> {
    let folder = checkout()?;
    let root = folder.path().display().to_string();
    std::fs::remove_file(folder.path().join("staging/a.yml"))?;
    let misspelled = "version: '1' # {\"$promotion\": \"apps:podinfo:stagin\"}\n";
    write(
        folder.path(),
        &[("prod/second.yaml", "kind: HelmRelease\nspec: {version: '1'}\n"), ("staging/b.yaml", misspelled)],
    )?;
    let ran = validate(&["--checkout", &root]).await;
    assert_eq!(ran.exit, Exit::Unset);
    assert!(
        ran.out.contains(
            "✗ staging: NoMarker: no file has the marker {\"$promotion\": \"apps:podinfo:staging\"}"
        ) && ran.out.contains("; the most similar marker is apps:podinfo:stagin at staging/b.yaml:1"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("✗ prod: AmbiguousObject: ")
            && ran.out.contains("prod/second.yaml:1 (HelmRelease/?)"),
        "{}",
        ran.out
    );
    assert_eq!(ran.err, "✗ 2 environments have values that cannot be set\n");
    Ok(())
}

#[tokio::test]
async fn a_facet_that_depends_on_the_cluster_is_taken_from_the_markers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let unnamed = PIPELINE
        .replace("  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}\n", "");
    let marked = "image: x/app:1 # {\"$promotion\": \"apps:podinfo:staging\", \"value\": \"image:x/app\"}\n\
                  tag: '1' # {\"$promotion\": \"apps:podinfo:staging\"}\n";
    write(folder.path(), &[("p.yaml", &unnamed), ("a.yaml", marked)])?;
    let root = folder.path().display().to_string();
    let ran = validate(&["--checkout", &root, "-e", "staging"]).await;
    ensure!(ran.exit == Exit::Ok, "{} {}", ran.out, ran.err);
    assert!(
        ran.out.contains("a.yaml:1 x/app:1 → x/app:REVISION\n✔ staging: a.yaml:2 1 → REVISION"),
        "{}",
        ran.out
    );
    Ok(())
}

#[tokio::test]
async fn an_invalid_pipeline_is_reported_with_its_own_exit_code() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.yaml").display().to_string();
    for (from, to, words) in [
        ("name: staging", "name: dev", "spec.environments: two environments have the same name"),
        ("[{namespace: dev}]", "[]", "spec.environments[0].targets: must have at least 1 items"),
        (
            "[{namespace: dev}]",
            "[{namespace: dev, name: eu}, {namespace: qa, name: eu}]",
            "spec.environments[0].targets: two targets of this environment have the same name",
        ),
        ("field: spec.version", "field: spec..version", "update[0].field: a field is a path such as"),
        ("{strategy: {commit:", "{strategies: {commit:", "spec.promotion: promotion needs a strategy"),
        ("{name: podinfo, namespace: apps}", "{}", "metadata.name: is required"),
        (
            "{name: podinfo, namespace: apps}",
            "{name: podinfo, namespace: apps, lables: {}}",
            "metadata.lables: unknown field (did you mean labels?)",
        ),
    ] {
        std::fs::write(&file, PIPELINE.replacen(from, to, 1))?;
        let ran = validate(&["-f", &file]).await;
        assert_eq!(ran.exit, Exit::Invalid, "{to}: {}", ran.out);
        assert!(ran.out.contains(words), "{to}: {}", ran.out);
    }
    std::fs::write(&file, "a: [")?;
    let ran = validate(&["-f", &file]).await;
    assert!(ran.exit == Exit::Invalid && ran.err.contains("is not YAML"), "{}", ran.err);
    std::fs::write(&file, PIPELINE)?;
    for (arguments, exit, says) in [
        (&["-f", &file, "podinof"][..], Exit::NotFound, "did you mean podinfo?"),
        (&["-f", &file, "-e", "pord"], Exit::NotFound, "has no environment pord"),
        (&["-f", "nowhere.yaml"], Exit::NotFound, "cannot read nowhere.yaml"),
        (&[], Exit::Usage, "nothing to validate"),
    ] {
        let ran = validate(arguments).await;
        assert_eq!(ran.exit, exit, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
    Ok(())
}

/// Manifests that an API server accepts are valid: the examples, and values that YAML 1.1 reads differently.
#[tokio::test]
async fn manifests_that_the_server_accepts_are_valid() -> Result<()> {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let ran = validate(&["-f", examples]).await;
    ensure!(ran.exit == Exit::Ok && ran.out.lines().count() > 5, "{} {}", ran.out, ran.err);
    let hub = &servers().await?.hub;
    hub.namespace("apps").await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.yaml").display().to_string();
    for (from, to) in [
        ("spec:\n  appRef", "spec:\n  suspend: true\n  appRef"),
        ("spec:\n  appRef", "spec:\n  tracks: []\n  appRef"),
        ("  promotion: {strategy", "  promotion: {minReadyTargets: 100%, timeout: 1h0m5s, strategy"),
        ("spec.version}", "'a[\"b.c/d\"][0].e[name=x/y:z].f'}"),
        ("spec.version}", "'{environment}.x', value: 'image:x/y', workload: HelmRelease/podinfo}"),
    ] {
        let text = PIPELINE.replacen(from, to, 1);
        assert_ne!(text, PIPELINE);
        hub.apply_yaml(&text).await?;
        std::fs::write(&file, &text)?;
        let ran = validate(&["-f", &file]).await;
        ensure!(ran.exit == Exit::Ok, "{to}: {} {}", ran.out, ran.err);
    }
    Ok(())
}

/// Whether the API server accepts the text of a manifest, as `kubectl apply --server-side` sends it. `kubectl` and the
/// API server read YAML with the same library.
async fn is_accepted(client: &kube::Client, manifest: &str) -> Result<bool> {
    let url = Pipeline::url_path(&(), Some("apps"));
    let request = http::Request::patch(format!("{url}/podinfo?fieldManager=validate&dryRun=All&force=true"))
        .header("Content-Type", "application/apply-patch+yaml")
        .body(manifest.as_bytes().to_vec())?;
    match client.request_text(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if [400, 422, 500].contains(&status.code) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The API server reads YAML 1.1: `yes` is a boolean, and `"yes"` is a text, which it refuses for a boolean.
#[tokio::test]
async fn the_booleans_of_yaml_are_read_as_by_the_server() -> Result<()> {
    let hub = &servers().await?.hub;
    hub.namespace("apps").await?;
    let client = hub.client().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.yaml").display().to_string();
    let words = "y Y yes Yes YES on On ON true True TRUE n N no No NO off Off OFF false False FALSE";
    for word in words.split(' ') {
        for (from, to, path) in [
            ("spec:\n", format!("spec:\n  suspend: {word}\n"), ""),
            ("spec:\n", format!("spec:\n  suspend: \"{word}\"\n"), "spec.suspend: "),
            ("spec:\n", format!("spec:\n  suspend: '{word}'\n"), "spec.suspend: "),
            ("{namespace: dev}", format!("{{namespace: {word}}}"), "targets[0].namespace: "),
        ] {
            let text = PIPELINE.replacen(from, &to, 1);
            ensure!(text != PIPELINE, "{from} is not in the manifest");
            assert_eq!(
                is_accepted(&client, &text).await?,
                path.is_empty(),
                "whether the server accepts {to}"
            );
            std::fs::write(&file, &text)?;
            let ran = validate(&["-f", &file]).await;
            assert_eq!(ran.exit == Exit::Ok, path.is_empty(), "{to}: {} {}", ran.out, ran.err);
            ensure!(ran.out.contains(path), "{to}: {}", ran.out);
        }
    }
    Ok(())
}

/// What to replace in [`PIPELINE`], by what, and words of the problem.
const INVALID_MANIFESTS: [(&str, &str, &str); 26] = [
    ("  appRef:", "  suspend: \"false\"\n  appRef:", "spec.suspend: "),
    (
        "  appRef:",
        "  suspend: \"yes\"\n  appRef:",
        "spec.suspend: must be of type boolean; write true or false, without quotes",
    ),
    ("  appRef:", "  suspend: \"n\"\n  appRef:", "spec.suspend: "),
    ("  promotion: {", "  promotion: {manual: 'true', ", "spec.promotion.manual: "),
    ("  appRef:", "  apRef:", "spec.apRef: unknown field (did you mean appRef?)"),
    ("{commit: {url", "{comit: {url", "spec.promotion.strategy.comit: unknown field (did you mean commit?)"),
    (
        "{namespace: staging}",
        "{namespace: staging, nmae: x}",
        "targets[0].nmae: unknown field (did you mean name?)",
    ),
    (
        "{name: podinfo, namespace: apps}",
        "{name: Podinfo, namespace: apps}",
        "metadata.name: \"Podinfo\" is no name",
    ),
    (
        "{name: podinfo, namespace: apps}",
        "{name: pod_info, namespace: apps}",
        "metadata.name: \"pod_info\" is no name",
    ),
    (
        "{name: podinfo, namespace: apps}",
        "{name: podinfo, namespace: apps, labels: {a: 'b c'}}",
        "metadata.labels[a]: ",
    ),
    (
        "{name: podinfo, namespace: apps}",
        "{name: podinfo, namespace: apps, labels: {a: true}}",
        "metadata.labels[a]: must be of type string",
    ),
    (
        "works/v1alpha1",
        "works/v1beta1",
        "apiVersion: pipelines.weave.works/v1beta1 is not served; write pipelines.weave.works/v1alpha1",
    ),
    (
        "pipelines.weave.works/v1alpha1",
        "pipeline.weave.works/v1alpha1",
        "apiVersion: pipeline.weave.works/v1alpha1 is not served",
    ),
    ("kind: Pipeline", "kind: pipeline", "kind: write Pipeline"),
    (
        "{commit: {url: https://git",
        "{commit: {url: git",
        "spec.promotion.strategy.commit.url: write https://",
    ),
    ("          url: https://git", "          url: git@git", "strategy.commit.url: write https://"),
    (
        "{commit: {url: https://git.example.com/team/fleet}}",
        "{webhook: {url: hooks.example.com/x}}",
        "spec.promotion.strategy.webhook.url: write https://",
    ),
    ("kind: HelmRelease, name: podinfo}", "kind: HelmRelease, name: null}", "spec.appRef.name: is required"),
    (
        "spec:\n",
        "spec:\n  suspend: null\n",
        "spec.suspend: is null: leave it out, or write a value of type boolean",
    ),
    ("spec:\n", "spec:\n  tracks: null\n", "spec.tracks: is null: leave it out"),
    ("    promotion:\n", "    after: null\n    promotion:\n", "spec.environments[2].after: is null"),
    (
        "promotion: {strategy: {commit",
        "promotion: {manual: 'maybe', strategy: {commit",
        "spec.promotion.manual: must be of type boolean",
    ),
    (
        "promotion: {strategy: {commit",
        "promotion: {timeout: 10, strategy: {commit",
        "spec.promotion.timeout: must be of type string",
    ),
    (
        "  - {name: dev, targets: [{namespace: dev}]}",
        "  - {name: dev, targets: [{namespace: dev, observe: Push}]}",
        "targets[0]: ",
    ),
    ("{commit: {url", "{notification: {}, commit: {url", "spec.promotion.strategy: "),
    ("    promotion:\n", "    after: [nowhere]\n    promotion:\n", "spec.environments: "),
];

/// Each manifest is refused by the API server, as `kubectl apply` and Flux send it, and by `sluice validate`, which
/// names the field and says what to write.
#[tokio::test]
async fn manifests_that_the_server_refuses_are_invalid() -> Result<()> {
    let hub = &servers().await?.hub;
    hub.namespace("apps").await?;
    hub.apply_yaml(PIPELINE).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.yaml").display().to_string();
    for (from, to, words) in INVALID_MANIFESTS {
        let text = PIPELINE.replacen(from, to, 1);
        ensure!(text != PIPELINE, "{from} is not in the manifest");
        let refused = hub.apply_yaml(&text).await;
        ensure!(refused.is_err(), "the server accepts {to}");
        std::fs::write(&file, &text)?;
        let ran = validate(&["-f", &file]).await;
        ensure!(ran.exit == Exit::Invalid, "{to}: {} {}", ran.out, ran.err);
        ensure!(ran.out.contains(words), "{to}: {}", ran.out);
    }
    Ok(())
}

/// `sluice validate` accepts exactly the metadata that the API server accepts.
#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table")]
async fn metadata_is_validated_as_by_the_server() -> Result<()> {
    let hub = &servers().await?.hub;
    hub.namespace("apps").await?;
    let (client, url) = (hub.client().await?, Pipeline::url_path(&(), Some("apps")));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.yaml").display().to_string();
    let long = |n: usize| "x".repeat(n);
    let labels = |key: &str, value: &str| json!({"name": "a", "labels": {key: value}});
    let annotations = |key: &str, value: &str| json!({"name": "a", "annotations": {key: value}});
    let finalizers = |all: &[&str]| json!({"name": "a", "finalizers": all});
    let generated = |text: &str| json!({"generateName": text});
    for (metadata, words) in [
        (labels("team", "web"), ""),
        (labels("example.com/Team_1.a-b", ""), ""),
        (labels(&long(63), &long(63)), ""),
        (labels(&format!("{}/a", vec![long(63); 3].join(".")), "a"), ""),
        (labels(&long(64), "a"), "metadata.labels["),
        (labels("team", &long(64)), "metadata.labels[team]: "),
        (labels("", "a"), "metadata.labels[]: "),
        (labels("/team", "a"), "metadata.labels[/team]: "),
        (labels("example.com/", "a"), "metadata.labels["),
        (labels("example.com/a/b", "a"), "metadata.labels["),
        (labels("Example.com/a", "a"), "metadata.labels["),
        (labels(&format!("{}/a", long(254)), "a"), "metadata.labels["),
        (labels("-team", "a"), "metadata.labels["),
        (labels("team.", "a"), "metadata.labels["),
        (labels("te am", "a"), "metadata.labels["),
        (labels("tëam", "a"), "metadata.labels["),
        (labels("team", "-a"), "metadata.labels[team]: "),
        (labels("team", "a/b"), "metadata.labels[team]: "),
        (labels("team", "a\n"), "metadata.labels[team]: "),
        (annotations("team", "any text: ü \n"), ""),
        (annotations("Example.com/Team", ""), ""),
        (annotations("example.com/a/b", ""), "metadata.annotations["),
        (annotations("te am", ""), "metadata.annotations["),
        (annotations("", ""), "metadata.annotations[]: "),
        (annotations("a", &long((256 << 10) - 1)), ""),
        (annotations("a", &long(256 << 10)), "metadata.annotations: "),
        (json!({"name": "a", "labels": ["a"]}), "metadata.labels: must be of type object"),
        (json!({"name": "a", "annotations": "a"}), "metadata.annotations: must be of type object"),
        (json!({"name": "a", "labels": {"a": null}, "annotations": null}), ""),
        (json!({"name": "a", "labels": {"a": 1}}), "metadata.labels[a]: must be of type string"),
        (json!({"name": "a", "annotations": {"a": true}}), "metadata.annotations[a]: must be of type string"),
        (finalizers(&["example.com/a", "foregroundDeletion"]), ""),
        (finalizers(&["example.com/a/b"]), "metadata.finalizers[0]: "),
        (finalizers(&["example.com/a", "a b"]), "metadata.finalizers[1]: "),
        (finalizers(&["Example.com/a"]), "metadata.finalizers[0]: "),
        (finalizers(&[""]), "metadata.finalizers[0]: "),
        (finalizers(&["orphan", "foregroundDeletion"]), "metadata.finalizers: "),
        (json!({"name": "a", "finalizers": "orphan"}), "metadata.finalizers: must be of type array"),
        (json!({"name": "a", "finalizers": [7]}), "metadata.finalizers[0]: must be of type string"),
        (generated("podinfo-"), ""),
        (generated("podinfo"), ""),
        (generated("podinfo."), "metadata.generateName: "),
        (generated("Podinfo-"), "metadata.generateName: "),
        (generated("pod_info-"), "metadata.generateName: "),
        (generated("podinfo_-"), "metadata.generateName: "),
        (generated("-"), "metadata.generateName: "),
        (generated(&long(100)), ""),
        (generated(&long(253)), ""),
        (generated(&long(254)), "metadata.generateName: "),
        (generated(""), "metadata.name: is required"),
        (json!({"name": "", "generateName": "podinfo-"}), ""),
        (json!({"name": "a", "generateName": "podinfo_-"}), ""),
        (json!({"name": "a", "generateName": "Podinfo-"}), "metadata.generateName: "),
        (json!({"name": "a", "generateName": 7}), "metadata.generateName: must be of type string"),
        (json!({"name": long(253)}), ""),
        (json!({"name": long(254)}), "metadata.name: "),
        (json!({"name": ""}), "metadata.name: is required"),
    ] {
        let mut whole: Value = serde_saphyr::from_str(PIPELINE)?;
        whole["metadata"] = metadata.clone();
        std::fs::write(&file, whole.to_string())?;
        let ran = validate(&["-f", &file]).await;
        let request = Request::new(&url).create(&dry_run, whole.to_string().into_bytes())?;
        let accepted = match client.request_text(request).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if [400, 422].contains(&status.code) => false,
            Err(error) => return Err(error.into()),
        };
        let shown: String = metadata.to_string().chars().take(100).collect();
        assert_eq!(accepted, words.is_empty(), "whether the server accepts {shown}");
        assert_eq!(ran.exit == Exit::Ok, accepted, "{shown}: {}", ran.out);
        ensure!(ran.out.contains(words), "{shown}: {}", ran.out);
    }
    Ok(())
}

#[tokio::test]
async fn files_without_pipelines_and_with_other_kinds_have_different_messages() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().display().to_string();
    write(folder.path(), &[("a.yaml", "kind: ConfigMap\napiVersion: v1\n")])?;
    let ran = validate(&["-f", &root]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::NotFound, "✗ there is no Pipeline in what was read\n"));
    write(folder.path(), &[("t.yaml", "apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {name: x}\n")])?;
    let ran = validate(&["-f", &root]).await;
    assert_eq!(ran.exit, Exit::NotFound);
    assert!(
        ran.err.contains("t.yaml has a Pipeline of tekton.dev/v1, not of pipelines.weave.works"),
        "{}",
        ran.err
    );
    write(
        folder.path(),
        &[("b.yaml", "{{ if }}\napiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\n")],
    )?;
    let ran = validate(&["-f", &root]).await;
    assert!(ran.err.contains("b.yaml is not YAML: "), "{}", ran.err);
    Ok(())
}
