//! Tests whole files before and after an edit. In the tables `#M` stands for the marker `# {"$promotion":
//! "ns:app:prod"}`.

use super::*;
use crate::revision::Revision;

const MARKER: &str = r#"# {"$promotion": "ns:app:prod"}"#;

fn revision(facets: &[(&str, &str)]) -> Revision {
    Revision::new(facets.iter().map(|(k, v)| (k.parse().unwrap(), v.to_string())).collect()).unwrap()
}

fn set_to(text: &str, revision: &Revision, target: Option<&str>) -> Result<Option<EditedFile>, SetError> {
    let wanted = MarkerRequest { namespace: "ns", pipeline: "app", environment: "prod", target, revision };
    set_marked("apps/prod.yaml", text.replace("#M", MARKER).as_bytes(), &wanted)
}

fn edited(text: &str, value: &str) -> String {
    match set_to(text, &revision(&[("HelmRelease/app:chart", value)]), None) {
        Ok(Some(edited)) => edited.text.replace(MARKER, "#M"),
        Ok(None) => "no marker".into(),
        Err(error) => error.reason().into(),
    }
}

#[test]
fn only_the_value_changes() {
    for (text, expected) in [
        ("v: 1.0.0 #M\n", "v: 2.0.0 #M\n"),
        ("v: \"1.0.0\" #M\n", "v: \"2.0.0\" #M\n"),
        ("v: '1.0.0' #M\n", "v: '2.0.0' #M\n"),
        ("v: 1.10 #M\n", "v: 2.0.0 #M\n"),
        ("v: ~ #M\n", "v: 2.0.0 #M\n"),
        ("v: null #M\n", "v: 2.0.0 #M\n"),
        ("v: \"\" #M\n", "v: \"2.0.0\" #M\n"),
        ("v: &a old #M\nw: *a\n", "v: &a 2.0.0 #M\nw: *a\n"),
        ("v: !!str 1.0 #M\n", "v: !!str 2.0.0 #M\n"),
        ("v: &a !mine '1' #M\n", "v: &a !mine '2.0.0' #M\n"),
        ("- 1 #M\n-   2   #M\n- - 3 #M\n", "- 2.0.0 #M\n-   2.0.0   #M\n- - 2.0.0 #M\n"),
        ("a:\n    b:\n\n\n        c: 1 #M", "a:\n    b:\n\n\n        c: 2.0.0 #M"),
        ("---\na: 1\n---\nb: 1 #M\n...\n", "---\na: 1\n---\nb: 2.0.0 #M\n...\n"),
        ("a: 1 #M\r\nb:  x\t# y\r\n", "a: 2.0.0 #M\r\nb:  x\t# y\r\n"),
        ("a: 1 #M\rb: x\r", "a: 2.0.0 #M\rb: x\r"),
        ("\u{feff}a: 1 #M\n", "\u{feff}a: 2.0.0 #M\n"),
        ("\u{feff}1 #M", "\u{feff}2.0.0 #M"),
        ("a: 1\t\t#M\t\n", "a: 2.0.0\t\t#M\t\n"),
        ("a:\n  1 #M\n", "a:\n  2.0.0 #M\n"),
        ("? k\n: 1 #M\n", "? k\n: 2.0.0 #M\n"),
        ("k: [ a,  1, #M\n  b ]\n", "k: [ a,  2.0.0, #M\n  b ]\n"),
        ("k: {\"a\":1 #M\n  }\n", "k: {\"a\":2.0.0 #M\n  }\n"),
        ("é: 'ü' #M # x\n", "BadMarker"),
        ("# é 😀\né: 'ü' #M\n", "# é 😀\né: '2.0.0' #M\n"),
        ("image: ghcr.io/x/app:1.0.0 #M\n", "image: ghcr.io/x/app:2.0.0 #M\n"),
        ("image: 'x/app:1@sha256:aa' #M\n", "image: 'x/app:2.0.0' #M\n"),
        ("v: 2.0.0 #M\nw: \"2\\u002e0.0\" #M\n", "v: 2.0.0 #M\nw: \"2\\u002e0.0\" #M\n"),
        ("# v: 1 #M\nv: 1 #M\n", "# v: 1 #M\nv: 2.0.0 #M\n"),
        // On the line above.
        ("#M\nv: 1\n", "#M\nv: 2.0.0\n"),
        ("#M\r\nv:   '1'\t# x\r\nw: 1\r\n", "#M\r\nv:   '2.0.0'\t# x\r\nw: 1\r\n"),
        ("\u{feff}#M\nv: 1", "\u{feff}#M\nv: 2.0.0"),
        ("v:\n#M\n- 1\n- 1\n", "v:\n#M\n- 2.0.0\n- 1\n"),
        ("v:\n  #M\n  1\n", "v:\n  #M\n  2.0.0\n"),
        ("v:\n    w: 1\n    #M\n    x: &a \"1\"\n", "v:\n    w: 1\n    #M\n    x: &a \"2.0.0\"\n"),
        ("#M\nimage: x/app:1\nv: 1 #M\n", "#M\nimage: x/app:2.0.0\nv: 2.0.0 #M\n"),
        (
            "# {\"$promotion\": \"ns:app:staging\"}\n#M\n# {\"$imagepolicy\": \"x\"}\nv: 1\n",
            "# {\"$promotion\": \"ns:app:staging\"}\n#M\n# {\"$imagepolicy\": \"x\"}\nv: 2.0.0\n",
        ),
        (
            "#M\nv: 1 # {\"$promotion\": \"ns:app:staging\"}\n",
            "#M\nv: 2.0.0 # {\"$promotion\": \"ns:app:staging\"}\n",
        ),
    ] {
        assert_eq!(edited(text, "2.0.0"), expected, "{text:?}");
    }
}

