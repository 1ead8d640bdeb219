//! What may be written to a repository for a person, as tables.

use super::*;

const OBJECT: ManifestObject<'_> =
    ManifestObject { group: "pipelines.weave.works", kind: "Pipeline", namespace: "apps", name: "podinfo" };

const OTHER: ManifestObject<'_> = ManifestObject { namespace: "team-b", ..OBJECT };

fn pipeline(namespace: &str, name: &str, of: &str) -> String {
    format!(
        "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n  of: {of}\n"
    )
}

fn own(of: &str) -> String {
    pipeline("apps", "podinfo", of)
}

/// Begins with the object whose `spec.of` is `old`.
fn edit(before: &str) -> Result<String, ManifestFileError> {
    let is_old = |value: &Value| value["spec"]["of"] == "old";
    manifest_file("a/pipeline.yaml", Some(before), OBJECT, &own("new"), Some(&is_old))
}

fn create(before: Option<&str>) -> Result<String, ManifestFileError> {
    manifest_file("a/pipeline.yaml", before, OBJECT, &own("new"), None)
}

#[test]
fn only_plain_paths_of_yaml_files_are_written() {
    for path in ["pipeline.yaml", "clusters/hub/apps/podinfo-2.x/pipeline_1.yml", "a/b.c.yaml"] {
        assert_eq!(check_manifest_path(path), Ok(()), "{path}");
    }
    for path in [
        "",
        "/a.yaml",
        "a//b.yaml",
        "a/",
        "../a.yaml",
        "a/../b.yaml",
        "a/./b.yaml",
        "a\\..\\b.yaml",
        ".github/workflows/ci.yaml",
        "a/.gitea/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".sops.yaml",
        "a/.yaml",
        ".git/config.yaml",
        "CODEOWNERS",
        "a/CODEOWNERS",
        "Makefile",
        "a.json",
        "a.YAML",
        "a/kustomization.yaml",
        "a/Kustomization.yaml",
        "azure-pipelines.yml",
        "charts/podinfo/Chart.yaml",
        "-a.yaml",
        "a/-rf/b.yaml",
        "a b.yaml",
        "a\n.yaml",
        "a\0.yaml",
        "a\u{202e}.yaml",
        "a/*.yaml",
        ":(top)a.yaml",
        "ü.yaml",
    ] {
        assert!(matches!(check_manifest_path(path), Err(ManifestFileError::Path { .. })), "{path}");
        let written = manifest_file(path, None, OBJECT, &own("new"), None);
        assert!(matches!(written, Err(ManifestFileError::Path { .. })), "{path}");
    }
    let long = format!("{}.yaml", "a".repeat(manifest_path::MAX_BYTES));
    assert!(check_manifest_path(&long).is_err());
    let shown = check_manifest_path("a\u{202e}\n.yaml").unwrap_err().to_string();
    assert!(!shown.contains(['\n', '\u{202e}']), "{shown}");
}

#[test]
fn only_a_manifest_of_the_object_is_written() {
    for document in [
        pipeline("team-b", "podinfo", "new"),
        pipeline("apps", "other", "new"),
        own("new").replace("kind: Pipeline", "kind: Secret"),
        own("new").replace("pipelines.weave.works", "evil.example.com"),
        format!("{}---\nkind: Secret\n", own("new")),
        own("new").replace("kind: Pipeline", "kind: Secret\nkind: Pipeline"),
        own("new").trim_end().into(),
        "a: [".to_string(),
        String::new(),
    ] {
        let written = manifest_file("a.yaml", None, OBJECT, &document, None);
        assert!(matches!(written, Err(ManifestFileError::NotEditable { .. })), "{document}");
    }
    assert_eq!(create(None), Ok(own("new")));
}

#[test]
fn a_document_with_characters_that_nobody_sees_is_not_written() {
    for (hidden, is_written) in [
        ("", true),
        ("ü\t# c", true),
        ("\u{202e}", false),
        ("\u{200b}", false),
        ("\r", false),
        ("\u{7}", false),
    ] {
        let document = own("new") + "# " + hidden + "\n";
        let new = new_manifest_file("a.yaml", None, &[OBJECT], &document);
        let edited = manifest_file("a.yaml", None, OBJECT, &document, None);
        assert_eq!((new.is_ok(), edited.is_ok()), (is_written, is_written), "{}", hidden.escape_debug());
    }
}

