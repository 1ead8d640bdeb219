//! What a person can do with a promotion: whether it is possible now, and the fields of its spec that say so. The API server
//! decides who may.

pub mod approve;
pub mod reject;
pub mod retry;

use sluice_api::pipeline::Strategy;
use sluice_api::{Pipeline, Promotion};

use crate::place::Place;

/// Whether a person can change a promotion in a certain way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeCheck {
    /// The change can be written.
    Apply,
    /// The promotion is in the wanted state already, with the reason.
    NothingToDo(String),
    /// The promotion cannot be changed like this: the reason, and what to do instead.
    Refuse(String, Option<String>),
}

/// Describes a promotion as `pipeline revision into environment`.
pub fn describe(promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    format!("{} {} into {}", spec.pipeline, spec.revision, spec.place())
}

/// Returns a message of a promotion's status or gate without the command that approves it, for those who show that on their
/// own.
pub fn without_command<'a>(message: &'a str, promotion: &Promotion) -> &'a str {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or("default");
    without_command_of(message, namespace, name)
}

/// The same for the promotion with this namespace and name.
pub fn without_command_of<'a>(message: &'a str, namespace: &str, name: &str) -> &'a str {
    message.strip_suffix(&format!(": sluice approve -n {namespace} {name}")).unwrap_or(message)
}

/// Returns how a promotion is delivered, in words: by pull request, commit, notification or webhook, and where to.
pub fn delivery(pipeline: &Pipeline, promotion: &Promotion) -> String {
    let wanted = promotion.spec.place();
    let policy = Place::all(pipeline).into_iter().find(|place| place.name() == wanted).and_then(|p| p.policy);
    match policy.and_then(|policy| policy.strategy.as_ref()) {
        Some(Strategy { pull_request: Some(request), .. }) => {
            format!("a change request to {} ({})", request.base_branch, request.url)
        }
        Some(Strategy { commit: Some(commit), .. }) => {
            format!("a commit to {} ({})", commit.branch, commit.url)
        }
        Some(Strategy { notification: Some(_), .. }) => "a notification through Flux".into(),
        Some(Strategy { webhook: Some(webhook), .. }) => format!("a call of {}", webhook.url),
        Some(_) | None => "nothing: the Pipeline has no strategy for this environment".into(),
    }
}

/// Returns the status message of a promotion in parentheses, for the end of a sentence.
pub(crate) fn status_message(promotion: &Promotion) -> String {
    match promotion.status.as_ref().map(|s| s.message.as_str()) {
        None | Some("") => String::new(),
        Some(message) => format!(" ({message})"),
    }
}

/// Returns the number of retries of a promotion, which approvals and rejections name.
pub(crate) fn retries(promotion: &Promotion) -> u32 {
    promotion.status.as_ref().map_or(0, |status| status.retries)
}