#[test]
fn a_bad_marker_has_a_reason_and_other_comments_are_ignored() {
    for (text, expected) in [
        ("", "no marker"),
        ("v: 1\n", "no marker"),
        ("v: 1 # {\"$promotion\": \"ns:app:staging\"}\n", "no marker"),
        ("v: 1 # {\"$promotion\": \"ns:app:prod-eu\"}\n", "no marker"),
        ("v: 1 # {\"$imagepolicy\": \"ns:app:prod\"}\n", "no marker"),
        ("v: 1 # ns:app:prod\n", "no marker"),
        ("v: '1 #M'\n", "no marker"),
        ("v: {{ .x # {\"$promotion\": \"ns:app:staging\"}\n", "no marker"),
        ("{{- if x }}\n# see \"$promotion\" ns:app:prod\n", "no marker"),
        ("v: 1#M\n", "UnparsableFile"),
        ("v: 1#{\"$promotion\":\"ns:app:prod\"}\n", "BadMarker"),
        ("v: 1 #M note\n", "BadMarker"),
        ("v: 1 # {$promotion: ns:app:prod}\n", "BadMarker"),
        ("v: 1 # {'$promotion': 'ns:app:prod'}\n", "BadMarker"),
        ("v: 1 # {\"$promotion\": \"ns:app:prod:tag\"}\n", "BadMarker"),
        ("v: 1 # {\"$promotion\": \"ns:app:prod\", \"value\": \"images\"}\n", "BadMarker"),
        ("#M\n\nv: 1\n", "MisplacedMarker"),
        ("#M\n# v: 0\nv: 1\n", "MisplacedMarker"),
        ("v:\n  w: 1\n  #M\nx: 1\n", "MisplacedMarker"),
        ("v:\n#M\n- w: 1\n", "MisplacedMarker"),
        ("#M\nv:\n  w: 1\n", "MisplacedMarker"),
        ("#M\nv:\n", "MisplacedMarker"),
        ("#M\nv: |\n  1\n", "BlockScalar"),
        ("#M\nv: [1]\n", "FlowCollection"),
        ("a: &x 1\n#M\nv: *x\n", "Alias"),
        ("#M\nv: a\n  b\n", "MultilineScalar"),
        ("#M\nv: 1 #M\n", "TwoMarkers"),
        ("#M\n#M\nv: 1\n", "TwoMarkers"),
        ("v: 1\n#M\n", "MisplacedMarker"),
        ("v: #M\n", "MisplacedMarker"),
        ("v: #M\n  w: 1\n", "MisplacedMarker"),
        ("v: #M\n  1\n", "MisplacedMarker"),
        ("v: !!str #M\n  1\n", "MisplacedMarker"),
        ("- #M\n", "MisplacedMarker"),
        ("? k #M\n: 1\n", "MisplacedMarker"),
        ("--- #M\nv: 1\n", "MisplacedMarker"),
        ("v: [1, 2] #M\n", "FlowCollection"),
        ("v: {a: 1} #M\n", "FlowCollection"),
        ("v: {{ .Values.tag }} #M\n", "FlowCollection"),
        ("a: &x 1\nv: *x #M\n", "Alias"),
        ("v: | #M\n  1\n", "BlockScalar"),
        ("v: >- #M\n  1\n", "BlockScalar"),
        ("v: |\n  tag: 1 #M\n", "BlockScalar"),
        ("v: 'a\n  b' #M\n", "MultilineScalar"),
        ("v: a\n  b #M\n", "MultilineScalar"),
        ("v: !!float 1.10 #M\n", "TaggedValue"),
        ("v: !!null ~ #M\n", "TaggedValue"),
        ("image: ghcr.io/x/app #M\n", "ImageWithoutTag"),
        ("{{- if x }}\nv: 1 #M\n{{- end }}\n", "UnparsableFile"),
        ("v: \"1\"#M\n", "UnparsableFile"),
    ] {
        assert_eq!(edited(text, "2.0.0"), expected, "{text:?}");
    }
}

