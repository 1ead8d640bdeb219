//! The files of one commit, read from a bare repository that fetches one commit deep.

use super::remote::Credentials;
use crate::Scratch;
use crate::git::{git, read, run};
use anyhow::{Context, Result, bail};
use base64::Engine;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Bare repositories, one for each address.
pub(crate) struct Checkouts {
    scratch: Scratch,
    folders: Mutex<HashMap<String, Arc<Mutex<PathBuf>>>>,
}

impl Checkouts {
    pub fn new() -> Result<Checkouts> {
        Ok(Checkouts { scratch: Scratch::new("flux")?, folders: Mutex::default() })
    }

    /// The files of a commit, fetched unless they are here. Blocks: git is another process.
    pub fn tree(&self, url: &str, sha: &str, who: Option<&Credentials>) -> Result<Tree> {
        let slot = {
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            let number = folders.len();
            let path = self.scratch.path().join(format!("{number}.git"));
            Arc::clone(folders.entry(url.to_owned()).or_insert_with(|| Arc::new(Mutex::new(path))))
        };
        let folder = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if !folder.exists() {
            std::fs::create_dir_all(&*folder)?;
            read(&folder, &["init", "--quiet", "--bare", "."])?;
        }
        if read(&folder, &["cat-file", "-e", &format!("{sha}^{{tree}}")]).is_err() {
            fetch(&folder, url, sha, who)?;
        }
        let listed = run(&folder, &["ls-tree", "-r", "-z", "--name-only", sha], b"")?;
        let paths = listed.split(|b| *b == 0).map(|p| String::from_utf8_lossy(p).into_owned());
        Ok(Tree {
            folder: folder.clone(),
            sha: sha.to_owned(),
            paths: paths.filter(|p| !p.is_empty()).collect(),
        })
    }
}

fn fetch(folder: &std::path::Path, url: &str, sha: &str, who: Option<&Credentials>) -> Result<()> {
    let mut command = git(folder);
    command.args(["fetch", "--quiet", "--depth=1", "--no-tags", url, sha]);
    if let Some(who) = who {
        let pair = format!("{}:{}", who.user, who.password);
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
pub(crate) struct Tree {
    folder: PathBuf,
    sha: String,
    pub paths: Vec<String>,
}

impl Tree {
    /// A file's text, if there is such a file.
    pub fn read(&self, path: &str) -> Option<String> {
        if !self.paths.iter().any(|p| p == path) {
            return None;
        }
        let bytes = run(&self.folder, &["cat-file", "blob", &format!("{}:{path}", self.sha)], b"").ok()?;
        String::from_utf8(bytes).ok()
    }
}
