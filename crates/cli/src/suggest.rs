//! Suggestions for names that do not exist: the most similar existing name, or all names.

use sluice_core::nearest::nearest_within;

use crate::exit::{Exit, Failure};

/// Returns the end of a message that says that a name does not exist. `kinds` is the plural of the kind; `here` names
/// the place, for example `namespace apps`.
pub(crate) fn instead(asked: &str, there: &[String], kinds: &str, here: &str) -> String {
    let max_changes = asked.chars().count().max(3) / 3;
    match nearest_within(asked, there.iter().map(String::as_str), max_changes) {
        Some(name) => format!("; did you mean {name}?"),
        None if there.is_empty() => format!("; {here} has no {kinds}"),
        None if there.len() <= 10 => format!("; there are: {}", there.join(", ")),
        None => format!("; there are {} others", there.len()),
    }
}

/// Returns the failure of a command that names an environment which a pipeline does not have.
pub(crate) fn no_environment(pipeline: &str, asked: &str, there: &[String]) -> Failure {
    let end = instead(asked, there, "environments", &format!("pipeline {pipeline}"));
    Failure::new(Exit::NotFound, format!("pipeline {pipeline} has no environment {asked}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_suggested_or_all_are_listed() {
        let there = ["podinfo".to_owned(), "shop-frontend".to_owned()];
        assert_eq!(instead("podinfoo", &there, "pipelines", "namespace apps"), "; did you mean podinfo?");
        assert_eq!(
            instead("frontend", &there, "pipelines", "namespace apps"),
            "; did you mean shop-frontend?"
        );
        assert_eq!(
            instead("xyz", &there, "pipelines", "namespace apps"),
            "; there are: podinfo, shop-frontend"
        );
        assert_eq!(instead("xyz", &[], "pipelines", "namespace apps"), "; namespace apps has no pipelines");
    }
}
