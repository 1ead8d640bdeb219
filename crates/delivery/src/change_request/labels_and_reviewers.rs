//! Adds labels, reviewers and assignees to a change request. Those that people have added stay. A name that the forge
//! rejects becomes a note.

use crate::error::DeliveryResult;
use crate::fencing::FencingToken;
use crate::forge::{AddCall, Forge, ForgeChangeRequest, ForgeResult, MetadataKind};
use crate::order::Settings;

/// Adds the missing labels, reviewers and assignees. Returns a sentence for each name that the forge rejected.
pub(crate) async fn add(
    forge: &dyn Forge,
    token: &FencingToken,
    settings: &Settings,
    found: &ForgeChangeRequest,
) -> DeliveryResult<Vec<String>> {
    let mut notes = Vec::new();
    let all = [
        (MetadataKind::Label, &settings.labels, &found.metadata.labels),
        (MetadataKind::Reviewer, &settings.reviewers, &found.metadata.reviewers),
        (MetadataKind::Assignee, &settings.assignees, &found.metadata.assignees),
    ];
    for (kind, wanted, has) in all {
        let names = missing(wanted, has);
        if !names.is_empty() {
            token.check()?;
            add_all(forge, AddCall { found, kind, names: &names }, &mut notes).await?;
        }
    }
    Ok(notes)
}

/// Adds all names in one call. If the forge rejects it, adds each name in a call of its own, so that one rejected name
/// does not affect the others.
async fn add_all(forge: &dyn Forge, call: AddCall<'_>, notes: &mut Vec<String>) -> ForgeResult<()> {
    match (forge.add(call).await, call.names) {
        (Ok(has), names) => {
            let ignored = missing(names, &has);
            notes.extend(ignored.iter().map(|name| note(call.kind, name, "the forge did not take it")));
        }
        (Err(error), _) if !error.is_refusal() => return Err(error),
        (Err(error), [name]) => notes.push(note(call.kind, name, &error.cause())),
        (Err(_), names) => {
            for name in names {
                let one = AddCall { names: std::slice::from_ref(name), ..call };
                Box::pin(add_all(forge, one, notes)).await?;
            }
        }
    }
    Ok(())
}

/// The names that are missing. No forge distinguishes names by upper and lower case.
fn missing(wanted: &[String], has: &[String]) -> Vec<String> {
    wanted.iter().filter(|name| !has.iter().any(|one| one.eq_ignore_ascii_case(name))).cloned().collect()
}

fn note(kind: MetadataKind, name: &str, says: &str) -> String {
    match kind {
        MetadataKind::Label => format!("it has no label {name}: {says}"),
        MetadataKind::Reviewer => format!("{name} was not asked to review it: {says}"),
        MetadataKind::Assignee => format!("{name} was not assigned to it: {says}"),
    }
}
