//! Checks of a repository's history: the author of each commit, and the changes of Sluice's commits.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::{LoggedCommit, Repo};

const TRAILER: &str = "Sluice-Promotion: ";

/// The promotions whose commits are in the histories that were read.
#[derive(Debug, Default)]
pub struct Deliveries(pub BTreeSet<String>);

impl Deliveries {
    /// Reads the whole history of a repository's `main`. Each commit must be by CI, a merge or by Sluice. A commit
    /// by Sluice must name one promotion that no other commit names, and change one version and nothing else.
    pub fn read(&mut self, repo: &Repo) -> Result<()> {
        for commit in repo.log("main")? {
            let promotions: Vec<&str> =
                commit.body.lines().filter_map(|line| line.strip_prefix(TRAILER)).collect();
            match promotions[..] {
                [] => ensure!(is_by_ci_or_merge(&commit), "a commit by an unknown author: {commit:?}"),
                [promotion] => {
                    ensure!(self.0.insert(promotion.into()), "delivered twice: {promotion}");
                    let diff = repo.diff(&commit.sha)?;
                    check_diff(&diff).with_context(|| format!("{promotion} changed {diff}"))?;
                }
                _ => bail!("one commit, several promotions: {commit:?}"),
            }
        }
        Ok(())
    }
}

fn is_by_ci_or_merge(commit: &LoggedCommit) -> bool {
    commit.parents.len() == 2 || commit.author == "testkit <testkit@example.com>"
}

/// Checks that a diff changes one line of one file, and in it only the version, to a higher one.
fn check_diff(diff: &str) -> Result<()> {
    let of = |sign: char| {
        let twice = format!("{sign}{sign}{sign}");
        let lines = diff.lines().filter(move |l| l.starts_with(sign) && !l.starts_with(&twice));
        lines.map(|l| &l[1..]).collect::<Vec<_>>()
    };
    let (&[before], &[after]) = (&of('-')[..], &of('+')[..]) else { bail!("not one line") };
    let (old, new) = (version(before)?, version(after)?);
    ensure!(before.replacen(old, new, 1) == after, "more than the version");
    ensure!(numbers(old)? < numbers(new)?, "from {old} to {new}");
    Ok(())
}

/// Returns the version in a line with a marker: the last word before the marker, without the name of an image.
fn version(line: &str) -> Result<&str> {
    let (value, _) = line.split_once(" # ").context("no marker")?;
    value.rsplit([' ', ':']).next().context("no version")
}

fn numbers(version: &str) -> Result<Vec<u32>> {
    version.split('.').map(|n| n.parse().with_context(|| format!("{version} is no version"))).collect()
}
