//! Tests whole files and `update` lists: the files after the edit, or the reason why nothing is set.

use super::*;
use crate::revision::Revision;

const RELEASE: &str = "kind: HelmRelease\nmetadata: {name: podinfo}\nspec:\n  chart:\n    spec:\n      \
                       version: \"6.1.5\" # keep\n";

fn revision(facets: &[(&str, &str)]) -> Revision {
    Revision::new(facets.iter().map(|(k, v)| (k.parse().unwrap(), v.to_string())).collect()).unwrap()
}

fn entry(path: &str, object: &str, field: &str) -> Update {
    let (kind, name) = object.split_once('/').unwrap_or_default();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
    Update { path: path.into(), kind: some(kind), name: some(name), field: field.into(), ..Update::default() }
}

fn places() -> Vec<UpdateTarget> {
    let place = |target: &str, cluster: Option<&str>| UpdateTarget {
        environment: "prod".into(),
        target: target.into(),
        cluster: cluster.map(String::from),
        namespace: "apps".into(),
    };
    vec![place("eu", Some("eu-1")), place("us", None)]
}

/// Returns all files after the edit, including those that it does not change.
fn updated(files: &[(&str, &str)], updates: &[Update]) -> Result<Vec<String>, UpdateError> {
    let plan = Plan::new(updates, &places(), None)?;
    let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    let selected = plan.select(&paths)?;
    let read: Vec<(&str, &str)> = selected.iter().map(|at| files[*at]).collect();
    let edited = plan.set(&read, &revision(&[("HelmRelease/podinfo:chart", "6.1.8")]))?;
    let mut all: Vec<String> = files.iter().map(|(_, text)| text.to_string()).collect();
    for (at, edited) in selected.into_iter().zip(edited) {
        if let Some(edited) = edited {
            all[at] = edited.text;
        }
    }
    Ok(all)
}

#[test]
fn an_entry_sets_its_one_value() {
    let several = format!("---\n{}---\n{RELEASE}", RELEASE.replace("name: podinfo", "name: other"));
    let manifest = "spec:\r\n  containers:\r\n  - {name: sidecar, image: x/side:1}\r\n  - name: app\r\n    \
                    image: 'x/app:6.1.5' # c\r\n";
    for (text, object, field, old) in [
        (RELEASE, "HelmRelease/podinfo", "spec.chart.spec.version", "6.1.5"),
        (RELEASE, "HelmRelease/", "spec.chart.spec.version", "6.1.5"),
        (RELEASE, "", "spec.chart.spec.version", "6.1.5"),
        (manifest, "", "spec.containers[name=app].image", "6.1.5"),
        ("\u{feff}image: {tag: 1.0 } # x", "", "image.tag", "1.0"),
        ("a: &x 1.0.0\nb: *x\n", "", "a", "1.0.0"),
        ("{\"a.b\": [v1.0.0]}", "", "[\"a.b\"][0]", "v1.0.0"),
    ] {
        let expected = text.replace(old, "6.1.8");
        assert_ne!(expected, text);
        let update = entry("clusters/prod.yaml", object, field);
        assert_eq!(updated(&[("clusters/prod.yaml", text)], &[update]), Ok(vec![expected]), "{field}");
    }
    let update = entry("*.yml", "HelmRelease/podinfo", "spec.chart.spec.version");
    let (first, last) = several.split_at(several.len() - RELEASE.len());
    let expected = format!("{first}{}", last.replace("6.1.5", "6.1.8"));
    assert_eq!(updated(&[("a.yml", &several)], &[update]), Ok(vec![expected]));
}

#[test]
fn a_value_that_is_set_already_is_a_success() {
    let text = RELEASE.replace("6.1.5", "6.1.8");
    let plan = Plan::new(&[entry("a.yaml", "", "spec.chart.spec.version")], &places(), None).unwrap();
    let done = plan.set(&[("a.yaml", &text)], &revision(&[("HelmRelease/podinfo:chart", "6.1.8")])).unwrap();
    let edited = done[0].as_ref().unwrap();
    assert_eq!((&edited.text, edited.values.len()), (&text, 1));
    assert_eq!(edited.values[0].old, edited.values[0].new);
}

