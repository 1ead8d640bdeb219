//! `explain` for each reason of docs/troubleshooting.md: a reason without a case fails, a message that the controller
//! does not compose fails, and the snapshot has the sentences as a person reads them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use sluice_api::pipeline::EnvironmentStatus;
use sluice_api::{Pipeline, Promotion};
use sluice_view::explain::explain;
use sluice_view::pipeline_screen::summarized;

use crate::explain_cases::{Case, PROGRESS, Shown};
use crate::explain_failure_cases::FAILURES;
use crate::fixture::{now, pipeline, promotion, runs, target};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the words between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the reasons in the tables of the page, each with the heading above it, and how many rows it has.
fn documented() -> BTreeMap<(String, String), usize> {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let (mut section, mut column) = (String::new(), None);
    let mut reasons = BTreeMap::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.into();
        }
        let Some(row) = line.strip_prefix("| ") else {
            column = None;
            continue;
        };
        let row = row.replace("\\|", "/");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let header = cells.iter().position(|cell| *cell == "reason");
        column = header.or(column);
        if let (None, Some(at)) = (header, column) {
            for reason in quoted(cells[at]) {
                *reasons.entry((section.clone(), reason.to_owned())).or_default() += 1;
            }
        }
    }
    reasons
}

/// Returns the condition of a case, which is True.
fn condition(type_: &str, case: &Case) -> Condition {
    serde_json::from_value(
        json!({"type": type_, "status": "True", "reason": case.reason, "message": case.message,
        "lastTransitionTime": "2026-11-21T10:00:00Z"}),
    )
    .unwrap()
}

/// Returns an environment of the status as the API stores it.
fn environment(status: serde_json::Value) -> EnvironmentStatus {
    serde_json::from_value(status).unwrap()
}

/// Changes a pipeline, in which prod is behind staging, into that of a case.
fn hold(held: &mut Pipeline, case: &Case) {
    let status = held.status.as_mut().unwrap();
    match case.shown {
        Shown::Note => {
            let prod = status.environments.get_mut("prod").unwrap();
            (prod.message, prod.reason) = (case.message.into(), case.reason.into());
        }
        // staging offers nothing newer.
        Shown::Target(health) => {
            let failed = json!([target("prod", "6.1.5", health, case.message)]);
            let prod = json!({"health": health, "revision": "6.1.5", "targets": failed});
            status.environments.insert("prod".into(), environment(prod));
            status.environments.insert("staging".into(), environment(runs("staging", "6.1.5", "Ready")));
        }
        Shown::Condition(type_) => status.conditions.push(condition(type_, case)),
        Shown::Suspended => {
            held.spec.suspend = true;
            status.conditions = vec![condition("Ready", case)];
        }
        Shown::Phase("Succeeded") => {
            status.environments.insert("prod".into(), environment(runs("prod", "6.1.8", "Ready")));
        }
        Shown::Phase("Cancelled") => {
            held.spec.promotion = None;
            held.spec.environments.iter_mut().for_each(|environment| environment.promotion = None);
        }
        Shown::Phase(_) | Shown::Gate(_) | Shown::Elsewhere(_) => {}
    }
}

/// Returns the promotions into prod of a case.
fn promotions(case: &Case) -> Vec<Promotion> {
    let mut status = json!({"reason": case.reason, "message": case.message});
    match case.shown {
        Shown::Gate(name) => {
            status["phase"] = json!("Pending");
            status["gates"] = json!([{"name": name, "open": false, "message": case.message}]);
        }
        Shown::Phase(phase) => status["phase"] = json!(phase),
        _ => return Vec::new(),
    }
    if case.shown == Shown::Phase("Promoting") {
        status["attempts"] = json!(1);
        status["nextAttempt"] = json!("2026-11-21T12:02:30Z");
    }
    if case.shown == Shown::Phase("Proposed") {
        status["changeRequest"] = json!({"number": 7, "url": "https://git.example.com/fleet/pulls/7",
            "state": "open", "branch": "sluice/apps/podinfo/prod", "headCommit": "c0ffee"});
    }
    let mut all = vec![promotion("prod", 1, status)];
    if case.shown == Shown::Phase("Superseded") {
        all.push(promotion("prod", 2, json!({"phase": "Promoting"})));
        all[1].spec.revision = "6.1.9".into();
    }
    all
}