#[test]
fn plain_values_become_quoted_when_they_would_not_be_strings() {
    for (value, expected) in [
        ("6.1.8", "6.1.8"),
        ("1.20", "\"1.20\""),
        ("5", "\"5\""),
        ("true", "\"true\""),
        ("null", "\"null\""),
        ("~", "\"~\""),
        ("a: b", "\"a: b\""),
        ("x # y", "\"x # y\""),
        ("@x", "\"@x\""),
        ("'q", "\"'q\""),
        ("2024-01-31", "\"2024-01-31\""),
        ("1e3", "\"1e3\""),
        ("a\nb", "\"a\\nb\""),
    ] {
        assert_eq!(edited("v: 1.10 #M\n", value), format!("v: {expected} #M\n"));
    }
    assert_eq!(edited("v: 1.10 #M\n", "1.10"), "v: \"1.10\" #M\n", "a float is not the same value");
    assert_eq!(edited("v: !!str 1.10 #M\n", "1.10"), "v: !!str 1.10 #M\n", "a string is the same value");
    assert_eq!(edited("v: [a #M\n  ]\n", "b,c"), "v: [\"b,c\" #M\n  ]\n");
    assert_eq!(edited("v: 1 #M\n", ""), "EmptyValue");
}

#[test]
fn the_marker_says_which_value() {
    let one = revision(&[("HelmRelease/a:chart", "1.4.0")]);
    let same = revision(&[("HelmRelease/a:chart", "1.4.0"), ("HelmRelease/b:chart", "1.4.0")]);
    let many = revision(&[
        ("HelmRelease/a:chart", "1.4.0"),
        ("HelmRelease/b:chart", "1.5.0"),
        ("HelmRelease/a:image:ghcr.io/x/app", "2.7"),
        ("HelmRelease/a:app", "1.4.0"),
    ]);
    // Of containers that run different tags of one image.
    let two_tags = revision(&[("Kustomization/a:image:ghcr.io/x/app", "1.0,1.1")]);
    for (revision, more, old, expected) in [
        (&two_tags, "", "0", "SeveralTags"),
        (&two_tags, r#", "value": "image:ghcr.io/x/app""#, "ghcr.io/x/app:0.9", "SeveralTags"),
        (&one, "", "0", "1.4.0"),
        (&one, r#", "value": "chart""#, "0", "1.4.0"),
        (&one, r#", "value": "app""#, "0", "UnknownFacet"),
        (&one, r#", "workload": "HelmRelease/b""#, "0", "UnknownFacet"),
        (&same, "", "0", "1.4.0"),
        (&many, "", "0", "AmbiguousMarker"),
        (&many, r#", "value": "chart""#, "0", "AmbiguousMarker"),
        (&many, r#", "value": "chart", "workload": "HelmRelease/b""#, "0", "1.5.0"),
        (&many, r#", "workload": "HelmRelease/b""#, "0", "1.5.0"),
        (&many, r#", "workload": "HelmRelease/a""#, "0", "AmbiguousMarker"),
        (&many, r#", "value": "app", "$imagepolicy": "x:y""#, "0", "1.4.0"),
        (&many, r#", "value": "image:ghcr.io/x/app""#, "\"2.6\"", "\"2.7\""),
        (&many, r#", "value": "image:ghcr.io/x/app""#, "ghcr.io/x/app:2.6", "ghcr.io/x/app:2.7"),
        (&many, r#", "value": "image:ghcr.io/x/app""#, "ghcr.io/x/other:2.6", "ImageMismatch"),
        (&many, r#", "value": "image:ghcr.io/x/none""#, "0", "UnknownFacet"),
    ] {
        let comment = format!(r#" # {{"$promotion": "ns:app:prod"{more}}}"#);
        let found = match set_to(&format!("v: {old}{comment}"), revision, None) {
            Ok(found) => found.unwrap().text,
            Err(error) => format!("v: {}{comment}", error.reason()),
        };
        assert_eq!(found, format!("v: {expected}{comment}"));
    }
}

#[test]
fn one_target_is_set_alone_if_every_marker_names_its_target() {
    let text = "- 1 # {\"$promotion\": \"ns:app:prod\", \"target\": \"eu\"}\n\
                - 1 # {\"$promotion\": \"ns:app:prod\", \"target\": \"us\"}\n\
                - 1 # {\"$promotion\": \"ns:app:prod\"}\n";
    let revision = revision(&[("HelmRelease/a:chart", "2.0.0")]);
    let named = text.split_inclusive('\n').take(2).collect::<String>();
    for (text, target, lines) in
        [(text, None, vec![1, 2, 3]), (&named, Some("eu"), vec![1]), (&named, Some("us"), vec![2])]
    {
        let edited = set_to(text, &revision, target).unwrap().unwrap();
        assert_eq!(edited.values.iter().map(|value| value.line).collect::<Vec<_>>(), lines);
        for (line, text) in (1..).zip(edited.text.lines()) {
            assert_eq!(text.starts_with("- 2.0.0 #"), lines.contains(&line), "{text}");
        }
    }
    let error = set_to(text, &revision, Some("eu")).unwrap_err();
    assert_eq!(error.reason(), "BadMarker");
    assert!(error.to_string().starts_with("apps/prod.yaml:3: "), "{error}");
    assert!(error.to_string().contains(r#"{"$promotion": "ns:app:prod", "target": "eu"}"#), "{error}");
    let only_us = text.lines().nth(1).unwrap();
    assert_eq!(set_to(only_us, &revision, Some("eu")), Ok(None));
}

#[test]
fn messages_name_file_and_line_and_what_to_write() {
    let one = revision(&[("HelmRelease/a:chart", "1.4.0")]);
    let many = revision(&[("HelmRelease/a:chart", "1.4.0"), ("HelmRelease/a:app", "2.7")]);
    for (text, revision, expected) in [
        (
            "\nv: 1 # {$promotion: ns:app:prod}",
            &one,
            "apps/prod.yaml:2: the promotion marker is not a JSON object of strings (key must be a string at \
             line 1 column 2); write # {\"$promotion\": \"ns:app:prod\"}, and nothing else in that comment",
        ),
        (
            "a: 1\r\n\r\nv: 1 #M",
            &many,
            "apps/prod.yaml:3: the promotion marker does not say which value it means; add \"value\" with one \
             of \"app\", \"chart\" to it",
        ),
        (
            "#M\n\nv: 1",
            &one,
            "apps/prod.yaml:1: the promotion marker is above an empty line; put it at the end of the value's \
             line, or alone on the line directly above, indented as that line",
        ),
        (
            "a: 1\n#M\nv: 1 #M",
            &one,
            "apps/prod.yaml:3: the value has two promotion markers of this environment, in line 2 and in line 3; \
             remove one of them",
        ),
        (
            "v: 1 #M\nw: [\n",
            &one,
            "apps/prod.yaml:2: the file has a promotion marker and is not readable as YAML (column 4: unclosed",
        ),
        (
            "v: 1 # {\"$promotion\": \"ns:app:prod\", \"value\": \"tag\"}",
            &many,
            "apps/prod.yaml:1: the promotion marker asks for tag, which the pipeline does not track; it tracks \
             HelmRelease/a:chart, HelmRelease/a:app",
        ),
    ] {
        let error = set_to(text, revision, None).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn bytes_that_are_not_utf8_matter_only_with_our_marker() {
    let revision = revision(&[("HelmRelease/a:chart", "1.4.0")]);
    let wanted = MarkerRequest {
        namespace: "ns",
        pipeline: "app",
        environment: "prod",
        target: None,
        revision: &revision,
    };
    let ours = [b"v: \xff 1 ".as_slice(), MARKER.as_bytes()].concat();
    assert_eq!(set_marked("a", &ours, &wanted).unwrap_err().reason(), "UnparsableFile");
    assert_eq!(set_marked("a", b"v: \xff # \"$promotion\" ns:app:production", &wanted), Ok(None));
}

#[test]
fn a_thousand_commented_lines_under_a_key_are_no_obstacle() {
    let text = format!("a:\n{}  b: 1 #M\n", "  # x: y\n".repeat(1000));
    assert_eq!(edited(&text, "2"), text.replace("b: 1", "b: \"2\""));
    assert_eq!(edited("- 1 #M\n", &"x".repeat(10_000)), format!("- {} #M\n", "x".repeat(10_000)));
}

#[test]
fn a_file_of_too_many_parts_or_markers_is_named() {
    let parts = |count: usize| format!("v: 1 #M\nk: [{}]\n", "a,".repeat(count));
    assert_eq!(edited(&parts(100_000), "2"), parts(100_000).replace("v: 1", "v: \"2\""));
    let markers = |count: usize| "- 1.0 #M\n".repeat(count);
    assert_eq!(edited(&markers(1_000), "2.0.0"), markers(1_000).replace("1.0", "2.0.0"));
    let revision = revision(&[("HelmRelease/app:chart", "2.0.0")]);
    for (text, expected) in [
        (
            parts(2_000_000),
            ["apps/prod.yaml:1: the file has a promotion marker", "move the value to a smaller file"],
        ),
        (
            markers(1_001),
            ["apps/prod.yaml:1001: the file has more than 1000 promotion markers", "divide the file"],
        ),
    ] {
        let error = set_to(&text, &revision, None).unwrap_err();
        assert_eq!(error.reason(), "FileNotRead");
        assert!(expected.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    // A file with markers of other pipelines only is ignored, however large it is.
    assert_eq!(
        set_to(&parts(200_000).replace("#M", "# {\"$promotion\": \"a:b:c\"}"), &revision, None),
        Ok(None)
    );
}
