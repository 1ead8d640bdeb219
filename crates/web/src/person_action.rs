//! What people can do with Pipelines and Promotions.

use sluice_api::{Pipeline, Promotion};
use sluice_view::change::{ChangeCheck, approve, reject, retry};

/// The ClusterRole with the rights to change Pipelines and to retry.
pub(crate) const EDITOR: &str = "sluice-editor";

/// Returns whom to ask for a right that a ClusterRole has.
pub(crate) fn who_has(role: &str) -> String {
    format!("The ClusterRole {role} has it; ask the owners of the namespace to bind it to you.")
}

/// Something that a person can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PersonAction {
    Approve,
    Reject,
    Retry,
    Suspend,
    Resume,
}

impl PersonAction {
    /// What can be done with a promotion, the wanted one first.
    pub(crate) const OF_PROMOTION: [PersonAction; 3] =
        [PersonAction::Approve, PersonAction::Retry, PersonAction::Reject];

    /// Returns what can be done with objects of a kind.
    pub(crate) fn of(kind: &str) -> &'static [PersonAction] {
        match kind {
            "promotions" => &PersonAction::OF_PROMOTION,
            "pipelines" => &[PersonAction::Suspend, PersonAction::Resume],
            _ => &[],
        }
    }

    /// Returns the word in addresses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            PersonAction::Approve => "approve",
            PersonAction::Reject => "reject",
            PersonAction::Retry => "retry",
            PersonAction::Suspend => "suspend",
            PersonAction::Resume => "resume",
        }
    }

    /// Returns the word on a button.
    pub(crate) fn title(self) -> &'static str {
        match self {
            PersonAction::Approve => "Approve",
            PersonAction::Reject => "Reject",
            PersonAction::Retry => "Retry",
            PersonAction::Suspend => "Suspend",
            PersonAction::Resume => "Resume",
        }
    }

    /// Returns the verbs that a person needs.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            PersonAction::Approve | PersonAction::Reject => &["patch", "approve"],
            PersonAction::Retry => &["patch", "retry"],
            PersonAction::Suspend | PersonAction::Resume => &["patch"],
        }
    }

    /// Returns the ClusterRole of deploy/people.yaml that has these verbs.
    pub(crate) fn role(self) -> &'static str {
        match self {
            PersonAction::Approve | PersonAction::Reject => "sluice-approver",
            PersonAction::Retry | PersonAction::Suspend | PersonAction::Resume => EDITOR,
        }
    }

    /// Returns the action of this name on objects of a kind.
    pub(crate) fn named(kind: &str, word: &str) -> Option<PersonAction> {
        PersonAction::of(kind).iter().copied().find(|action| action.word() == word)
    }

    /// Checks whether it can be done with a promotion.
    pub(crate) fn check(self, promotion: &Promotion, pipeline: Option<&Pipeline>) -> ChangeCheck {
        match self {
            PersonAction::Approve => approve::check(promotion),
            PersonAction::Reject => reject::check(promotion),
            PersonAction::Retry => retry::check(promotion, pipeline),
            PersonAction::Suspend | PersonAction::Resume => ChangeCheck::Apply,
        }
    }

    /// Whether it can be done with a promotion.
    pub(crate) fn is_possible(self, promotion: &Promotion, pipeline: Option<&Pipeline>) -> bool {
        self.check(promotion, pipeline) == ChangeCheck::Apply
    }
}

/// Returns the targets that a promotion changes.
pub(crate) fn targets_of(pipeline: &Pipeline, promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    let environment = pipeline.spec.environments.iter().find(|e| e.name == spec.environment);
    let names = environment.map(|environment| environment.target_names()).unwrap_or_default();
    let names: Vec<String> =
        names.into_iter().filter(|name| spec.target.as_ref().is_none_or(|target| target == name)).collect();
    names.join(", ")
}
