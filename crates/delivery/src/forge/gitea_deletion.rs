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

/// Limits a timeline to the first entries since a time, which Gitea rounds to seconds. The entries after the end of a pull
/// request may be any number of comments; without the number of a page, Gitea returns them all.
pub(super) fn with_since(mut timeline: Url, since: Timestamp) -> Url {
    let since = (since - SignedDuration::from_secs(1)).to_string();
    timeline.query_pairs_mut().extend_pairs([("since", since.as_str()), ("limit", "50"), ("page", "1")]);
    timeline
}

/// Limits a list of pull requests to those that were closed most recently, and to how many are enough.
pub(super) fn recently_closed(mut pulls: Url) -> Url {
    pulls.query_pairs_mut().extend_pairs([("state", "closed"), ("sort", "recentupdate"), ("limit", "50")]);
    pulls
}

/// Whether an earlier pull request from the branch of this one ended shortly before this one was opened. If none did, nobody
/// has deleted an earlier branch: the deleted branch was that of this pull request, and that rejects it.
pub(super) fn followed_another(pull: &Value, closed: &[Value]) -> bool {
    let at = |pull: &Value, field: &str| pull[field].as_str()?.parse::<Timestamp>().ok();
    let Some(opened) = at(pull, "created_at") else { return false };
    let ended_before = |other: &Value| {
        at(other, "closed_at")
            .is_some_and(|ended| ended <= opened && opened.duration_since(ended) <= MAX_DELETION_DELAY)
    };
    closed.iter().any(|other| {
        other["number"] != pull["number"]
            && other["head"]["label"] == pull["head"]["label"]
            && ended_before(other)
    })
}

/// The user with whose deletion of the branch Gitea closed a pull request at this time: Gitea records that the same user has
/// closed it and has deleted the branch. A person who deletes the branch of a pull request that another person has closed
/// does not undo that.
pub(super) fn closed_by_deletion(events: &[Value], closed: Timestamp) -> Option<&str> {
    let users_of = |kind: &'static str| {
        let is_at = |at: Timestamp| at >= closed && at.duration_since(closed) <= MAX_CAUSE_DELAY;
        let of_kind = events.iter().filter(move |event| event["type"] == kind);
        let at_time = of_kind.filter(move |event| {
            event["created_at"].as_str().and_then(|at| at.parse().ok()).is_some_and(is_at)
        });
        at_time.map(|event| event["user"]["login"].as_str())
    };
    let closers: Vec<Option<&str>> = users_of("close").collect();
    let is_closer = |user: &Option<&str>| !closers.is_empty() && closers.iter().all(|closer| closer == user);
    users_of("delete_branch").find(is_closer).flatten()
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
            assert_eq!(closed_by_deletion(&events, closed), is_so.then_some("bot"), "{name}");
        }
    }

    #[test]
    fn a_pull_request_followed_another_only_if_that_ended_shortly_before_on_the_same_branch() {
        let pull = |number: u32, branch: &str, opened: &str, closed: &str| {
            let at = |time: &str| format!("2026-11-25T13:{time}Z");
            let (opened, closed) = (at(opened), at(closed));
            json!({"number": number, "head": {"label": branch}, "created_at": opened, "closed_at": closed})
        };
        let this = pull(2, "sluice/prod", "05:00", "05:01");
        let cases = [
            ("merged before", pull(1, "sluice/prod", "00:00", "04:58"), true),
            ("long before", pull(1, "sluice/prod", "00:00", "03:59"), false),
            ("after", pull(3, "sluice/prod", "00:00", "05:01"), false),
            ("another branch", pull(1, "sluice/staging", "00:00", "04:58"), false),
            ("itself", pull(2, "sluice/prod", "05:00", "05:00"), false),
        ];
        for (name, other, is_so) in cases {
            assert_eq!(followed_another(&this, &[other]), is_so, "{name}");
        }
    }
}
