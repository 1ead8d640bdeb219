//! Each test edits 100,000 files, generated from the numbers 0, 1, 2 and so on. So the files are the same in every
//! run. `SETTERS_CASES` sets how many, `SETTERS_FIRST` the first number.

use serde_json::Value;
use sluice_core::Revision;
use sluice_core::setters::{EditedFile, Plan, Update, UpdateError, UpdateTarget};

use super::generated_file::{self, Drawn, Kind, Slot};
use crate::{revision, set_all, slots_of};

fn cases() -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let first = number("SETTERS_FIRST", 0);
    first..first + number("SETTERS_CASES", 100_000)
}

/// Pseudo-random bytes; the same number gives the same bytes (splitmix64).
struct Chance(u64);

impl Chance {
    fn of(case: u64) -> Chance {
        Chance(case.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const VALUES: &[&str] = &[
    "6.1.8",
    "1.10",
    "true",
    "~",
    "a: b",
    "x # y",
    "it's",
    "\"",
    "a\nb",
    "main@sha1:4f0e",
    "é 😀",
    "---",
    "*a",
    "{a}",
    "1e3",
];

/// Returns the field that leads to a JSON pointer; `None` if the pointer has no key.
fn field(pointer: &str) -> Option<String> {
    let mut field = String::new();
    for step in pointer.split('/').skip(1) {
        match step.strip_prefix('k') {
            Some(_) if field.is_empty() => field.push_str(step),
            Some(_) => field.push_str(&format!(".{step}")),
            None => field.push_str(&format!("[{step}]")),
        }
    }
    field.contains('k').then_some(field)
}

fn update(field: String, kind: Kind) -> Update {
    let value = match kind {
        Kind::Version => "source",
        Kind::Image => "image:ghcr.io/x/app",
    };
    Update { path: "file.yaml".into(), field, value: Some(value.into()), ..Update::default() }
}

fn set_listed(
    bytes: &[u8],
    updates: &[Update],
    revision: &Revision,
) -> Result<Option<EditedFile>, UpdateError> {
    let plan = Plan::new(updates, &[UpdateTarget::default()], None)?;
    plan.set(&[("file.yaml", bytes)], revision).map(|mut edited| edited.remove(0))
}

fn wanted(slot: &Slot, source: &str) -> String {
    match slot.kind {
        Kind::Version => source.into(),
        Kind::Image => "ghcr.io/x/app:2.0".into(),
    }
}

/// P10: only the slots differ, and another reader finds the new values there.
fn assert_set(case: u64, drawn: &Drawn, listed: &[&Slot], edited: &EditedFile, source: &str) {
    let raw = slots_of(drawn, &edited.text);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&edited.text)
        .unwrap_or_else(|error| panic!("case {case}: {error}\n{}", edited.text));
    for (slot, raw) in drawn.slots.iter().zip(raw) {
        let before = &slot.old;
        if !listed.iter().any(|one| std::ptr::eq(*one, slot)) {
            assert_eq!(raw, before, "case {case}: this value was not to be changed");
            continue;
        }
        for path in &slot.paths {
            let found = documents.get(path.document).and_then(|document| document.pointer(&path.pointer));
            assert_eq!(
                found,
                Some(&Value::from(wanted(slot, source))),
                "case {case}: {path:?}\n{}",
                edited.text
            );
        }
    }
    assert_eq!(edited.values.len(), listed.len(), "case {case}");
}

#[test]
fn markers_in_generated_files_are_set_correctly_or_refused() {
    let mut set = 0;
    for case in cases() {
        let mut chance = Chance::of(case);
        let drawn = generated_file::file(&chance.bytes(32));
        let source = chance.one(VALUES);
        let edited = set_all(drawn.text().as_bytes(), &revision(source, "2.0"));
        let edited = edited.unwrap_or_else(|error| panic!("case {case}: {error}\n{}", drawn.text()));
        let Some(edited) = edited else {
            assert_eq!(drawn.slots.len(), 0, "case {case}: no marker was found in\n{}", drawn.text());
            continue;
        };
        assert_set(case, &drawn, &drawn.slots.iter().collect::<Vec<_>>(), &edited, source);
        set += edited.values.len();
    }
    assert!(set > cases().count(), "only {set} values: too few to prove anything");
}

#[test]
fn fields_in_generated_files_are_set_correctly_or_refused() {
    let (mut set, mut aliases) = (0, 0);
    for case in cases() {
        let mut chance = Chance::of(case ^ 0x5eed);
        let drawn = generated_file::file(&chance.bytes(32));
        let source = chance.one(VALUES);
        let (text, revision) = (drawn.text(), revision(source, "2.0"));
        // Sets some of the values, each by the field that leads to it.
        let fields = drawn.slots.iter().filter_map(|slot| Some((slot, field(&slot.paths[0].pointer)?)));
        let fields: Vec<_> = fields.filter(|_| chance.below(3) > 0).collect();
        let updates: Vec<Update> =
            fields.iter().map(|(slot, field)| update(field.clone(), slot.kind)).collect();
        let edited = set_listed(text.as_bytes(), &updates, &revision);
        let edited = edited.unwrap_or_else(|error| panic!("case {case}: {error}\n{text}"));
        assert_eq!(edited.is_some(), !updates.is_empty(), "case {case}");
        if let Some(edited) = edited {
            let listed: Vec<&Slot> = fields.iter().map(|(slot, _)| *slot).collect();
            assert_set(case, &drawn, &listed, &edited, source);
            set += edited.values.len();
        }
        // A field that leads to an alias is refused.
        let alias =
            drawn.slots.iter().find_map(|slot| Some((slot.kind, field(&slot.paths.get(1)?.pointer)?)));
        if let Some((kind, field)) = alias {
            let error = set_listed(text.as_bytes(), &[update(field, kind)], &revision).unwrap_err();
            assert_eq!(error.reason(), "Alias", "case {case}: {error}\n{text}");
            aliases += 1;
        }
    }
    assert!(set > cases().count() / 2 && aliases > cases().count() / 5000, "{set} values, {aliases} aliases");
}

/// Damages a file: removes, inserts or replaces bytes.
fn damaged(chance: &mut Chance, mut file: Vec<u8>) -> Vec<u8> {
    for _ in 0..=chance.below(3) {
        let (at, byte) = (chance.below(file.len() + 1), u8::try_from(chance.below(256)).unwrap());
        match chance.below(4) {
            0 => drop(file.drain(at..(at + usize::from(byte) / 4).min(file.len()))),
            1 => drop(file.splice(at..at, *b" # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n")),
            2 => file.insert(at, b"[]{}&*|>'\":,-?!#%@\n\r\t "[usize::from(byte) % 22]),
            _ if at < file.len() => file[at] = byte,
            _ => file.push(byte),
        }
    }
    file
}

/// Whatever the bytes are, markers and fields cause neither a panic nor an edit that changes more than the values.
/// A second edit changes nothing.
#[test]
fn many_damaged_files_cause_no_panic() {
    let mut set = 0;
    for case in cases() {
        let mut chance = Chance::of(case ^ 0xdead);
        let drawn = generated_file::file(&chance.bytes(24));
        let whole = if chance.below(8) == 0 { chance.bytes(100) } else { drawn.text().into_bytes() };
        let file = damaged(&mut chance, whole);
        let revision = revision(chance.one(VALUES), "2.0");
        let says = |error: &dyn std::fmt::Display| {
            format!("case {case}: {error}\n{}", String::from_utf8_lossy(&file))
        };
        match set_all(&file, &revision) {
            Ok(Some(edited)) => {
                let again =
                    set_all(edited.text.as_bytes(), &revision).map(|again| again.map(|again| again.text));
                assert_eq!(again, Ok(Some(edited.text)), "case {case}");
                set += 1;
            }
            Ok(None) => {}
            Err(error) => assert!(error.reason() != "ChangedTooMuch", "{}", says(&error)),
        }
        let field = drawn.slots.iter().find_map(|slot| field(&slot.paths[0].pointer));
        let updates = [update(field.unwrap_or("k1".into()), Kind::Version)];
        match set_listed(&file, &updates, &revision) {
            Ok(Some(edited)) => {
                let again = set_listed(edited.text.as_bytes(), &updates, &revision);
                assert_eq!(
                    again.map(|again| again.map(|again| again.text)),
                    Ok(Some(edited.text)),
                    "case {case}"
                );
                set += 1;
            }
            Ok(None) => {}
            Err(error) => assert!(error.reason() != "ChangedTooMuch", "{}", says(&error)),
        }
    }
    assert!(set > cases().count() / 8, "only {set} could be set: too much damage to prove anything");
}
