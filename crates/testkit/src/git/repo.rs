//! A repository on the git server. Tests commit and read here without HTTP, so that the server does not count
//! these requests together with those of Sluice.

use super::accounts::{PASSWORD, USER};
use super::program::{read, run};
use super::tap::{Requests, Tap};
use anyhow::{Context, Result, anyhow};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format of a commit for `git log`: see [`parse_commit`].
const FORMAT: &str = "--format=%H%x00%P%x00%an <%ae>%x00%s%x00%b%x01";

/// One commit, as `git log` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCommit {
    /// The id of the commit.
    pub sha: String,
    /// The ids of its parents.
    pub parents: Vec<String>,
    /// The author, as `Name <address>`.
    pub author: String,
    /// The first line of the message.
    pub subject: String,
    /// The rest of the message, with its trailers.
    pub body: String,
}

/// The change of one file in a commit.
#[derive(Debug, Clone, Copy)]
pub enum FileChange<'a> {
    /// The path, and the new content of the file.
    Write(&'a str, &'a [u8]),
    /// The path of the file to remove.
    Remove(&'a str),
}

/// A bare repository that the server serves.
#[derive(Debug, Clone)]
pub struct Repo {
    name: String,
    folder: PathBuf,
    url: String,
    tap: Arc<Tap>,
}

impl Repo {
    pub(super) fn create(name: &str, folder: PathBuf, url: String, tap: Arc<Tap>) -> Result<Repo> {
        std::fs::create_dir_all(&folder)?;
        read(&folder, &["init", "--quiet", "--bare", "--initial-branch=main", "."])?;
        let settings = ["http.receivepack", "uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"];
        for setting in settings {
            read(&folder, &["config", setting, "true"])?;
        }
        Ok(Repo { name: name.to_owned(), folder, url, tap })
    }

    pub(super) fn copy(&self, name: &str, folder: PathBuf, url: String, tap: Arc<Tap>) -> Result<Repo> {
        copy_folder(&self.folder, &folder).with_context(|| format!("cannot copy {}", self.name))?;
        Ok(Repo { name: name.to_owned(), folder, url, tap })
    }

    /// Returns a repository of another server, in a folder of this machine.
    pub(crate) fn at(name: &str, folder: PathBuf, url: String) -> Repo {
        Repo { name: name.to_owned(), folder, url, tap: Arc::default() }
    }

    /// The name, without `.git`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address, without a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address with user and password, for a git program without other credentials.
    pub fn url_with_password(&self) -> String {
        // The characters of the password that have a meaning in a URL.
        let password = PASSWORD.replace(' ', "%20").replace('/', "%2F").replace('?', "%3F");
        self.url.replacen("http://", &format!("http://{}:{password}@", USER), 1)
    }

