//! A repository on Gitea and its pull requests, with the actions of a person at the forge. Reads of the repository use
//! the files on disk, so that they are not counted with Sluice's requests.

use super::api::{Api, ApiCredentials, PASSWORD, USER};
use crate::git::{FileChange, Repo};
use anyhow::{Context, Result, ensure};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::Deref;
use std::path::PathBuf;

/// A repository on Gitea. It has the methods of [`Repo`] too: `repo.read("main", "a.yaml")`.
#[derive(Debug, Clone)]
pub struct ForgeRepo {
    api: Api,
    disk: Repo,
    token: String,
}

/// The fields of a pull request that tests read.
#[derive(Debug, Clone, Deserialize)]
pub struct GiteaPull {
    /// The number in the repository.
    pub number: u64,
    /// The address of the page.
    #[serde(rename = "html_url")]
    pub url: String,
    /// The title.
    pub title: String,
    /// The description.
    #[serde(default)]
    pub body: String,
    /// `open` or `closed`.
    pub state: String,
    /// Whether it can be merged; false while Gitea checks this.
    #[serde(default)]
    pub mergeable: bool,
    /// Whether it was merged.
    #[serde(default)]
    pub merged: bool,
    /// The head branch.
    pub head: Side,
    /// The base branch.
    pub base: Side,
    /// The labels.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// The requested reviewers.
    #[serde(default)]
    pub requested_reviewers: Option<Vec<Person>>,
    /// The assignees.
    #[serde(default)]
    pub assignees: Option<Vec<Person>>,
}

/// A user of Gitea.
#[derive(Debug, Clone, Deserialize)]
pub struct Person {
    /// The name.
    pub login: String,
}

/// One of the two branches of a pull request.
#[derive(Debug, Clone, Deserialize)]
pub struct Side {
    /// The name of the branch.
    #[serde(rename = "ref")]
    pub branch: String,
    /// The newest commit of the branch.
    pub sha: String,
}

/// A label of a pull request.
#[derive(Debug, Clone, Deserialize)]
pub struct Label {
    /// The text.
    pub name: String,
}

impl ForgeRepo {
    pub(super) fn new(api: Api, name: &str, folder: PathBuf, url: String, token: &str) -> ForgeRepo {
        ForgeRepo { api, disk: Repo::at(name, folder, url), token: token.to_owned() }
    }

    /// The address for git, with a token.
    pub fn url_with_token(&self) -> String {
        let user = format!("http://{}:{}@", USER, self.token);
        format!("{}.git", self.disk.url().replacen("http://", &user, 1))
    }

    /// Pushes a commit to a branch and returns the id of the commit. A new branch starts at `main`.
    ///
    /// # Errors
    /// Gitea rejects the push.
    pub fn commit(&self, branch: &str, message: &str, files: &[(&str, &str)]) -> Result<String> {
        let changes: Vec<FileChange<'_>> =
            files.iter().map(|(path, text)| FileChange::Write(path, text.as_bytes())).collect();
        // The objects are created in Gitea's own folder. Gitea learns of them by the push.
        let reference = format!("refs/testkit/{branch}");
        let sha = self.disk.import(&reference, branch, message, &changes)?;
        let target = format!("{sha}:refs/heads/{branch}");
        let pushed = self.disk.git(&["push", "--quiet", &self.url_with_token(), &target]);
        self.disk.git(&["update-ref", "-d", &reference])?;
        pushed.with_context(|| format!("cannot push {branch}"))?;
        Ok(sha)
    }

    /// Returns the pull requests in a state: `open`, `closed` or `all`.
    ///
    /// # Errors
    /// Gitea rejects the call.
    pub async fn pulls(&self, state: &str) -> Result<Vec<GiteaPull>> {
        let answer = self.api.get(&self.path(&format!("pulls?state={state}&limit=50"))).await?;
        serde_json::from_value(answer).context("Gitea's list of pull requests has changed")
    }

    /// Returns one pull request.
    ///
    /// # Errors
    /// The pull request does not exist.
    pub async fn pull(&self, number: u64) -> Result<GiteaPull> {
        let answer = self.api.get(&self.path(&format!("pulls/{number}"))).await?;
        serde_json::from_value(answer).context("Gitea's pull request has changed")
    }

    /// Opens a pull request, as a person would.
    ///
    /// # Errors
    /// The branch has an open pull request, or no change.
    pub async fn open_pull(&self, head: &str, base: &str, title: &str) -> Result<GiteaPull> {
        self.until_indexed(head).await?;
        self.until_indexed(base).await?;
        let body = json!({"head": head, "base": base, "title": title});
        let answer = self.api.post(&self.path("pulls"), body).await?;
        serde_json::from_value(answer).context("Gitea's pull request has changed")
    }