/// Returns what `sluice explain` prints about prod in a case.
fn explained(case: &Case) -> String {
    if let Shown::Elsewhere(place) = case.shown {
        return format!("not in explain: {place}");
    }
    let mut held = pipeline(json!({
        "dev": runs("dev", "6.1.8", "Ready"),
        "staging": runs("staging", "6.1.8", "Ready"),
        "prod": runs("prod", "6.1.5", "Ready"),
    }));
    hold(&mut held, case);
    let all = explain(&held, &promotions(case), now());
    let prod = all.iter().find(|explanation| explanation.environment == "prod").unwrap();
    let next = prod.next.iter().map(|command| format!("► {command}"));
    let conditions = &held.status.as_ref().unwrap().conditions;
    let first = summarized(conditions).map(|summarized| format!("! {summarized}"));
    let lines: Vec<String> = first.into_iter().chain(prod.sentences.iter().cloned()).chain(next).collect();
    format!("{:?}\n{}", prod.situation, lines.join("\n"))
}

#[test]
fn explain_says_for_each_documented_reason_what_to_do() {
    let mut cases: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut shown = String::new();
    for case in PROGRESS.iter().chain(FAILURES) {
        *cases.entry((case.section.into(), case.reason.into())).or_default() += 1;
        shown += &format!("## {} ({})\n{}\n\n", case.reason, case.section, explained(case));
    }
    let documented = documented();
    assert!(documented.len() > 100, "the tables of the page are not read: {documented:?}");
    let lacking = documented.iter().filter(|(reason, rows)| cases.get(reason).is_none_or(|n| n < rows));
    let lacking: Vec<_> = lacking.map(|(reason, _)| reason).collect();
    assert!(lacking.is_empty(), "add a case for each of {lacking:#?}");
    insta::assert_snapshot!(shown);
}

/// Adds the text literals of all Rust files in a folder, each as the pieces around its placeholders.
fn literals(folder: &Path, found: &mut Vec<Vec<String>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            literals(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            // Apostrophes in comments and escaped quotes do not end a literal.
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let code = lines.map(str::trim_start).collect::<Vec<_>>().join("\n");
            let code = code.replace("\\\n", "").replace("'\"'", "").replace("\\\"", "\u{1}");
            for literal in code.split('"').skip(1).step_by(2) {
                let literal = literal.replace("{{", "\u{2}").replace("}}", "\u{3}");
                let pieces = literal.split('{').enumerate().map(|(n, piece)| match n {
                    0 => piece,
                    _ => piece.split_once('}').map_or("", |(_, rest)| rest),
                });
                found.push(
                    pieces
                        .map(|piece| piece.replace('\u{1}', "\"").replace('\u{2}', "{").replace('\u{3}', "}"))
                        .collect(),
                );
            }
        }
    }
}

/// Whether a message ends with a literal. What a placeholder at its end says must be composed as well, if it is more
/// than the words of another program.
fn is_composed(message: &str, literals: &[Vec<String>]) -> bool {
    literals.iter().any(|pieces| {
        let (last, first) = pieces.split_last().unwrap();
        let mut rest = message;
        let has_first = first.iter().all(|piece| {
            let Some(at) = rest.find(piece.as_str()) else { return false };
            rest = &rest[at + piece.len()..];
            true
        });
        has_first
            && match last.as_str() {
                "" => !rest.contains("; ") || (rest.len() < message.len() && is_composed(rest, literals)),
                // The words of the receiver may follow.
                last => rest.ends_with(last) || (first.is_empty() && rest.contains(&format!("{last}: "))),
            }
    })
}

#[test]
fn the_controller_composes_the_message_of_each_case() {
    let mut found = Vec::new();
    for folder in ["core", "delivery", "controller"] {
        literals(&root().join("crates").join(folder).join("src"), &mut found);
    }
    // A shorter literal could be part of any message.
    found.retain(|pieces| pieces.iter().map(|piece| piece.trim().len()).sum::<usize>() >= 12);
    let invented = PROGRESS.iter().chain(FAILURES).filter(|case| !matches!(case.shown, Shown::Elsewhere(_)));
    let invented = invented.filter(|case| !is_composed(case.message, &found));
    let invented: Vec<_> = invented.map(|case| format!("{}: {}", case.reason, case.message)).collect();
    assert!(invented.is_empty(), "no text of the controller makes these messages: {invented:#?}");
}
