//! Pushes one commit to one branch, and nothing else. A push never overwrites what others pushed in the meantime: the
//! result is then `Moved`, and the caller fetches again.

use std::sync::atomic::Ordering;

use super::error::{self, GitError, GitResult};
use super::repository::LockedRepository;
use super::run::Output;
use crate::fencing::FencingToken;

/// Which commits the branch may lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PushMode<'a> {
    /// None: the new commit must be on top of the branch.
    FastForward,
    /// The commit that the branch was at. With `None`, the branch must not exist.
    Replace(Option<&'a str>),
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The branch is at the commit.
    Done,
    /// The branch was at this very commit already: another process pushed the same commit first.
    AlreadyThere,
    /// Others have changed the branch.
    Moved,
}

impl LockedRepository<'_> {
    /// Deletes a branch, if it is at this commit.
    pub(crate) async fn delete(
        &mut self,
        branch: &str,
        at: &str,
        fencing_token: &FencingToken,
    ) -> GitResult<Pushed> {
        self.open().await?;
        let deleted = self.push("", branch, PushMode::Replace(Some(at)), fencing_token).await?;
        self.mark_clean();
        Ok(deleted)
    }

    /// Moves a branch to a commit, if the token is valid when the push begins. With an empty id, deletes the branch.
    pub(crate) async fn push(
        &self,
        commit: &str,
        branch: &str,
        mode: PushMode<'_>,
        fencing_token: &FencingToken,
    ) -> GitResult<Pushed> {
        let mut args: Vec<String> =
            ["push", "--porcelain", "--no-verify", "--no-signed"].map(String::from).into();
        if let PushMode::Replace(seen) = mode {
            args.push(format!("--force-with-lease=refs/heads/{branch}:{}", seen.unwrap_or_default()));
        }
        args.push("origin".into());
        args.push(format!("{commit}:refs/heads/{branch}"));
        self.counters.pushes.fetch_add(1, Ordering::Relaxed);
        let output = self.git.try_run(self.remote(args).while_valid(fencing_token)).await?;
        outcome(self.access.name(), branch, &output, |text| self.access.redact(text))
    }
}

/// What git and servers report if somebody else has moved the branch.
const MOVED: [&str; 7] = [
    "stale info",
    "fetch first",
    "non-fast-forward",
    "cannot lock ref",
    "failed to update ref",
    "reference already exists",
    "incorrect old value",
];

/// Reads the result from the line about the branch: `flag, tab, from:to, tab, summary`. The summary may have words of the
/// server in it.
fn outcome(
    repository: &str,
    branch: &str,
    output: &Output,
    redact: impl Fn(&str) -> String,
) -> GitResult<Pushed> {
    let (stdout, redact) =
        (String::from_utf8_lossy(&output.stdout), |line: &str| redact(&error::visible(line)));
    if output.success {
        let there = stdout.lines().any(|line| line.starts_with("=\t"));
        return Ok(if there { Pushed::AlreadyThere } else { Pushed::Done });
    }
    let rejected =
        |says: String| Err(GitError::Rejected { repository: repository.into(), branch: branch.into(), says });
    let in_the_way = |says: String| {
        Err(GitError::RefInTheWay { repository: repository.into(), branch: branch.into(), says })
    };
    // git takes a branch or tag `refs/heads/x` for `x`, too (`count_refspec_match` in remote.c).
    if output
        .stderr
        .has(&format!("dst refspec refs/heads/{branch} matches more than one").to_ascii_lowercase())
    {
        return in_the_way(format!(
            "another branch or tag is named refs/heads/{branch}, and is in its way: delete or rename that one"
        ));
    }
    let Some(line) = stdout.lines().find(|l| l.starts_with("!\t")) else {
        return Err(error::read(repository, "push", &output.stderr));
    };
    let (summary, to) = (line.rsplit('\t').next().unwrap_or_default(), line.split('\t').nth(1));
    let to = to.and_then(|refs| refs.split_once(':')).map_or("", |(_, to)| to);
    if to != format!("refs/heads/{branch}") {
        // git takes a branch `refs/heads/x` for `x` if there is no `x` (git-push(1), "<refspec>").
        return in_the_way(format!("a ref named {to} is in its way: delete or rename that one"));
    }
    // `refs_verify_refname_available` of git, refs.c.
    if let Some(other) = output.stderr.lines().find_map(|(raw, _)| conflicting_branch(raw)) {
        return in_the_way(format!(
            "the branch {} is in its way: delete or rename that branch",
            redact(other)
        ));
    }
    if MOVED.iter().any(|m| summary.contains(m)) {
        return Ok(Pushed::Moved);
    }
    if summary.contains("shallow update not allowed") {
        // The commit was fetched before, as the end of the shallow history. A new cache has no such end.
        let says = format!("{branch} ends at a commit whose history is not here");
        return Err(GitError::Cache { repository: repository.into(), says });
    }
    // The message of a hook or of branch protection is in the lines of the server.
    let of_server = output.stderr.lines().filter(|(raw, _)| raw.starts_with(error::OF_SERVER));
    let remote: Vec<&str> =
        of_server.map(|(_, shown)| shown.strip_prefix(error::OF_SERVER).unwrap_or(shown)).collect();
    rejected(error::essence(&format!("{}\n{}", remote.join("\n"), redact(summary))))
}