#[test]
fn placeholders_mean_each_target() {
    let (old, new) = ("eu: {tag: '1'}\nus: {tag: '1'}\nother: {tag: '1'}\n", "6.1.8");
    let set = |target: &str, text: &str| {
        text.replace(&format!("{target}: {{tag: '1'}}"), &format!("{target}: {{tag: '{new}'}}"))
    };
    let done =
        updated(&[("prod/values.yaml", old)], &[entry("{environment}/values.yaml", "", "{target}.tag")]);
    assert_eq!(done, Ok(vec![set("eu", &set("us", old))]));
    let files = [("apps/eu.yaml", "v: 1.0"), ("apps/us.yaml", "v: 1.0"), ("apps/ap.yaml", "v: 1.0")];
    let done = updated(&files, &[entry("{namespace}/{target}.yaml", "", "v")]);
    assert_eq!(done, Ok(["v: 6.1.8", "v: 6.1.8", "v: 1.0"].map(String::from).to_vec()));
    // The value of a placeholder is not a pattern.
    let plan = Plan::new(
        &[entry("{target}.yaml", "", "v")],
        &[UpdateTarget { target: "[a]*".into(), ..UpdateTarget::default() }],
        None,
    );
    assert_eq!(plan.unwrap().select(&["a.yaml", "[a]*.yaml"]).unwrap().into_iter().collect::<Vec<_>>(), [1]);
}

