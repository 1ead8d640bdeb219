//! The messages of commits: a headline, the values that change, and the trailers by which Sluice finds a commit again.

use sluice_core::setters::SetValue;

use crate::foreign_text::{cut, one_line};
use crate::forge::MergeMessage;
use crate::order::Order;
use crate::read_trailers::{PROMOTION, trailers as trailers_of};

/// The most values, and the most lines of evidence, that a message lists.
const MAX_LISTED: usize = 50;
/// The longest headline, in characters. No forge takes more than 255 for the title of a change request.
pub(crate) const MAX_HEADLINE: usize = 240;
/// The most bytes of each list in a commit message. Sluice reads commits of at most 64 KiB, with signature.
const MAX_COMMIT_LIST: usize = 20 * 1024;

/// The first line of a commit, and the usual title of a change request.
pub(crate) fn headline(order: &Order, pipeline: &str) -> String {
    if let Some((change, _)) = order.requested() {
        return cut(&change.headline(pipeline), MAX_HEADLINE);
    }
    let mut place = order.environment.clone();
    if let Some(target) = &order.target {
        place = format!("{place} ({target})");
    }
    cut(&one_line(&format!("Promote {pipeline} to {} in {place}", order.revision)), MAX_HEADLINE)
}

/// The message of a commit.
pub(crate) fn message(order: &Order, values: &[(String, SetValue)], onto: &str) -> String {
    if let Some((change, _)) = order.requested() {
        return change.message(&order.namespace, &order.pipeline, onto);
    }
    let mut text = format!("{}\n\n", headline(order, &order.pipeline));
    let changes = values.iter().map(|(path, value)| {
        let change = format!("{path}:{} {} -> {}", value.line, value.old, value.new);
        format!("- {}\n", cut(&one_line(&change), 300))
    });
    let left = values.len() - list(&mut text, changes);
    if left > 0 {
        text.push_str(&format!("- and {left} more\n"));
    }
    text.push_str(&format!("\n{}", trailers(order)));
    let evidence =
        order.evidence.iter().map(|why| format!("Sluice-Evidence: {}\n", cut(&one_line(why), 300)));
    list(&mut text, evidence);
    text.push_str(&format!("Sluice-Onto: {onto}\n"));
    text
}

/// Adds the first lines of a list to a message, and returns their number.
fn list(text: &mut String, lines: impl Iterator<Item = String>) -> usize {
    let (begin, mut count) = (text.len(), 0);
    for line in lines.take(MAX_LISTED) {
        if text.len() - begin + line.len() > MAX_COMMIT_LIST {
            break;
        }
        text.push_str(&line);
        count += 1;
    }
    count
}

/// The trailers that name the promotion, its environment and its revision.
fn trailers(order: &Order) -> String {
    let mut text = format!("{PROMOTION}: {}\n", one_line(&order.known_by()));
    target_trailers(order).iter().for_each(|trailer| text.push_str(&format!("{trailer}\n")));
    text.push_str(&format!("Sluice-Revision: {}\n", cut(&one_line(&order.revision.to_string()), 500)));
    text
}

/// The trailers that name the pipeline, the environment and the target.
fn target_trailers(order: &Order) -> Vec<String> {
    let target = order.target.iter().map(|target| format!("Sluice-Target: {}", one_line(target)));
    environment_trailers(order).into_iter().chain(target).collect()
}

/// The beginnings of the trailers that name the pipeline and the environment.
const ENVIRONMENT: [&str; 2] = ["Sluice-Pipeline: ", "Sluice-Environment: "];

/// The trailers that name the pipeline and the environment.
pub(crate) fn environment_trailers(order: &Order) -> [String; 2] {
    let names = [format!("{}/{}", order.namespace, order.pipeline), order.environment.clone()];
    std::array::from_fn(|n| format!("{}{}", ENVIRONMENT[n], one_line(&names[n])))
}

/// The trailers of a message that name a pipeline and its environment, cut to the length of those of Sluice. Everybody who
/// may push can write them.
pub(crate) fn environment_named(message: &str) -> Option<[String; 2]> {
    let named = |beginning: &str| {
        let line = trailers_of(message).find(|line| line.starts_with(beginning))?;
        Some(cut(&one_line(line), MAX_ENVIRONMENT_TRAILER))
    };
    Some([named(ENVIRONMENT[0])?, named(ENVIRONMENT[1])?])
}

/// The most characters of a trailer that names a pipeline or an environment: names have at most 253.
const MAX_ENVIRONMENT_TRAILER: usize = 600;

/// The message of the merge or squash commit that the forge makes for Sluice. Without trailers, a squash would not name
/// the promotion.
pub(crate) fn merge_message(order: &Order) -> MergeMessage {
    MergeMessage { title: headline(order, &order.pipeline), trailers: trailers(order) }
}
