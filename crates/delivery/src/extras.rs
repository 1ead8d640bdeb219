//! Labels, reviewers and assignees: what a change request lacks is added, and what people have added
//! stays. What its forge does not take is told, and the change request stands.

use crate::error::DeliveryError;
use crate::forge::{AnyForge, Extra, Forge, ForgeError, Found};
use crate::order::Settings;
use crate::permit::Permit;

/// Adds what is asked for and is not there. Says, a sentence each, what could not be had.
pub(crate) async fn add(
    forge: &AnyForge,
    permit: &Permit,
    settings: &Settings,
    found: &Found,
) -> Result<Vec<String>, DeliveryError> {
    let mut notes = Vec::new();
    let all = [
        (Extra::Label, &settings.labels, &found.has.labels),
        (Extra::Reviewer, &settings.reviewers, &found.has.reviewers),
        (Extra::Assignee, &settings.assignees, &found.has.assignees),
    ];
    for (what, wanted, has) in all {
        let missing = lacking(wanted, has);
        if !missing.is_empty() {
            permit.check()?;
            add_all(forge, found, what, &missing, &mut notes).await?;
        }
    }
    Ok(notes)
}

/// Adds all at once or, where the forge refuses, each by itself, so that one that it does not take costs
/// nobody else the place.
async fn add_all(
    forge: &AnyForge,
    found: &Found,
    what: Extra,
    names: &[String],
    notes: &mut Vec<String>,
) -> Result<(), ForgeError> {
    match forge.add(found, what, names).await {
        Ok(has) => {
            let ignored = lacking(names, &has);
            notes.extend(ignored.iter().map(|name| note(what, name, "the forge did not take it")));
            Ok(())
        }
        Err(error) if !error.is_refusal() => Err(error),
        Err(error) => {
            if let [name] = names {
                notes.push(note(what, name, &error.words()));
                return Ok(());
            }
            for name in names {
                Box::pin(add_all(forge, found, what, std::slice::from_ref(name), notes)).await?;
            }
            Ok(())
        }
    }
}

/// Those of the names that are not there. No forge tells people apart by the case of letters.
fn lacking(wanted: &[String], has: &[String]) -> Vec<String> {
    wanted.iter().filter(|name| !has.iter().any(|one| one.eq_ignore_ascii_case(name))).cloned().collect()
}

fn note(what: Extra, name: &str, says: &str) -> String {
    match what {
        Extra::Label => format!("it has no label {name}: {says}"),
        Extra::Reviewer => format!("{name} was not asked to review it: {says}"),
        Extra::Assignee => format!("{name} was not assigned to it: {says}"),
    }
}