    /// The folder on disk.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Installs a hook that the server's git runs at a push: `pre-receive`, `update`, `post-receive`.
    ///
    /// # Errors
    /// The hook cannot be written.
    pub fn hook(&self, name: &str, script: &str) -> Result<()> {
        let folder = self.folder.join("hooks");
        std::fs::create_dir_all(&folder)?;
        let hook = folder.join(name);
        std::fs::write(&hook, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Returns the number of requests to this repository.
    pub fn requests(&self) -> Requests {
        self.tap.requests()
    }

    /// Makes requests to this repository fail, hang or lose their answer.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// Commits files to a branch and returns the id of the commit. A new branch starts at `main`.
    ///
    /// # Errors
    /// git fails, for example because the branch moved at the same time.
    pub fn commit(&self, branch: &str, message: &str, files: &[(&str, &str)]) -> Result<String> {
        let changes: Vec<FileChange<'_>> =
            files.iter().map(|(path, text)| FileChange::Write(path, text.as_bytes())).collect();
        self.commit_changes(branch, message, &changes)
    }

    /// Commits changes of any kind; otherwise like [`Repo::commit`].
    ///
    /// # Errors
    /// git fails.
    pub fn commit_changes(&self, branch: &str, message: &str, changes: &[FileChange<'_>]) -> Result<String> {
        self.import(&format!("refs/heads/{branch}"), branch, message, changes)
            .with_context(|| format!("cannot commit to {branch} of {}", self.name))
    }

    /// Creates a commit on top of `branch`, or of `main` if the branch does not exist, and sets `reference` to it.
    pub(crate) fn import(
        &self,
        reference: &str,
        branch: &str,
        message: &str,
        changes: &[FileChange<'_>],
    ) -> Result<String> {
        let mut input = format!("commit {reference}\n").into_bytes();
        let now = jiff::Timestamp::now().as_second();
        input.extend(format!("committer testkit <testkit@example.com> {now} +0000\n").bytes());
        push_data(&mut input, message.as_bytes());
        if let Ok(parent) = self.head(branch).or_else(|_| self.head("main")) {
            input.extend(format!("from {parent}\n").bytes());
        }
        for change in changes {
            match change {
                FileChange::Write(path, content) => {
                    input.extend(format!("M 100644 inline {path}\n").bytes());
                    push_data(&mut input, content);
                }
                FileChange::Remove(path) => input.extend(format!("D {path}\n").bytes()),
            }
        }
        run(&self.folder, &["fast-import", "--quiet", "--date-format=raw"], &input)?;
        read(&self.folder, &["rev-parse", "--verify", reference])
    }

    /// Runs git in the repository's folder.
    pub(crate) fn git(&self, args: &[&str]) -> Result<String> {
        read(&self.folder, args)
    }

    /// Returns the content of a file in the newest commit of a branch.
    ///
    /// # Errors
    /// The branch or file does not exist, or the file is not text.
    pub fn read(&self, branch: &str, path: &str) -> Result<String> {
        let bytes = run(&self.folder, &["cat-file", "blob", &format!("refs/heads/{branch}:{path}")], b"")
            .with_context(|| format!("no file {path} on branch {branch} of {}", self.name))?;
        String::from_utf8(bytes).with_context(|| format!("{path} is not text"))
    }

    /// Returns the paths of all files in the newest commit of a branch.
    ///
    /// # Errors
    /// The branch does not exist.
    pub fn files(&self, branch: &str) -> Result<Vec<String>> {
        let text = read(&self.folder, &["ls-tree", "-r", "--name-only", &format!("refs/heads/{branch}")])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns the newest commit of a branch.
    ///
    /// # Errors
    /// The branch does not exist.
    pub fn head(&self, branch: &str) -> Result<String> {
        // git keeps recently changed branches in files. Other branches are read with a git command.
        let file = std::fs::read_to_string(self.folder.join("refs/heads").join(branch));
        if let Ok(sha) = file.map(|text| text.trim().to_owned())
            && sha.len() == 40
        {
            return Ok(sha);
        }
        read(&self.folder, &["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")])
            .map_err(|_| anyhow!("no branch {branch} in {}", self.name))
    }

    /// Returns all branches, sorted by name.
    ///
    /// # Errors
    /// git fails.
    pub fn branches(&self) -> Result<Vec<String>> {
        let text = read(&self.folder, &["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Removes a branch.
    ///
    /// # Errors
    /// The branch does not exist.
    pub fn remove_branch(&self, branch: &str) -> Result<()> {
        read(&self.folder, &["update-ref", "-d", &format!("refs/heads/{branch}"), &self.head(branch)?])?;
        Ok(())
    }

    /// Returns the commits of a branch, newest first.
    ///
    /// # Errors
    /// The branch does not exist.
    pub fn log(&self, branch: &str) -> Result<Vec<LoggedCommit>> {
        let text = read(&self.folder, &["log", FORMAT, &format!("refs/heads/{branch}")])?;
        let commits = text.split('\u{1}').map(|record| record.trim_start_matches('\n'));
        commits.filter(|record| !record.is_empty()).map(parse_commit).collect()
    }

    /// Returns a commit by its id or the beginning of its id, also of a deleted branch.
    ///
    /// # Errors
    /// The commit does not exist.
    pub fn commit_of(&self, id: &str) -> Result<LoggedCommit> {
        if id.len() < 7 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(anyhow!("{id:?} is not the id of a commit"));
        }
        let text = read(&self.folder, &["show", "-s", FORMAT, &format!("{id}^{{commit}}")])?;
        parse_commit(text.trim_end().trim_end_matches('\u{1}'))
    }

    /// Returns the diff of a commit, as git prints it.
    ///
    /// # Errors
    /// The commit does not exist.
    pub fn diff(&self, sha: &str) -> Result<String> {
        read(&self.folder, &["show", "--format=", "--unified=0", "--no-color", "--no-renames", sha])
    }

    /// Merges a branch into another with a merge commit, as a person does on a forge.
    ///
    /// # Errors
    /// The branch is not on top of the other.
    pub fn merge(&self, branch: &str, into: &str) -> Result<String> {
        let (head, base) = (self.head(branch)?, self.head(into)?);
        read(&self.folder, &["merge-base", "--is-ancestor", &base, &head])
            .map_err(|_| anyhow!("{branch} is behind {into}: rebase it first"))?;
        self.land(&head, into, Landing::Merge(&format!("Merge {branch} into {into}")))
    }

    /// Changes the message of the newest commit of a branch, as `git commit --amend` and a forced push do, and returns
    /// the new commit.
    ///
    /// # Errors
    /// The branch does not exist, or its newest commit is the first one.
    pub fn amend(&self, branch: &str, message: &str) -> Result<String> {
        let head = self.head(branch)?;
        let args = ["commit-tree", &format!("{head}^{{tree}}"), "-p", &format!("{head}^")];
        let amended = String::from_utf8(run(&self.folder, &args, message.as_bytes())?)?.trim().to_owned();
        read(&self.folder, &["update-ref", &format!("refs/heads/{branch}"), &amended, &head])?;
        Ok(amended)
    }

    /// Merges a commit into a branch with one of the merge methods of forges, and returns the new head of the branch.
    ///
    /// # Errors
    /// There is a conflict, or the branch has moved.
    pub fn land(&self, head: &str, into: &str, landing: Landing<'_>) -> Result<String> {
        let base = self.head(into)?;
        let tree = read(&self.folder, &["merge-tree", "--write-tree", &base, head])?;
        let tree = tree.lines().next().unwrap_or_default();
        let commit = |tree: &str, parents: &[&str], message: &str| {
            let parents = parents.iter().flat_map(|parent| ["-p", parent]);
            let args: Vec<&str> = ["commit-tree", tree].into_iter().chain(parents).collect();
            Ok::<_, anyhow::Error>(
                String::from_utf8(run(&self.folder, &args, message.as_bytes())?)?.trim().to_owned(),
            )
        };
        let end = match landing {
            Landing::Merge(message) => commit(tree, &[&base, head], message)?,
            Landing::Squash(message) => commit(tree, &[&base], message)?,
            Landing::SquashAndMerge(message) => {
                let squashed = commit(tree, &[&base], message)?;
                commit(tree, &[&base, &squashed], "Merge")?
            }
            Landing::Rebase => {
                let range = format!("{base}..{head}");
                let commits = read(&self.folder, &["rev-list", "--reverse", &range])?;
                commits.lines().try_fold(base.clone(), |onto, id| {
                    let message = read(&self.folder, &["show", "-s", "--format=%B", id])?;
                    commit(&format!("{id}^{{tree}}"), &[&onto], &message)
                })?
            }
            Landing::FastForward => head.to_owned(),
        };
        read(&self.folder, &["update-ref", &format!("refs/heads/{into}"), &end, &base])?;
        Ok(end)
    }
}

/// The merge method of a change request, with the message of the new commit.
#[derive(Clone, Copy, Debug)]
pub enum Landing<'a> {
    /// A merge commit.
    Merge(&'a str),
    /// One commit with all changes.
    Squash(&'a str),
    /// One commit with all changes, and a merge commit of it, as GitLab does.
    SquashAndMerge(&'a str),
    /// Each commit again, with a new id; the head must be on top of the base.
    Rebase,
    /// The commits unchanged; the head must be on top of the base.
    FastForward,
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

fn push_data(input: &mut Vec<u8>, data: &[u8]) {
    let mut head = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(head, "data {}", data.len());
    input.extend(head.bytes());
    input.extend(data);
    input.push(b'\n');
}

fn parse_commit(record: &str) -> Result<LoggedCommit> {
    let fields: Vec<&str> = record.split('\0').collect();
    let [sha, parents, author, subject, body] = fields[..] else {
        return Err(anyhow!("unexpected output of git log: {record:?}"));
    };
    Ok(LoggedCommit {
        sha: sha.to_owned(),
        parents: parents.split_whitespace().map(str::to_owned).collect(),
        author: author.to_owned(),
        subject: subject.to_owned(),
        body: body.trim_end().to_owned(),
    })
}
