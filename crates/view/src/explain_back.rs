//! Follows an explanation back: if an environment waits for what an earlier one has not proven, why that one has not, up to
//! the cause.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice_api::{Pipeline, Promotion};

use crate::explain::{Explanation, Situation, explain, retain_explanations};
use crate::place::Place;

/// The most sentences about earlier environments. A pipeline may have 2,048 of them.
const MAX_SENTENCES: usize = 8;
/// The text of the controller about a promotion whose revision is not proven before it.
const NOT_PROVEN: &str = " is not proven in ";
/// The shortest cause that is looked for in other sentences.
const MIN_CAUSE_BYTES: usize = 12;

/// Explains one environment, or one `environment/target`, and the earlier environments that it waits for.
pub fn explain_environment<P: Borrow<Promotion>>(
    pipeline: &Pipeline,
    promotions: &[P],
    wanted: &str,
    now: Timestamp,
) -> Vec<Explanation> {
    let all = explain(pipeline, promotions, now);
    let places = Place::all(pipeline);
    let before: BTreeMap<&str, &[&str]> =
        places.iter().map(|place| (place.environment.name.as_str(), place.after.as_slice())).collect();
    let mut kept = all.clone();
    retain_explanations(&mut kept, wanted);
    for explanation in kept.iter_mut().filter(|explanation| waits_for_proof(explanation)) {
        follow_back(explanation, &all, &before);
    }
    kept
}

/// Whether an environment waits for what an earlier one has not proven.
fn waits_for_proof(explanation: &Explanation) -> bool {
    match explanation.situation {
        Situation::Observed | Situation::Differs | Situation::Unknown => false,
        _ => {
            explanation.promotion.is_none()
                || explanation.sentences.iter().any(|sentence| sentence.contains(NOT_PROVEN))
        }
    }
}

/// Returns the name of the environment that an explanation is about.
fn environment(explanation: &Explanation) -> &str {
    explanation.environment.split('/').next().unwrap_or_default()
}

/// Adds why the environments before one do not have what it waits for.
fn follow_back(explanation: &mut Explanation, all: &[Explanation], before: &BTreeMap<&str, &[&str]>) {
    let own = explanation.sentences.len();
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&str> = predecessors(before, environment(explanation));
    while let Some(name) = waiting.pop() {
        if !seen.insert(name) {
            continue;
        }
        let mut goes_on = false;
        for earlier in all.iter().filter(|earlier| environment(earlier) == name) {
            if explanation.sentences.len() - own >= MAX_SENTENCES {
                return;
            }
            add(explanation, earlier);
            goes_on |= waits_for_proof(earlier);
        }
        if goes_on {
            waiting.extend(predecessors(before, name));
        }
    }
}

/// Returns the environments before one, the last first.
fn predecessors<'a>(before: &BTreeMap<&str, &[&'a str]>, name: &str) -> Vec<&'a str> {
    before.get(name).into_iter().flat_map(|names| names.iter().rev().copied()).collect()
}

/// Adds what is to be said of an earlier environment, unless it is said already.
fn add(explanation: &mut Explanation, earlier: &Explanation) {
    let name = &earlier.environment;
    let mut introduction = match earlier.situation {
        Situation::UpToDate | Situation::Observed | Situation::Differs => return,
        Situation::Blocked => format!("{name} needs a person: "),
        Situation::Moving => format!("{name} is moving: "),
        Situation::Waiting => format!("{name} waits: "),
        Situation::Unknown => format!("{name} is unknown: "),
    };
    for (n, sentence) in earlier.sentences.iter().enumerate() {
        match is_said(&explanation.sentences, sentence) {
            // The first sentence is the cause: what follows says nothing without it.
            true if n == 0 => break,
            false if is_cause(sentence) => {
                explanation.sentences.push(format!("{}{sentence}", std::mem::take(&mut introduction)));
            }
            _ => {}
        }
    }
    for command in &earlier.next {
        if !explanation.next.contains(command) {
            explanation.next.push(command.clone());
        }
    }
}

/// Whether other sentences say the same. The cause is at the end of a sentence, and the words before it differ by where it is
/// said.
fn is_said(others: &[String], sentence: &str) -> bool {
    let cause = sentence.split_once(": ").map_or(sentence, |(_, cause)| cause);
    others
        .iter()
        .any(|said| said.contains(sentence) || cause.len() >= MIN_CAUSE_BYTES && said.contains(cause))
}

/// Whether a sentence says why an environment gets nothing. That it is up to date, or that people change it, does not.
fn is_cause(sentence: &str) -> bool {
    let is_up_to_date = sentence.contains(", as ") && sentence.ends_with(" does.");
    !is_up_to_date && !sentence.contains(" is a first environment: ")
}
