//! Reads the files of a commit through a bare repository that fetches single commits.

use super::remote::GitCredentials;
use crate::Scratch;
use crate::git::{git, read, run};
use anyhow::{Context, Result, bail};
use base64::Engine;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The bare repositories, one for each address.
pub(crate) struct Checkouts {
    scratch: Scratch,
    by_url: Mutex<HashMap<String, Arc<Mutex<Checkout>>>>,
}

/// A bare repository, and the last commit that was read from it.
struct Checkout {
    folder: PathBuf,
    last: Option<(String, Arc<CommitTree>)>,
}

impl Checkouts {
    /// Returns the repositories of this process: the stand-ins of several clusters read the same commits.
    pub fn shared() -> Result<Arc<Checkouts>> {
        static SHARED: Mutex<Weak<Checkouts>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(checkouts) = shared.upgrade() {
            return Ok(checkouts);
        }
        let checkouts = Arc::new(Checkouts { scratch: Scratch::new("flux")?, by_url: Mutex::default() });
        *shared = Arc::downgrade(&checkouts);
        Ok(checkouts)
    }

    /// Returns the files of a commit; fetches them if needed. Blocks, because git is another process.
    pub fn tree(
        &self,
        url: &str,
        sha: &str,
        credentials: Option<&GitCredentials>,
    ) -> Result<Arc<CommitTree>> {
        let checkout = {
            let mut by_url = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
            let folder = self.scratch.path().join(format!("{}.git", by_url.len()));
            let new = || Arc::new(Mutex::new(Checkout { folder, last: None }));
            Arc::clone(by_url.entry(url.to_owned()).or_insert_with(new))
        };
        let mut checkout = checkout.lock().unwrap_or_else(PoisonError::into_inner);
        // Several objects read the same commit in succession.
        if let Some((_, tree)) = checkout.last.as_ref().filter(|(last, _)| last == sha) {
            return Ok(Arc::clone(tree));
        }
        let folder = &checkout.folder;
        if !folder.exists() {
            std::fs::create_dir_all(folder)?;
            read(folder, &["init", "--quiet", "--bare", "."])?;
        }
        if read(folder, &["cat-file", "-e", &format!("{sha}^{{tree}}")]).is_err() {
            fetch(folder, url, sha, credentials)?;
        }
        let tree = Arc::new(CommitTree::load(folder, sha)?);
        checkout.last = Some((sha.to_owned(), Arc::clone(&tree)));
        Ok(tree)
    }
}

fn fetch(folder: &Path, url: &str, sha: &str, credentials: Option<&GitCredentials>) -> Result<()> {
    let mut command = git(folder);
    command.args(["fetch", "--quiet", "--depth=1", "--no-tags", url, sha]);
    if let Some(GitCredentials { user, password }) = credentials {
        let pair = format!("{user}:{password}");
        let value = base64::engine::general_purpose::STANDARD.encode(pair);
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "http.extraHeader");
        command.env("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {value}"));
    }
    let output = command.output().context("cannot run git: install it")?;
    if !output.status.success() {
        bail!("cannot fetch {sha}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The files of one commit.
#[derive(Debug)]
pub(crate) struct CommitTree {
    pub paths: Vec<String>,
    /// The content of the text files, by path.
    texts: HashMap<String, String>,
}

impl CommitTree {
    /// Reads all files with one run of git: a run for each file would take too long.
    fn load(folder: &Path, sha: &str) -> Result<CommitTree> {
        let listed = run(folder, &["ls-tree", "-r", "-z", "--format=%(objectname) %(path)", sha], b"")?;
        let listed = String::from_utf8_lossy(&listed);
        let files: Vec<(&str, &str)> = listed.split('\0').filter_map(|line| line.split_once(' ')).collect();
        let input: String = files.iter().map(|(id, _)| format!("{id}\n")).collect();
        let content = run(folder, &["cat-file", "--batch"], input.as_bytes())?;
        let mut content = content.as_slice();
        let mut texts = HashMap::new();
        for (_, path) in &files {
            let (text, rest) = object(content).with_context(|| format!("git cannot read {path}"))?;
            texts.extend(String::from_utf8(text.to_vec()).ok().map(|text| ((*path).to_owned(), text)));
            content = rest;
        }
        Ok(CommitTree { paths: files.iter().map(|(_, path)| (*path).to_owned()).collect(), texts })
    }

    /// Returns the content of a text file, if it exists.
    pub fn read(&self, path: &str) -> Option<String> {
        self.texts.get(path).cloned()
    }
}

/// Returns the content of the first object in the output of `cat-file --batch`, and the rest. An object is a line
/// `id type size`, the content and a line break.
fn object(batch: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = batch.split_at_checked(batch.iter().position(|byte| *byte == b'\n')? + 1)?;
    let size = std::str::from_utf8(head).ok()?.trim_end().rsplit(' ').next()?.parse().ok()?;
    let (content, rest) = rest.split_at_checked(size)?;
    Some((content, rest.get(1..)?))
}
