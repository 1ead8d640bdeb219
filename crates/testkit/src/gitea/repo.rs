//! A repository on Gitea and its pull requests, as a person at the forge acts on them. Reading
//! looks at the files on disk, so that it is not counted with what Sluice asks.

use super::api::{Api, Caller, PASSWORD, USER};
use crate::git::{Change, Repo};
use anyhow::{Context, Result, ensure};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::Deref;
use std::path::PathBuf;

/// A repository on Gitea. What [`Repo`] can read, this can too: `repo.read("main", "a.yaml")`.
#[derive(Debug, Clone)]
pub struct ForgeRepo {
    api: Api,
    disk: Repo,
    token: String,
}

/// A pull request, as far as tests look at it.
#[derive(Debug, Clone, Deserialize)]
pub struct Pull {
    /// Its number in the repository.
    pub number: u64,
    /// Its page.
    #[serde(rename = "html_url")]
    pub url: String,
    /// Its title.
    pub title: String,
    /// Its text.
    #[serde(default)]
    pub body: String,
    /// `open` or `closed`.
    pub state: String,
    /// Whether it can be merged, as far as Gitea knows: not while it is checking that.
    #[serde(default)]
    pub mergeable: bool,
    /// Whether it was merged.
    #[serde(default)]
    pub merged: bool,
    /// The branch with the change.
    pub head: Side,
    /// The branch that it is to be merged into.
    pub base: Side,
    /// What it is labelled with.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// Who is asked to review it.
    #[serde(default)]
    pub requested_reviewers: Option<Vec<Person>>,
    /// Who is to see to it.
    #[serde(default)]
    pub assignees: Option<Vec<Person>>,
}

/// Somebody with an account.
#[derive(Debug, Clone, Deserialize)]
pub struct Person {
    /// The name.
    pub login: String,
}

/// One of the two branches of a pull request.
#[derive(Debug, Clone, Deserialize)]
pub struct Side {
    /// The branch's name.
    #[serde(rename = "ref")]
    pub branch: String,
    /// The commit at its end.
    pub sha: String,
}

/// A label of a pull request.
#[derive(Debug, Clone, Deserialize)]
pub struct Label {
    /// The label's text.
    pub name: String,
}

impl ForgeRepo {
    pub(super) fn new(api: Api, name: &str, folder: PathBuf, url: String, token: &str) -> ForgeRepo {
        ForgeRepo { api, disk: Repo::at(name, folder, url), token: token.to_owned() }
    }

    /// Its address for git, with a token in it.
    pub fn url_with_token(&self) -> String {
        let user = format!("http://{}:{}@", USER, self.token);
        format!("{}.git", self.disk.url().replacen("http://", &user, 1))
    }

    /// Pushes a commit to a branch, made from `main` when it is new, and returns the commit's id.
    ///
    /// # Errors
    /// When the push is refused.
    pub fn commit(&self, branch: &str, message: &str, files: &[(&str, &str)]) -> Result<String> {
        let changes: Vec<Change<'_>> =
            files.iter().map(|(path, text)| Change::Write(path, text.as_bytes())).collect();
        // The objects are made where Gitea keeps its own; only the push tells Gitea about them.
        let reference = format!("refs/testkit/{branch}");
        let sha = self.disk.import(&reference, branch, message, &changes)?;
        let target = format!("{sha}:refs/heads/{branch}");
        let pushed = self.disk.git(&["push", "--quiet", &self.url_with_token(), &target]);
        self.disk.git(&["update-ref", "-d", &reference])?;
        pushed.with_context(|| format!("cannot push {branch}"))?;
        Ok(sha)
    }

    /// Pull requests in a state: `open`, `closed` or `all`.
    ///
    /// # Errors
    /// When Gitea refuses.
    pub async fn pulls(&self, state: &str) -> Result<Vec<Pull>> {
        let answer = self.api.get(&self.path(&format!("pulls?state={state}&limit=50"))).await?;
        serde_json::from_value(answer).context("Gitea's list of pull requests has changed")
    }

    /// One pull request.
    ///
    /// # Errors
    /// When there is none of this number.
    pub async fn pull(&self, number: u64) -> Result<Pull> {
        let answer = self.api.get(&self.path(&format!("pulls/{number}"))).await?;
        serde_json::from_value(answer).context("Gitea's pull request has changed")
    }

    /// Opens a pull request, as a person would.
    ///
    /// # Errors
    /// When there is one for this branch, or the branch has no change.
    pub async fn open_pull(&self, head: &str, base: &str, title: &str) -> Result<Pull> {
        self.until_known(head).await?;
        self.until_known(base).await?;
        let body = json!({"head": head, "base": base, "title": title});
        let answer = self.api.post(&self.path("pulls"), body).await?;
        serde_json::from_value(answer).context("Gitea's pull request has changed")
    }

    /// Waits until Gitea's own records know the end of a branch. It accepts a push first and takes
    /// note later, and answers 404 in between.
    ///
    /// # Errors
    /// When it takes too long, or there is no such branch.
    pub async fn until_known(&self, branch: &str) -> Result<()> {
        let sha = self.disk.head(branch)?;
        let path = self.path(&format!("branches/{branch}"));
        crate::eventually(crate::PATIENCE, async || {
            let known = self.api.get(&path).await?;
            ensure!(known["commit"]["id"] == sha.as_str(), "Gitea does not know {sha} on {branch} yet");
            Ok(())
        })
        .await
    }

