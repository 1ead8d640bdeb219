//! The buttons for what people can do.

use maud::{Markup, html};
use sluice_api::{Pipeline, Promotion};

use super::{links, words};
use crate::person_action::{PersonAction, who_has};
use crate::rights::MissingRights;

/// Returns the button that leads to the confirmation of an action.
pub(super) fn button(action: PersonAction, promotion: &Promotion) -> Markup {
    let is_main = action == PersonAction::Approve;
    html! {
        a.button.main[is_main] href={ (links::promotion(promotion)) "/" (action.word()) } data-key=[is_main.then_some("a")] {
            (action.title()) " " (words::short(&promotion.spec.revision)) " …"
        }
    }
}

/// Returns the buttons for what a person can and may do with a promotion.
pub(super) fn buttons(rights: &MissingRights, promotion: &Promotion, pipeline: &Pipeline) -> Markup {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    html! {
        @for action in PersonAction::OF_PROMOTION {
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
        PersonAction::OF_PROMOTION.into_iter().filter(|action| action.is_possible(promotion, Some(pipeline)));
    let missing = possible.find_map(|action| Some((action, rights.of(name, action.verbs())?)));
    html! {
        @if let Some((action, right)) = missing {
            p.small.quiet { "You may not " (action.word()) " it here: you do not have " (right) ". " (who_has(action.role())) }
        }
    }
}