/// The existing branch whose name is the beginning of the new one, or the other way around.
fn conflicting_branch(line: &str) -> Option<&str> {
    let (before, _) = line.split_once("' exists; cannot create '")?;
    let (_, other) = before.rsplit_once('\'')?;
    Some(other.strip_prefix("refs/heads/").unwrap_or(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::error::stderr;

    fn read(line: &str, says: &str) -> GitResult<Pushed> {
        read_without("", line, says)
    }

    /// Reads the result without a secret.
    fn read_without(secret: &str, line: &str, says: &str) -> GitResult<Pushed> {
        let redact =
            |text: &str| if secret.is_empty() { text.to_string() } else { text.replace(secret, "***") };
        let stdout = format!("To http://h/a/b\n!\tabc:refs/heads/x\t{line}\nDone\n").into_bytes();
        let output = Output { success: false, stdout, stderr: stderr(says.into(), redact) };
        outcome("http://h/a/b", "x", &output, redact)
    }

    #[test]
    fn a_commit_that_was_there_already_was_pushed_by_another_process() {
        for (flag, wanted) in
            [("*", Pushed::Done), ("+", Pushed::Done), (" ", Pushed::Done), ("=", Pushed::AlreadyThere)]
        {
            let stdout = format!("To http://h/a/b\n{flag}\tabc:refs/heads/x\t[summary]\nDone\n").into_bytes();
            let output = Output { success: true, stdout, stderr: stderr(String::new(), str::to_string) };
            assert_eq!(outcome("http://h/a/b", "x", &output, str::to_string).unwrap(), wanted);
        }
    }

    #[test]
    fn a_conflicting_branch_name_is_a_rejection() {
        let remote = "remote: error: cannot lock ref 'refs/heads/sluice/apps/podinfo/prod': 'refs/heads/sluice' \
                      exists; cannot create 'refs/heads/sluice/apps/podinfo/prod'\n";
        for secret in ["exists", "cannot", "failed", "remote", "refs/heads"] {
            let error = read_without(secret, "[remote rejected] (failed to update ref)", remote).unwrap_err();
            assert_eq!(error.reason(), "PushRejected", "{secret}");
        }
        let error = read("[remote rejected] (failed to update ref)", remote).unwrap_err();
        assert_eq!(
            error.to_string(),
            "http://h/a/b: the push to x was refused: the branch sluice is in its way: delete or rename that branch"
        );
        let stdout =
            b"To http://h/a/b\n!\tabc:refs/heads/refs/heads/x\t[rejected] (stale info)\nDone\n".to_vec();
        let output = Output { success: false, stdout, stderr: stderr(String::new(), str::to_string) };
        let error = outcome("http://h/a/b", "x", &output, str::to_string).unwrap_err();
        let says = error.to_string();
        assert!(says.ends_with("refs/heads/refs/heads/x is in its way: delete or rename that one"), "{says}");
    }

    #[test]
    fn a_push_to_a_branch_that_others_moved_does_not_count_as_rejected() {
        for line in
            ["[rejected] (stale info)", "[rejected] (fetch first)", "[remote rejected] (cannot lock ref 'x')"]
        {
            assert_eq!(read(line, "").unwrap(), Pushed::Moved);
        }
        let refused =
            read("[remote rejected] (pre-receive hook declined)", "remote: error: branch x is protected\n");
        let refused = refused.unwrap_err();
        assert_eq!(refused.reason(), "PushRejected");
        assert!(refused.to_string().contains("branch x is protected"), "{refused}");
        // The words of the server in both outputs of git are shown without a secret.
        for secret in ["remote", "remote:", "s3cret-token"] {
            let (line, says) =
                ("[remote rejected] (no to s3cret-token)", "remote: error: s3cret-token is protected\n");
            let refused = read_without(secret, line, says).unwrap_err().to_string();
            assert!(refused.contains("is protected") && refused.contains("no to"), "{secret}: {refused}");
            assert!(!refused.contains(secret), "{refused}");
        }
        let hidden = "[remote rejected] (no to s3cret\u{200b}-token)";
        let refused = read_without("s3cret-token", hidden, "").unwrap_err().to_string();
        assert!(refused.contains("no to ***"), "{refused}");
    }
}
