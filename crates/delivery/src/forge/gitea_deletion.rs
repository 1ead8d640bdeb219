//! Whether Gitea closed a pull request because an earlier branch of the same name was deleted. Nobody has rejected it then.

use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde_json::Value;

/// How long after it closed a pull request Gitea may record the deleted branch as the cause (`AdjustPullsCausedByBranchDeleted`
/// in services/pull/pull.go of 1.25).
const MAX_CAUSE_DELAY: SignedDuration = SignedDuration::from_secs(5);
/// How long after its opening a pull request may be closed with an earlier branch. Gitea processes a deletion within seconds.
const MAX_DELETION_DELAY: SignedDuration = SignedDuration::from_secs(60);

/// When a pull request was closed that may have been closed with an earlier branch: soon after its opening, and its branch
/// exists now. For a missing branch, Gitea shows another ref.
pub(super) fn closed_with_branch(pull: &Value) -> Option<Timestamp> {
    let at = |field: &str| pull[field].as_str()?.parse::<Timestamp>().ok();
    let (opened, closed) = (at("created_at")?, at("closed_at")?);
    let exists = pull["head"]["ref"].as_str()? == pull["head"]["label"].as_str()?;
    (exists && closed.duration_since(opened) <= MAX_DELETION_DELAY).then_some(closed)
}

/// Limits a timeline to its entries since a time, which Gitea rounds to seconds.
pub(super) fn with_since(mut timeline: Url, since: Timestamp) -> Url {
    timeline.query_pairs_mut().append_pair("since", &(since - SignedDuration::from_secs(1)).to_string());
    timeline
}

/// Whether a pull request was closed at this time because its branch was deleted: then Gitea records that the same user has
/// closed it and has deleted the branch. A person who deletes the branch of a pull request that another person has closed
/// does not undo that.
pub(super) fn was_closed_with_branch(events: &[Value], closed: Timestamp) -> bool {
    let users_of = |kind: &'static str| {
        let is_at = |at: Timestamp| at >= closed && at.duration_since(closed) <= MAX_CAUSE_DELAY;
        let of_kind = events.iter().filter(move |event| event["type"] == kind);
        let at_time = of_kind.filter(move |event| {
            event["created_at"].as_str().and_then(|at| at.parse().ok()).is_some_and(is_at)
        });
        at_time.map(|event| event["user"]["login"].as_str())
    };
    let closers: Vec<Option<&str>> = users_of("close").collect();
    users_of("delete_branch")
        .any(|user| user.is_some() && !closers.is_empty() && closers.iter().all(|closer| *closer == user))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_young_pull_request_with_a_branch_may_have_been_closed_with_an_earlier_one() {
        let pull = |branch: &str, closed: &str| {
            let head = json!({"label": "sluice/prod", "ref": branch});
            json!({"head": head, "created_at": "2026-11-25T13:00:00Z", "closed_at": closed})
        };
        let cases = [
            ("sluice/prod", "2026-11-25T13:01:00Z", true),
            ("sluice/prod", "2026-11-25T13:01:01Z", false),
            ("refs/pull/1/head", "2026-11-25T13:00:01Z", false),
            ("sluice/prod", "", false),
        ];
        for (branch, closed, is_so) in cases {
            assert_eq!(closed_with_branch(&pull(branch, closed)).is_some(), is_so, "{branch} {closed}");
        }
    }

    #[test]
    fn only_the_user_whose_deletion_closed_a_pull_request_counts() {
        let closed: Timestamp = "2026-11-25T13:00:00Z".parse().unwrap();
        let event = |kind: &str, user: &str, second: u32| {
            let at = format!("2026-11-25T13:00:{second:02}Z");
            json!({"type": kind, "user": {"login": user}, "created_at": at})
        };
        let (by_bot, deletion) = (event("close", "bot", 0), event("delete_branch", "bot", 1));
        let cases = [
            ("the forge", vec![by_bot.clone(), deletion.clone()], true),
            ("no deletion", vec![by_bot.clone()], false),
            ("no close", vec![deletion.clone()], false),
            ("closed by a person", vec![event("close", "ada", 0), deletion.clone()], false),
            ("closed by two", vec![event("close", "ada", 0), by_bot.clone(), deletion], false),
            ("deleted later", vec![by_bot, event("delete_branch", "bot", 9)], false),
        ];
        for (name, events, is_so) in cases {
            assert_eq!(was_closed_with_branch(&events, closed), is_so, "{name}");
        }
    }
}