    /// Waits until Gitea's database has the newest commit of a branch. Gitea accepts a push before that, and answers with
    /// 404 in between.
    ///
    /// # Errors
    /// It takes too long, or the branch does not exist.
    pub async fn until_indexed(&self, branch: &str) -> Result<()> {
        let sha = self.disk.head(branch)?;
        let path = self.path(&format!("branches/{branch}"));
        crate::eventually(crate::WAIT_TIMEOUT, async || {
            let indexed = self.api.get(&path).await?;
            ensure!(indexed["commit"]["id"] == sha.as_str(), "Gitea does not have {sha} on {branch} yet");
            Ok(())
        })
        .await
    }

    /// Waits until Gitea has processed that a branch was deleted so many times. Gitea removes the branch immediately, and
    /// some time later closes its pull requests (`pushDeleteBranch` in services/repository/push.go of go-gitea/gitea).
    /// A pull request that was opened in between, from a new branch of that name, is closed too.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn until_deleted(&self, branch: &str, times: usize) -> Result<()> {
        let (branches, feed) = (self.path("branches"), self.path("activities/feeds?limit=50"));
        let deleted = format!("refs/heads/{branch}");
        crate::eventually(crate::WAIT_TIMEOUT, async || {
            let all = self.api.get(&branches).await?;
            let names: Vec<_> = all.as_array().into_iter().flatten().map(|branch| &branch["name"]).collect();
            ensure!(!names.iter().any(|name| *name == branch), "Gitea still has {names:?}");
            let feed = self.api.get(&feed).await?;
            let is_deletion = |entry: &&serde_json::Value| {
                entry["op_type"] == "delete_branch" && entry["ref_name"] == deleted.as_str()
            };
            let processed = feed.as_array().into_iter().flatten().filter(is_deletion).count();
            ensure!(processed >= times, "Gitea has processed {processed} of {times} deletions of {branch}");
            Ok(())
        })
        .await
    }

    /// Merges a pull request with a merge commit. Waits until Gitea has checked whether it can be merged.
    ///
    /// # Errors
    /// It cannot be merged.
    pub async fn merge(&self, number: u64) -> Result<()> {
        self.merge_by(number, "merge").await
    }

    /// Merges a pull request with one of Gitea's merge methods: `merge`, `rebase`, `rebase-merge`, `squash`.
    ///
    /// # Errors
    /// It cannot be merged.
    pub async fn merge_by(&self, number: u64, style: &str) -> Result<()> {
        let path = self.path(&format!("pulls/{number}/merge"));
        crate::eventually(crate::WAIT_TIMEOUT, async || {
            self.api.post(&path, json!({"Do": style})).await.map(drop)
        })
        .await
    }

    /// Waits until Gitea has updated a pull request to the newest commit of its branch. A review is for the commit that
    /// Gitea has.
    ///
    /// # Errors
    /// It takes too long, or the pull request does not exist.
    pub async fn until_pushed(&self, number: u64) -> Result<()> {
        let branch = self.pull(number).await?.head.branch;
        crate::eventually(crate::WAIT_TIMEOUT, async || {
            let indexed = self.disk.git(&["rev-parse", &format!("refs/pull/{number}/head")])?;
            ensure!(indexed.trim() == self.disk.head(&branch)?, "Gitea still has {indexed}");
            Ok(())
        })
        .await
    }

    /// Waits until Gitea rejects a merge because the base has newer commits, as a rule of the repository demands. Gitea
    /// counts the commits some time after a push, and merges until then.
    ///
    /// # Errors
    /// It takes too long, there is no such rule, or Gitea rejects the merge for another reason.
    pub async fn until_behind(&self, number: u64) -> Result<()> {
        let path = self.path(&format!("pulls/{number}/merge"));
        // Gitea checks the rules before the head, and no commit has this id: nothing is merged.
        let wrong_head = json!({"Do": "merge", "head_commit_id": "0".repeat(40)});
        crate::eventually(crate::WAIT_TIMEOUT, async || {
            let error = self
                .api
                .post(&path, wrong_head.clone())
                .await
                .err()
                .map(|e| e.to_string())
                .unwrap_or_default();
            ensure!(error.contains("behind the base branch"), "Gitea answers {error:?}");
            Ok(())
        })
        .await
    }

    /// Closes a pull request without merging it.
    ///
    /// # Errors
    /// The pull request does not exist.
    pub async fn close(&self, number: u64) -> Result<()> {
        self.edit(number, json!({"state": "closed"})).await
    }

    /// Reopens a closed pull request.
    ///
    /// # Errors
    /// It was merged, or its branch was deleted.
    pub async fn reopen(&self, number: u64) -> Result<()> {
        self.edit(number, json!({"state": "open"})).await
    }

    /// Changes a pull request's title, body or state, as a person would.
    ///
    /// # Errors
    /// Gitea rejects the call.
    pub async fn edit(&self, number: u64, fields: Value) -> Result<()> {
        let path = self.path(&format!("pulls/{number}"));
        self.api.call(Method::PATCH, &path, &fields).await.map(drop)
    }

    /// Returns the comments of a pull request.
    ///
    /// # Errors
    /// The pull request does not exist.
    pub async fn comments(&self, number: u64) -> Result<Vec<String>> {
        let answer = self.api.get(&self.path(&format!("issues/{number}/comments"))).await?;
        let comments = answer.as_array().cloned().unwrap_or_default();
        Ok(comments.iter().filter_map(|c| c["body"].as_str().map(str::to_owned)).collect())
    }

    /// Adds a webhook: Gitea calls `url` for pull requests and pushes, signed with `secret`.
    ///
    /// # Errors
    /// Gitea rejects the call.
    pub async fn add_webhook(&self, url: &str, secret: &str) -> Result<()> {
        let body = json!({
            "type": "gitea",
            "active": true,
            "events": ["pull_request", "push"],
            "config": {"url": url, "secret": secret, "content_type": "json"},
        });
        self.api.post(&self.path("hooks"), body).await.map(drop)
    }

    /// Grants a user the right to write to the repository.
    ///
    /// # Errors
    /// The user does not exist.
    pub async fn add_collaborator(&self, name: &str) -> Result<()> {
        self.add_with_right(name, "write").await
    }

    /// Grants a user the right to read the repository.
    ///
    /// # Errors
    /// The user does not exist.
    pub async fn add_reader(&self, name: &str) -> Result<()> {
        self.add_with_right(name, "read").await
    }

    async fn add_with_right(&self, name: &str, right: &str) -> Result<()> {
        let path = self.path(&format!("collaborators/{name}"));
        self.api.call(Method::PUT, &path, &json!({"permission": right})).await.map(drop)
    }

    /// Opens a pull request as a user, with the marker of another environment, and returns its number.
    ///
    /// # Errors
    /// The user may not do that.
    pub async fn open_pull_as(&self, name: &str, head: &str, base: &str) -> Result<u64> {
        let marker = "<!-- sluice: apps/x/y promotion=apps%2fz -->";
        let body = json!({"title": "mine", "head": head, "base": base, "body": marker});
        let answer = self.api_of(name).post(&self.path("pulls"), body).await?;
        answer["number"].as_u64().context("Gitea returned no number")
    }

    /// Closes a pull request as a user.
    ///
    /// # Errors
    /// The user may not do that.
    pub async fn close_as(&self, name: &str, number: u64) -> Result<()> {
        let path = self.path(&format!("pulls/{number}"));
        self.api_of(name).call(Method::PATCH, &path, &json!({"state": "closed"})).await.map(drop)
    }

    /// Adds the review of a user to a pull request as it is now: `APPROVED` or `REQUEST_CHANGES`.
    ///
    /// # Errors
    /// The user may not review it.
    pub async fn review(&self, number: u64, name: &str, event: &str) -> Result<()> {
        let path = self.path(&format!("pulls/{number}/reviews"));
        self.api_of(name).post(&path, json!({"event": event, "body": "reviewed"})).await.map(drop)
    }

    /// Deletes a branch as a user.
    ///
    /// # Errors
    /// The user may not do that.
    pub async fn delete_branch_as(&self, name: &str, branch: &str) -> Result<()> {
        let path = self.path(&format!("branches/{branch}"));
        self.api_of(name).call(Method::DELETE, &path, &Value::Null).await.map(drop)
    }

    fn api_of(&self, name: &str) -> Api {
        let credentials = ApiCredentials::Password(name.to_owned(), PASSWORD.to_owned());
        Api { url: self.api.url.clone(), credentials }
    }

    /// Calls the API of the repository, for calls without a method here. `path` is the part after
    /// `/api/v1/repos/{owner}/{name}/`.
    ///
    /// # Errors
    /// Gitea rejects the call.
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
