//! P10: an edit by Sluice changes the bytes of the values that it sets, and nothing else. Files are generated from
//! bytes, so that proptest can shrink a failing one. After the edit, another YAML reader than the editor's reads
//! the file. `PROPTEST_CASES` sets the number of files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod setters {
    pub mod generated_file;
    mod many_files;
}

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use setters::generated_file::{self, Drawn, Kind, Piece};
use sluice_core::Revision;
use sluice_core::setters::{EditedFile, MarkerRequest, SetError, set_marked};

fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 2_000;
    }
    config
}

/// A revision with any text as source revision, and the tag of an image.
fn revision(source: &str, tag: &str) -> Revision {
    let facets = [("Kustomization/app:source", source), ("Kustomization/app:image:ghcr.io/x/app", tag)];
    let facets: BTreeMap<_, _> = facets.iter().map(|(k, v)| (k.parse().unwrap(), v.to_string())).collect();
    Revision::new(facets).unwrap()
}

fn set_all(bytes: &[u8], revision: &Revision) -> Result<Option<EditedFile>, SetError> {
    let wanted =
        MarkerRequest { namespace: "ns", pipeline: "app", environment: "prod", target: None, revision };
    set_marked("file.yaml", bytes, &wanted)
}

fn read(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[rustfmt::skip]
const ODD: &[&str] = &[
    "1.10", "5", "0x1f", "1_000", "1e3", "12:30", ".inf", "-.INF", ".NaN", "true", "Yes", "no", "ON", "off", "y", "n",
    "null", "~", "2024-01-31", "2024-01-31T10:00:00Z", "a: b", "a #b", "- a", "? a", "---", "...", "%a", "6.1.8",
    "main@sha1:4f0e", "v1.2.3-rc.1+b", "sha256:00ff", " ", " a", "a ", "a:", ":a", "it's", "\"", "\\", "\n", "a\nb",
    "\r\n", "\t", "a\tb", "\u{85}", "\u{2028}", "\u{feff}", "a\u{feff}", "\u{fffe}", "\0", "\u{7f}", "é", "日本",
    "😀", "=", "<<", "*a", "&a", "!a", "!!str a", "|", ">-", "{{ x }}", "[a]", "a, b", "0o17", "ghcr.io/x/app:1.10",
    "# {\"$promotion\": \"ns:app:prod\"}",
];

/// Values that rarely look like a version.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(ODD).prop_map(String::from),
        8 => "[-?:,\\[\\]{}#&*!|>'\"%@` \\\\a1.~_e+\n]{1,12}",
        6 => "[-+]?[0-9._,:exo]{1,8}",
        4 => prop::collection::vec(any::<char>(), 1..12).prop_map(String::from_iter),
        2 => "[0-9]\\.[0-9]{1,2}\\.[0-9]{1,2}",
        1 => prop::sample::select(&["x", "\u{1}é", "a b", "': "][..]).prop_map(|part| part.repeat(10_000 / part.len())),
    ]
}

/// Checks that an edited file differs from the generated one in its slots only. Returns the texts in the slots.
fn slots_of<'t>(drawn: &Drawn, text: &'t str) -> Vec<&'t str> {
    let mut rest = text;
    let mut slots = Vec::new();
    let mut pieces = drawn.pieces.iter().peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Fixed(fixed) => {
                rest = rest
                    .strip_prefix(fixed.as_str())
                    .unwrap_or_else(|| panic!("{fixed:?} is not at {rest:?}"));
            }
            Piece::Slot(_) => {
                // After a slot comes its comment, which contains a number that no other comment has.
                let Some(Piece::Fixed(next)) = pieces.peek() else { panic!("a slot without a comment") };
                let end = rest.find(next.as_str()).unwrap_or_else(|| panic!("{next:?} is not in {rest:?}"));
                slots.push(&rest[..end]);
                rest = &rest[end..];
            }
        }
    }
    assert_eq!(rest, "");
    slots
}

fn put(documents: &mut [Value], path: &generated_file::Path, new: &str) {
    let place = documents.get_mut(path.document).and_then(|document| document.pointer_mut(&path.pointer));
    *place.unwrap_or_else(|| panic!("nothing at {path:?}")) = Value::String(new.into());
}

