//! What people can do with Pipelines and Promotions.

use sluice_api::{Pipeline, Promotion};
use sluice_view::change::{ChangeCheck, approve, reject, retry};

/// Something that a person can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Approve,
    Reject,
    Retry,
    Suspend,
    Resume,
}

impl Action {
    /// What can be done with a promotion, the wanted one first.
    pub(crate) const OF_PROMOTION: [Action; 3] = [Action::Approve, Action::Retry, Action::Reject];

    /// Returns what can be done with objects of a kind.
    pub(crate) fn of(kind: &str) -> &'static [Action] {
        match kind {
            "promotions" => &Action::OF_PROMOTION,
            "pipelines" => &[Action::Suspend, Action::Resume],
            _ => &[],
        }
    }

    /// Returns the word in addresses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Action::Approve => "approve",
            Action::Reject => "reject",
            Action::Retry => "retry",
            Action::Suspend => "suspend",
            Action::Resume => "resume",
        }
    }

    /// Returns the word on a button.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Action::Approve => "Approve",
            Action::Reject => "Reject",
            Action::Retry => "Retry",
            Action::Suspend => "Suspend",
            Action::Resume => "Resume",
        }
    }

    /// Returns the verbs that a person needs.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            Action::Approve | Action::Reject => &["patch", "approve"],
            Action::Retry => &["patch", "retry"],
            Action::Suspend | Action::Resume => &["patch"],
        }
    }

    /// Returns the action of this name on objects of a kind.
    pub(crate) fn named(kind: &str, word: &str) -> Option<Action> {
        Action::of(kind).iter().copied().find(|action| action.word() == word)
    }

    /// Checks whether it can be done with a promotion.
    pub(crate) fn check(self, promotion: &Promotion, pipeline: Option<&Pipeline>) -> ChangeCheck {
        match self {
            Action::Approve => approve::check(promotion),
            Action::Reject => reject::check(promotion),
            Action::Retry => retry::check(promotion, pipeline),
            Action::Suspend | Action::Resume => ChangeCheck::Apply,
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