#[test]
fn a_file_without_the_object_is_never_overwritten() {
    for before in [
        String::new(),
        "# only a comment\n".into(),
        "on: push\njobs: {}\n".into(),
        pipeline("team-b", "podinfo", "old"),
        pipeline("apps", "other", "old"),
        own("old").replace("kind: Pipeline", "kind: HelmRelease"),
        // What adds the namespace is not known here.
        own("old").replace("  namespace: apps\n", ""),
    ] {
        for written in [create(Some(&before)), edit(&before)] {
            assert!(matches!(written, Err(ManifestFileError::OtherContent { .. })), "{before}");
        }
    }
    for before in ["a: [", "\u{feff}a: 1\n", "a: 1\r\n", "%YAML 1.1\n---\na: 1\n", "a: 1\n...\n"] {
        for written in [create(Some(before)), edit(before)] {
            assert!(matches!(written, Err(ManifestFileError::NotEditable { .. })), "{before}");
        }
    }
    let twice = format!("{}---\n{}", own("old"), own("old"));
    assert!(matches!(edit(&twice), Err(ManifestFileError::NotEditable { .. })));
}

#[test]
fn an_edit_counts_only_for_the_object_that_the_person_began_with() {
    assert!(matches!(edit(&own("other")), Err(ManifestFileError::Changed { .. })));
    assert!(matches!(create(Some(&own("old"))), Err(ManifestFileError::Exists { .. })));
    // A second try finds the result of the first one.
    for written in [edit(&own("new")), create(Some(&own("new")))] {
        assert_eq!(written, Ok(own("new")));
    }
}

#[test]
fn only_the_document_of_the_object_changes() {
    let others = [
        ("# all of apps\n---\n", "---\nkind: ConfigMap # keep\ndata: {a: \"1\"}\n"),
        ("kind: Namespace\n\n---\n", ""),
        ("", "---\n# the end"),
        ("---   \nkind: A\n---\n---\n", "---\nx:   1"),
    ];
    for (above, below) in others {
        let before = format!("{above}{}{below}", own("old"));
        assert_eq!(edit(&before), Ok(format!("{above}{}{below}", own("new"))), "{before}");
    }
}

#[test]
fn a_new_file_replaces_nothing() {
    let new = |before: Option<&str>| new_manifest_file("a/b.yaml", before, &[OTHER, OBJECT], &own("new"));
    for before in [None, Some(own("new"))] {
        assert_eq!(new(before.as_deref()), Ok(own("new")));
    }
    // Also not the same object without the comments.
    for before in ["", "a: 1\n", &own("old"), &format!("# comment\n{}", own("new")), "a: ["] {
        assert!(matches!(new(Some(before)), Err(ManifestFileError::Taken { .. })), "{before}");
    }
    let written = new_manifest_file("../b.yaml", None, &[OBJECT], &own("new"));
    assert!(matches!(written, Err(ManifestFileError::Path { .. })));
    let two = format!("{}---\nkind: Secret\n", own("new"));
    for (document, objects) in [(two, &[OTHER, OBJECT][..]), (own("new"), &[OTHER]), (own("new"), &[])] {
        let written = new_manifest_file("a/b.yaml", None, objects, &document);
        assert!(matches!(written, Err(ManifestFileError::NotEditable { .. })));
    }
}

#[test]
fn files_of_one_change_are_not_in_each_others_way() {
    for (paths, is_good) in [
        (&["a.yaml", "b/a.yaml", "b/c.yaml", "a.yaml2/b.yaml"][..], true),
        (&["a.yaml", "a.yaml"], false),
        (&["b/a.yaml", "B/A.yaml"], false),
        (&["a.yaml/b.yaml", "a.yaml"], false),
        (&["a.yaml", "a.yaml/b.yaml"], false),
        (&["a.yaml", "../b.yaml"], false),
    ] {
        assert_eq!(check_manifest_paths(paths).is_ok(), is_good, "{}", paths.join(" "));
    }
}
