//! The rules of plain language that a test can check: no word that has an ordinary one, and commit subjects that fit on
//! a line.

use anyhow::{Result, ensure};

use crate::{fail_if_any, files, has_word, output, root};

/// Words that make a reader stop, each with what to write.
const WORDS: [(&str, &str); 27] = [
    ("anew", "again"),
    ("believes", "assumes, or a verb that says what the program does"),
    ("by itself", "automatically, or on its own"),
    ("crowd", "connection limit"),
    ("goes on", "continues"),
    ("heed", "apply"),
    ("heeds", "applies"),
    ("hears", "receives"),
    ("knows", "has, reports, or another verb that says what the program does"),
    ("leash", "process guard"),
    ("lent", "reserved, or issued"),
    ("makes known", "publishes"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("obey", "follow"),
    ("obeys", "follows"),
    ("overtaken", "replaced, or a conflict"),
    ("shall", "must, or should"),
    ("stray", "outdated"),
    ("tell of", "report"),
    ("tells of", "reports"),
    ("the other side", "the receiver, or the server"),
    ("touch", "change, or reconcile"),
    ("touches", "changes, or reconciles"),
    ("wake", "requeue"),
    ("whoever", "the actor: the user, the caller, the controller"),
];

/// Files that may have a word: the name of a command, or the value of a metric, which users read.
const ALLOWED: [(&str, &str); 5] = [
    ("crates/controller/src/metrics.rs", "overtaken"),
    ("docs/metrics.md", "overtaken"),
    ("hack/controlplane/build.sh", "touch"),
    // Written before the rule.
    ("crates/controller/src/state/simulation/happening.rs", "goes on"),
    ("crates/controller/src/state/simulation/request_properties.rs", "goes on"),
];

/// The last commit whose subject was written before there was this rule.
const BEFORE_RULE: &str = "8487114";

/// The most characters of a commit subject.
const MAX_SUBJECT: usize = 72;

#[test]
fn no_text_has_a_word_that_has_an_ordinary_one() -> Result<()> {
    let mut broken = Vec::new();
    let is_text = |path: &&String| {
        let named = [".rs", ".md", ".toml", ".sh", "Makefile"].iter().any(|end| path.ends_with(end));
        (named || path.starts_with(".ci/")) && !path.ends_with("architecture/language.rs")
    };
    let is_allowed = |path: &str, word: &str| ALLOWED.contains(&(path, word));
    for path in files()?.iter().filter(is_text) {
        let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
        for (number, line) in text.to_lowercase().lines().enumerate() {
            let found = WORDS.iter().filter(|(word, _)| has_word(line, word) && !is_allowed(path, word));
            broken.extend(
                found.map(|(word, instead)| format!("{path}:{}: {word}: write {instead}", number + 1)),
            );
        }
    }
    fail_if_any(&broken)
}

/// Returns what is wrong with a commit subject.
fn fault(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > MAX_SUBJECT {
        return Some(format!(
            "has {length} characters: at most {MAX_SUBJECT}, the reason goes into the body"
        ));
    }
    let Some((area, summary)) = subject.split_once(": ") else {
        return Some("has no area: write \"area: imperative summary\"".into());
    };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-_., ".contains(c);
    if area.is_empty() || !area.chars().all(is_area) {
        return Some(format!("has the area {area:?}: write a folder or crate in lower case"));
    }
    let first = summary.split_whitespace().next().unwrap_or_default();
    match first.ends_with("ed") || summary.ends_with('.') {
        true => Some("is no imperative without a full stop: write what the commit does, as an order".into()),
        false => None,
    }
}

#[test]
fn commit_subjects_are_short_and_name_their_area() -> Result<()> {
    let range = format!("{BEFORE_RULE}..HEAD");
    // A shallow clone, or a fork of one, does not have that commit: then only the last subject is checked.
    let log =
        |what: &str| output("git", &["-c", "safe.directory=*", "log", "--no-merges", "--format=%s", what]);
    let subjects = log(&range).or_else(|_| log("HEAD~1..HEAD"));
    let subjects = String::from_utf8(subjects.unwrap_or_default())?;
    let broken: Vec<String> =
        subjects.lines().filter_map(|line| Some(format!("{line:?} {}", fault(line)?))).collect();
    fail_if_any(&broken)
}

#[test]
fn a_subject_is_checked_for_what_the_rule_says() -> Result<()> {
    for good in ["hook: refuse a body without a date", "delivery/tests: wait for the push"] {
        ensure!(fault(good).is_none(), "{good:?} {:?}", fault(good));
    }
    let long = format!("hook: {}", "x".repeat(MAX_SUBJECT));
    for bad in ["Fix it", "hook: fixed it", "hook: refuse it.", "Hook: refuse it", &long] {
        ensure!(fault(bad).is_some(), "{bad:?} passes");
    }
    Ok(())
}