    /// Merges a pull request with a merge commit. Gitea needs a moment to know whether a new one
    /// can be merged, so this waits for that.
    ///
    /// # Errors
    /// When it stays unmergeable.
    pub async fn merge(&self, number: u64) -> Result<()> {
        self.merge_by(number, "merge").await
    }

    /// Merges a pull request in a way that Gitea offers: `merge`, `rebase`, `rebase-merge`,
    /// `squash`.
    ///
    /// # Errors
    /// When it stays unmergeable.
    pub async fn merge_by(&self, number: u64, style: &str) -> Result<()> {
        let path = self.path(&format!("pulls/{number}/merge"));
        crate::eventually(crate::PATIENCE, async || {
            self.api.post(&path, json!({"Do": style})).await.map(drop)
        })
        .await
    }

    /// Waits until Gitea itself knows what was pushed to a pull request last: a review is of what it knows.
    ///
    /// # Errors
    /// When it takes too long, or there is none of this number.
    pub async fn until_pushed(&self, number: u64) -> Result<()> {
        let branch = self.pull(number).await?.head.branch;
        crate::eventually(crate::PATIENCE, async || {
            let known = self.disk.git(&["rev-parse", &format!("refs/pull/{number}/head")])?;
            ensure!(known.trim() == self.disk.head(&branch)?, "Gitea still knows {known}");
            Ok(())
        })
        .await
    }

    /// Waits until Gitea itself knows that the base of a pull request has moved on, where a rule has it
    /// refuse those: it counts the commits some time after they were pushed, and merges until then.
    ///
    /// # Errors
    /// When it takes too long, there is no such rule, or something else stands in the way.
    pub async fn until_behind(&self, number: u64) -> Result<()> {
        let path = self.path(&format!("pulls/{number}/merge"));
        // What may be merged is looked at before the head is, and no commit has this id.
        let never = json!({"Do": "merge", "head_commit_id": "0".repeat(40)});
        crate::eventually(crate::PATIENCE, async || {
            let said =
                self.api.post(&path, never.clone()).await.err().map(|e| e.to_string()).unwrap_or_default();
            ensure!(said.contains("behind the base branch"), "Gitea says {said:?}");
            Ok(())
        })
        .await
    }

    /// Closes a pull request without merging it.
    ///
    /// # Errors
    /// When there is none of this number.
    pub async fn close(&self, number: u64) -> Result<()> {
        self.edit(number, json!({"state": "closed"})).await
    }

    /// Opens a closed pull request again.
    ///
    /// # Errors
    /// When it was merged, or its branch is gone.
    pub async fn reopen(&self, number: u64) -> Result<()> {
        self.edit(number, json!({"state": "open"})).await
    }

    /// Changes a pull request's title, body or state, as a person would.
    ///
    /// # Errors
    /// When Gitea refuses.
    pub async fn edit(&self, number: u64, fields: Value) -> Result<()> {
        let path = self.path(&format!("pulls/{number}"));
        self.api.call(Method::PATCH, &path, &fields).await.map(drop)
    }

    /// The comments of a pull request.
    ///
    /// # Errors
    /// When there is none of this number.
    pub async fn comments(&self, number: u64) -> Result<Vec<String>> {
        let answer = self.api.get(&self.path(&format!("issues/{number}/comments"))).await?;
        let comments = answer.as_array().cloned().unwrap_or_default();
        Ok(comments.iter().filter_map(|c| c["body"].as_str().map(str::to_owned)).collect())
    }

    /// Lets Gitea call `url` about pull requests and pushes, signed with `secret`.
    ///
    /// # Errors
    /// When Gitea refuses.
    pub async fn add_webhook(&self, url: &str, secret: &str) -> Result<()> {
        let body = json!({
            "type": "gitea",
            "active": true,
            "events": ["pull_request", "push"],
            "config": {"url": url, "secret": secret, "content_type": "json"},
        });
        self.api.post(&self.path("hooks"), body).await.map(drop)
    }

    /// Lets somebody write to the repository.
    ///
    /// # Errors
    /// When there is nobody of this name.
    pub async fn admit(&self, name: &str) -> Result<()> {
        let path = self.path(&format!("collaborators/{name}"));
        self.api.call(Method::PUT, &path, &json!({"permission": "write"})).await.map(drop)
    }

    /// Somebody reviews a pull request as it is now: `APPROVED` or `REQUEST_CHANGES`.
    ///
    /// # Errors
    /// When they may not.
    pub async fn review(&self, number: u64, name: &str, event: &str) -> Result<()> {
        let caller = Caller::Password(name.to_owned(), PASSWORD.to_owned());
        let api = Api { url: self.api.url.clone(), caller };
        let path = self.path(&format!("pulls/{number}/reviews"));
        api.post(&path, json!({"event": event, "body": "I have seen it"})).await.map(drop)
    }

    /// Any call of the repository's API, for what has no method of its own here: `path` is what
    /// comes after `/api/v1/repos/{owner}/{name}/`.
    ///
    /// # Errors
    /// When Gitea refuses.
    pub async fn api(&self, method: &str, path: &str, body: Value) -> Result<Value> {
        self.api.call(method.parse()?, &self.path(path), &body).await
    }

    fn path(&self, rest: &str) -> String {
        format!("/repos/{}/{}/{rest}", USER, self.disk.name())
    }
}

impl Deref for ForgeRepo {
    type Target = Repo;

    fn deref(&self) -> &Repo {
        &self.disk
    }
}