/// Returns the structure of a file without its values: keys, lists and their lengths.
fn shape(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    fn blank(value: &mut Value) {
        match value {
            Value::Array(entries) => entries.iter_mut().for_each(blank),
            Value::Object(entries) => entries.values_mut().for_each(blank),
            scalar => *scalar = Value::Null,
        }
    }
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    documents.iter_mut().for_each(blank);
    // The reader leaves out documents that are null.
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn only_the_values_change(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        source in value(),
        tag in "[0-9a-z][0-9a-z.]{0,9}",
    ) {
        let drawn = generated_file::file(&bytes);
        let before = drawn.text();
        let revision = revision(&source, &tag);
        let edited = set_all(before.as_bytes(), &revision).unwrap_or_else(|error| panic!("{error}\n{before}"));
        let Some(edited) = edited else {
            prop_assert_eq!(drawn.slots.len(), 0, "no marker was found in\n{}", before);
            return Ok(());
        };
        prop_assert_eq!(edited.values.len(), drawn.slots.len());

        let slots = slots_of(&drawn, &edited.text);
        let mut expected = read(&before);
        for ((slot, raw), value) in drawn.slots.iter().zip(slots).zip(&edited.values) {
            prop_assert!(!raw.contains(['\n', '\r']), "{:?} goes over lines", raw);
            let new = match slot.kind {
                Kind::Version => source.clone(),
                Kind::Image => format!("ghcr.io/x/app:{tag}"),
            };
            prop_assert_eq!(&value.new, &new);
            for path in &slot.paths {
                put(&mut expected, path, &new);
            }
        }
        prop_assert_eq!(read(&edited.text), expected, "from\n{}\nto\n{}", before, edited.text);

        let again = set_all(edited.text.as_bytes(), &revision);
        let again = again.unwrap_or_else(|error| panic!("{error}\n{}", edited.text)).unwrap();
        prop_assert_eq!(&again.text, &edited.text, "the second time");
        prop_assert!(again.values.iter().all(|value| value.old == value.new));
    }

    #[test]
    fn random_yaml_syntax_is_edited_correctly_or_refused(
        lines in prop::collection::vec(any::<[prop::sample::Index; 3]>(), 0..6),
        source in value(),
    ) {
        let part = |number: usize, part: &prop::sample::Index, choices: &[&str]| {
            part.get(choices).replace('k', &format!("k{number}"))
        };
        let line = |(number, parts): (usize, &[prop::sample::Index; 3])| {
            parts.iter().zip(generated_file::SOUP).map(|(index, choices)| part(number, index, choices)).collect::<String>()
        };
        let before: String = lines.iter().enumerate().map(line).collect();
        let ends = |text: &str| text.bytes().filter(|b| matches!(b, b'\n' | b'\r')).count();
        match set_all(before.as_bytes(), &revision(&source, "1")) {
            Ok(None) => {}
            Ok(Some(edited)) => {
                prop_assert_eq!(ends(&edited.text), ends(&before));
                if let (Ok(before), Ok(after)) = (shape(&before), shape(&edited.text)) {
                    prop_assert_eq!(before, after, "to\n{}", edited.text);
                }
                let again = set_all(edited.text.as_bytes(), &revision(&source, "1"));
                prop_assert_eq!(again.map(|again| again.map(|again| again.text)), Ok(Some(edited.text)));
            }
            Err(error) => prop_assert!(error.reason() != "ChangedTooMuch", "{}\n{}", error, before),
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
    ) {
        let _ = set_all(&bytes, &revision("1.0.0", "1"));
        let at = at.index(bytes.len() + 1);
        bytes.splice(at..at, br#" # {"$promotion": "ns:app:prod", "value": "source"}"#.iter().copied());
        let _ = set_all(&bytes, &revision("1.0.0", "1"));
    }

    #[test]
    fn a_damaged_file_causes_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..4),
    ) {
        let mut file = generated_file::file(&bytes).text().into_bytes();
        for (at, byte) in cuts {
            let at = at.index(file.len());
            match byte {
                0..64 => drop(file.drain(at..(at + usize::from(byte)).min(file.len()))),
                _ => file[at] = byte,
            }
            file.push(b'\n');
        }
        if let Err(error) = set_all(&file, &revision("a: b", "1")) {
            prop_assert!(error.reason() != "ChangedTooMuch", "{}\n{}", error, String::from_utf8_lossy(&file));
        }
    }
}

/// Files as people have them. The values are 6.1.5 and become 6.1.8.
#[test]
fn real_files_differ_only_in_the_marked_lines() {
    for (name, file, changes) in [
        ("helmrelease.yaml", include_str!("corpus/helmrelease.yaml"), 2),
        ("kustomization.yaml", include_str!("corpus/kustomization.yaml"), 2),
        ("deployment.yaml", include_str!("corpus/deployment.yaml"), 2),
    ] {
        for (file, newline) in [(file.to_string(), "\n"), (file.replace('\n', "\r\n"), "\r\n")] {
            let facets = [("HelmRelease/podinfo:chart".parse().unwrap(), "6.1.8".to_string())];
            let revision = Revision::new(BTreeMap::from(facets)).unwrap();
            let wanted = MarkerRequest {
                namespace: "flux-system",
                pipeline: "podinfo",
                environment: "prod",
                target: None,
                revision: &revision,
            };
            let edited = set_marked(name, file.as_bytes(), &wanted).unwrap().unwrap();
            let expected: Vec<String> = file
                .split(newline)
                .map(|line| {
                    let marked = line.contains("flux-system:podinfo:prod\"") && !line.trim().starts_with('#');
                    if marked { line.replace("6.1.5", "6.1.8") } else { line.to_string() }
                })
                .collect();
            assert_eq!(edited.text, expected.join(newline), "{name}");
            assert_eq!(edited.values.len(), changes, "{name}");
        }
    }
}