/// Files, an entry, and the reason and the parts of the message with which the entry is refused.
type Row<'a> = (&'a [(&'a str, &'a str)], Update, &'a str, &'a [&'a str]);

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn errors_name_missing_and_ambiguous_values() {
    let two = format!("{RELEASE}---\n{RELEASE}");
    let other = RELEASE.replace("name: podinfo", "name: other");
    let release = |path: &str| entry(path, "HelmRelease/podinfo", "spec.chart.spec.version");
    let rows: &[Row<'_>] = &[
        (
            &[("a/b.yaml", RELEASE), ("a/c.yaml", ""), ("x/d.yaml", "")],
            release("b.yaml"),
            "NoFile",
            &["a/b.yaml, "],
        ),
        (&[("a/b.txt", RELEASE)], release("a/*"), "NoFile", &["near it there is a/b.txt"]),
        (&[("a/b/c.yaml", RELEASE)], release("a/*.yaml"), "NoFile", &["a/b/c.yaml"]),
        (&[("a.yaml", &other)], release("a.yaml"), "NoObject", &["a.yaml:1 (HelmRelease/other)"]),
        (&[("a.yaml", "v: 1")], release("a.yaml"), "NoObject", &["a.yaml:1 (no object)"]),
        (
            &[("a.yaml", &two)],
            release("a.yaml"),
            "AmbiguousObject",
            &["a.yaml:1 ", "a.yaml:8 (HelmRelease/podinfo)"],
        ),
        (
            &[("a/1.yaml", RELEASE), ("b/1.yaml", RELEASE)],
            release("**/1.yaml"),
            "AmbiguousObject",
            &["a/1.yaml:1 ", "b/1.yaml:1 "],
        ),
        (
            &[("a.yaml", RELEASE)],
            entry("a.yaml", "", "spec.chart.version"),
            "NoField",
            &["a.yaml:5: spec.chart has no version; it has spec"],
        ),
        (&[("a.yaml", "v: 1"), ("b.yaml", "w: 1")], entry("*.yaml", "", "x"), "NoField", &["a.yaml, b.yaml"]),
        (
            &[("a.yaml", "v: 1\n---\nv: 1\n")],
            entry("a.yaml", "", "v"),
            "AmbiguousField",
            &["a.yaml:1, a.yaml:3"],
        ),
        (
            &[("a.yaml", "v: 1"), ("b.yaml", "v: 1")],
            entry("*.yaml", "", "v"),
            "AmbiguousField",
            &["a.yaml:1, b.yaml:1"],
        ),
        (&[("a.yaml", "v: 1\nv: 1")], entry("a.yaml", "", "v"), "AmbiguousField", &["a.yaml:1, a.yaml:2"]),
        (&[("a.yaml", "b: &x 1\nv: *x")], entry("a.yaml", "", "v"), "Alias", &["a.yaml:2: ", "&name"]),
        (&[("a.yaml", "v: |\n  1")], entry("a.yaml", "", "v"), "BlockScalar", &["a.yaml:2: "]),
        (&[("a.yaml", "v: a\n  b")], entry("a.yaml", "", "v"), "MultilineScalar", &["a.yaml:1: "]),
        (&[("a.yaml", "v: !!int 1")], entry("a.yaml", "", "v"), "TaggedValue", &["a.yaml:1: "]),
        (&[("a.yaml", "v: {w: 1}")], entry("a.yaml", "", "v"), "NotAValue", &["a.yaml:1: v is a mapping"]),
        (&[("a.yaml", "v:\n")], entry("a.yaml", "", "v"), "NotAValue", &["v has no value yet"]),
        (&[("a.yaml", "v: x/app")], entry("a.yaml", "", "v"), "ImageWithoutTag", &["a.yaml:1: "]),
        (&[("a.yaml", "v: [")], entry("a.yaml", "", "w"), "UnparsableFile", &["a.yaml:1: "]),
        (
            &[("a.yaml", "{{- v }}\nv: x"), ("b.yaml", "v: 1")],
            entry("*.yaml", "", "v"),
            "UnparsableFile",
            &["a.yaml:1: "],
        ),
        (
            &[],
            Update { value: Some("x".into()), ..entry("a.yaml", "", "v") },
            "BadUpdate",
            &["update[0].value: "],
        ),
        (&[], entry("{env}.yaml", "", "v"), "BadUpdate", &["update[0].path: {env} is no placeholder"]),
        (&[], entry("a.yaml", "", "v..w"), "BadUpdate", &["update[0].field: "]),
        (&[], entry("a/[.yaml", "", "v"), "BadUpdate", &["update[0].path: "]),
        (&[], entry("{cluster}.yaml", "", "v"), "BadUpdate", &["for the target us of prod"]),
        (
            &[("a.yaml", "v: 1")],
            Update { value: Some("app".into()), ..entry("a.yaml", "", "v") },
            "UnknownFacet",
            &["the entry of update asks for app"],
        ),
    ];
    for (files, update, reason, words) in rows {
        let error = updated(files, std::slice::from_ref(update)).unwrap_err();
        assert_eq!(error.reason(), *reason, "{error}");
        let says = error.to_string();
        assert!(words.iter().all(|word| says.contains(word)), "{says}");
    }
    // A template that is not YAML is an error only if it may contain the wanted field.
    let files = [("a.yaml", "{{- x }}\ny: z"), ("b.yaml", "v: 1.0")];
    assert_eq!(updated(&files, &[entry("*.yaml", "", "v")]).unwrap()[1], "v: 6.1.8");
}

/// A Pipeline can name any field of a file that the Secret can read, and its author may not be able to read the file.
#[test]
fn no_error_contains_a_value_of_the_file() {
    let image =
        |of: &str| Update { value: Some(format!("image:{of}")), ..entry("a.yaml", "", "users[0].password") };
    for (password, update, reason) in [
        ("s3cr3t", entry("a.yaml", "", "users[password=zzz].name"), "NoField"),
        ("s3cr3t", entry("a.yaml", "", "users[name=root].key"), "NoField"),
        ("s3cr3t", entry("a.yaml", "", "users[0].password.part"), "NoField"),
        ("s3cr3t", entry("a.yaml", "", "users[name=zzz]"), "NoField"),
        ("!!int s3cr3t", entry("a.yaml", "", "users[0].password"), "TaggedValue"),
        ("x/s3cr3t", entry("a.yaml", "", "users[0].password"), "ImageWithoutTag"),
        ("s3cr3t/x:1", image("ghcr.io/app"), "ImageMismatch"),
        ("s3cr3t:1", image("ghcr.io/app"), "ImageMismatch"),
    ] {
        let text = format!("users:\n- name: root\n  password: {password}\n");
        let revision = revision(&[
            ("HelmRelease/podinfo:chart", "6.1.8"),
            ("HelmRelease/podinfo:image:ghcr.io/app", "2"),
        ]);
        let chart = Update { value: update.value.clone().or(Some("chart".into())), ..update };
        let error =
            Plan::new(&[chart], &places(), None).unwrap().set(&[("a.yaml", &text)], &revision).unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
    }
}

#[test]
fn two_entries_may_mean_one_value_if_they_agree() {
    let files = [("a.yaml", "v: 1.0")];
    let two = [entry("a.yaml", "", "v"), entry("*.yaml", "", "v")];
    assert_eq!(updated(&files, &two).unwrap(), ["v: 6.1.8"]);
    let plan = Plan::new(
        &[
            Update { value: Some("app".into()), ..two[0].clone() },
            Update { value: Some("chart".into()), ..two[1].clone() },
        ],
        &places(),
        None,
    );
    let both = revision(&[("HelmRelease/a:chart", "2.0.0"), ("HelmRelease/a:app", "1.0.0")]);
    let error = plan.unwrap().set(&files, &both).unwrap_err();
    assert_eq!(error.reason(), "Contradiction");
    assert!(error.to_string().contains(r#"would set it to "1.0.0" and "2.0.0""#), "{error}");
}

#[test]
fn a_target_that_is_promoted_into_separately_shares_no_value() {
    let set = |path: &str, target: &str| {
        let plan = Plan::new(&[entry(path, "", "v")], &places(), Some(target))?;
        plan.select(&["eu.yaml", "us.yaml"]).map(|selected| selected.into_iter().collect::<Vec<_>>())
    };
    assert_eq!((set("{target}.yaml", "eu"), set("{target}.yaml", "us")), (Ok(vec![0]), Ok(vec![1])));
    let error = set("*.yaml", "us").unwrap_err();
    assert_eq!(error.reason(), "BadUpdate");
    assert!(error.to_string().contains("the same for the targets us and eu"), "{error}");
}

#[test]
fn a_pattern_stays_within_folders_and_braces_are_letters() {
    for (pattern, path, expected) in [
        ("a/*.yaml", "a/b.yaml", true),
        ("a/*.yaml", "a/b/c.yaml", false),
        ("a/**/c.yaml", "a/c.yaml", true),
        ("a/**/c.yaml", "a/b/b/c.yaml", true),
        ("**/c.yaml", "c.yaml", true),
        ("a?.yaml", "a/.yaml", false),
        ("[ab].yaml", "b.yaml", true),
        ("[!a].yaml", "b.yaml", true),
        ("a}.yaml", "a}.yaml", true),
        ("a\\*.yaml", "a\\b.yaml", true),
    ] {
        let plan = Plan::new(&[entry(pattern, "", "v")], &places(), None).unwrap();
        let is_meant = plan.select(&[path]).is_ok();
        assert_eq!(is_meant, expected, "{pattern} {path}");
    }
}

#[test]
fn a_pattern_of_many_stars_takes_no_longer_than_another() {
    let (done, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let hostile = format!("{}c/x.yaml", "*a".repeat(200));
        let plan = Plan::new(&[entry(&hostile, "", "v")], &places(), None).unwrap();
        let path = format!("{}/x.yaml", "a".repeat(200));
        let _ = done.send(plan.select(&[path.as_str()]).is_err());
    });
    // A matcher with backtracking would practically never end.
    assert_eq!(has_ended.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
}

#[test]
fn files_of_too_many_parts_are_named() {
    let large = format!("v: 1.0\nk: [{}]\n", "a,".repeat(150_000));
    let names = ["a.yaml", "b.yaml", "c.yaml", "d.yaml"];
    let files: Vec<(&str, &str)> = names.iter().map(|name| (*name, large.as_str())).collect();
    let each: Vec<Update> = names.iter().map(|name| entry(name, "", "v")).collect();
    assert!(updated(&files[..3], &each[..3]).unwrap().iter().all(|text| text.starts_with("v: 6.1.8\n")));
    let twice = format!("{large}w: [{}]\n", "a,".repeat(150_000));
    for (files, updates, path) in
        [(&files[..], &each[..], "d.yaml:1: "), (&[("a.yaml", twice.as_str())], &each[..1], "a.yaml:1: ")]
    {
        let error = updated(files, updates).unwrap_err();
        assert_eq!(error.reason(), "FileNotRead");
        assert!(error.to_string().starts_with(path), "{error}");
    }
}

#[test]
fn entries_that_look_at_too_many_documents_name_the_file() {
    let fields: String = (0..400).map(|n| format!("v{n}: 1.0\n")).collect();
    let documents =
        format!("kind: Settings\nmetadata: {{name: a}}\n{fields}{}", "---\nk: 1\n".repeat(30_000));
    let entries: Vec<Update> = (0..400).map(|n| entry("a.yaml", "Settings/a", &format!("v{n}"))).collect();
    assert!(updated(&[("a.yaml", &documents)], &entries[..50]).unwrap()[0].contains("v49: 6.1.8\n"));
    let error = updated(&[("a.yaml", &documents)], &entries).unwrap_err();
    assert_eq!(error.reason(), "FileNotRead");
    assert!(error.to_string().contains("more than 10000000 documents"), "{error}");
}
