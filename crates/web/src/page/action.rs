//! What people can do, and the buttons for it.

use maud::{Markup, html};
use sluice_api::{Pipeline, Promotion};
use sluice_view::change::{ChangeCheck, approve, reject, retry};

use super::rights::MissingRights;
use super::{address, words};

/// Something that a person can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Approve,
    Reject,
    Retry,
    Suspend,
    Resume,
}

impl Action {
    /// What can be done with a promotion, the wanted one first.
    pub(super) const OF_PROMOTION: [Action; 3] = [Action::Approve, Action::Retry, Action::Reject];

    /// Returns the word in addresses.
    pub(super) fn word(self) -> &'static str {
        match self {
            Action::Approve => "approve",
            Action::Reject => "reject",
            Action::Retry => "retry",
            Action::Suspend => "suspend",
            Action::Resume => "resume",
        }
    }

    /// Returns the word on a button.
    pub(super) fn title(self) -> &'static str {
        match self {
            Action::Approve => "Approve",
            Action::Reject => "Reject",
            Action::Retry => "Retry",
            Action::Suspend => "Suspend",
            Action::Resume => "Resume",
        }
    }

    /// Returns the verbs that a person needs.
    pub(super) fn verbs(self) -> &'static [&'static str] {
        match self {
            Action::Approve | Action::Reject => &["patch", "approve"],
            Action::Retry => &["patch", "retry"],
            Action::Suspend | Action::Resume => &["patch"],
        }
    }

    /// Returns the action of this name on objects of a kind.
    pub(super) fn named(kind: &str, word: &str) -> Option<Action> {
        let all: &[Action] = match kind {
            "promotions" => &Action::OF_PROMOTION,
            "pipelines" => &[Action::Suspend, Action::Resume],
            _ => &[],
        };
        all.iter().copied().find(|action| action.word() == word)
    }

    /// Checks whether it can be done with a promotion.
    pub(super) fn check(self, promotion: &Promotion, pipeline: Option<&Pipeline>) -> ChangeCheck {
        match self {
            Action::Approve => approve::check(promotion),
            Action::Reject => reject::check(promotion),
            Action::Retry => retry::check(promotion, pipeline),
            Action::Suspend | Action::Resume => ChangeCheck::Apply,
        }
    }

    /// Whether it can be done with a promotion.
    pub(super) fn is_possible(self, promotion: &Promotion, pipeline: Option<&Pipeline>) -> bool {
        self.check(promotion, pipeline) == ChangeCheck::Apply
    }
}

/// Returns the button that leads to the confirmation of an action.
pub(super) fn button(action: Action, promotion: &Promotion) -> Markup {
    let is_main = action == Action::Approve;
    html! {
        a.button.main[is_main] href={ (address::promotion(promotion)) "/" (action.word()) } data-key=[is_main.then_some("a")] {
            (action.title()) " " (words::short(&promotion.spec.revision)) " …"
        }
    }
}

/// Returns the targets that a promotion changes.
pub(super) fn targets_of(pipeline: &Pipeline, promotion: &Promotion) -> String {
    let spec = &promotion.spec;
    let environment = pipeline.spec.environments.iter().find(|e| e.name == spec.environment);
    let names = environment.map(|environment| environment.target_names()).unwrap_or_default();
    let names: Vec<String> =
        names.into_iter().filter(|name| spec.target.as_ref().is_none_or(|target| target == name)).collect();
    names.join(", ")
}

/// Returns the buttons for what a person can and may do with a promotion.
pub(super) fn buttons(rights: &MissingRights, promotion: &Promotion, pipeline: &Pipeline) -> Markup {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    html! {
        @for action in Action::OF_PROMOTION {
            @if action.is_possible(promotion, Some(pipeline)) && rights.of(name, action.verbs()).is_none() {
                (button(action, promotion))
            }
        }
    }
}

/// Returns which right is missing for the first thing that could be done.
pub(super) fn may_not(rights: &MissingRights, promotion: &Promotion, pipeline: &Pipeline) -> Markup {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    let mut possible =
        Action::OF_PROMOTION.into_iter().filter(|action| action.is_possible(promotion, Some(pipeline)));
    let missing = possible.find_map(|action| Some((action, rights.of(name, action.verbs())?)));
    html! {
        @if let Some((action, right)) = missing {
            p.small.quiet { "You may not " (action.word()) " it here: you do not have " (right) "." }
        }
    }
}
