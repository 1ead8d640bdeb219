//! Labels, reviewers and assignees: what a change request lacks is added, and what people have added
//! stays. What its forge does not take is told, and the change request stands.

use crate::error::DeliveryError;
use crate::fencing::FencingToken;
use crate::forge::{Forge, ForgeChangeRequest, ForgeError, MetadataKind};
use crate::order::Settings;

/// Adds what is asked for and is not there. Says, a sentence each, what could not be had.
pub(crate) async fn add(
    forge: &dyn Forge,
    token: &FencingToken,
    settings: &Settings,
    found: &ForgeChangeRequest,
) -> Result<Vec<String>, DeliveryError> {
    let mut notes = Vec::new();
    let all = [
        (MetadataKind::Label, &settings.labels, &found.metadata.labels),
        (MetadataKind::Reviewer, &settings.reviewers, &found.metadata.reviewers),
        (MetadataKind::Assignee, &settings.assignees, &found.metadata.assignees),
    ];
    for (what, wanted, has) in all {
        let missing = lacking(wanted, has);
        if !missing.is_empty() {
            token.check()?;
            add_all(forge, found, what, &missing, &mut notes).await?;
        }
    }
    Ok(notes)
}

/// Adds all at once or, where the forge refuses, each by itself, so that one that it does not take costs
/// nobody else the place.
async fn add_all(
    forge: &dyn Forge,
    found: &ForgeChangeRequest,
    what: MetadataKind,
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
                notes.push(note(what, name, &error.cause()));
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

fn note(what: MetadataKind, name: &str, says: &str) -> String {
    match what {
        MetadataKind::Label => format!("it has no label {name}: {says}"),
        MetadataKind::Reviewer => format!("{name} was not asked to review it: {says}"),
        MetadataKind::Assignee => format!("{name} was not assigned to it: {says}"),
    }
}
