//! The files of one commit, read from a bare repository that fetches one commit deep.

use super::remote::Credentials;
use crate::Scratch;
use crate::git::{git, read, run};
use anyhow::{Context, Result, bail};
use base64::Engine;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bare repositories, one for each address.
pub(crate) struct Checkouts {
    scratch: Scratch,
    places: Mutex<HashMap<String, Arc<Mutex<Checkout>>>>,
}

/// A bare repository, and the commit that was last asked for.
struct Checkout {
    folder: PathBuf,
    last: Option<(String, Arc<Tree>)>,
}

impl Checkouts {
    /// Those of this process: the stand-ins of several clusters read the same commits.
    pub fn shared() -> Result<Arc<Checkouts>> {
        static SHARED: Mutex<Weak<Checkouts>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(checkouts) = shared.upgrade() {
            return Ok(checkouts);
        }
        let checkouts = Arc::new(Checkouts { scratch: Scratch::new("flux")?, places: Mutex::default() });
        *shared = Arc::downgrade(&checkouts);
        Ok(checkouts)
    }

    /// The files of a commit, fetched unless they are here. Blocks: git is another process.
    pub fn tree(&self, url: &str, sha: &str, who: Option<&Credentials>) -> Result<Arc<Tree>> {
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let folder = self.scratch.path().join(format!("{}.git", places.len()));
            let made = || Arc::new(Mutex::new(Checkout { folder, last: None }));
            Arc::clone(places.entry(url.to_owned()).or_insert_with(made))
        };
        let mut checkout = place.lock().unwrap_or_else(PoisonError::into_inner);
        // Several objects read one commit, one after the other.
        if let Some((_, tree)) = checkout.last.as_ref().filter(|(last, _)| last == sha) {
            return Ok(Arc::clone(tree));
        }
        let folder = &checkout.folder;
        if !folder.exists() {
            std::fs::create_dir_all(folder)?;
            read(folder, &["init", "--quiet", "--bare", "."])?;
        }
        if read(folder, &["cat-file", "-e", &format!("{sha}^{{tree}}")]).is_err() {
            fetch(folder, url, sha, who)?;
        }
        let tree = Arc::new(Tree::load(folder, sha)?);
        checkout.last = Some((sha.to_owned(), Arc::clone(&tree)));
        Ok(tree)
    }
}

fn fetch(folder: &Path, url: &str, sha: &str, who: Option<&Credentials>) -> Result<()> {
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
    pub paths: Vec<String>,
    /// Without those that are not text.
    texts: HashMap<String, String>,
}

impl Tree {
    /// Reads all files with one run of git: one for each file takes longer than all the rest.
    fn load(folder: &Path, sha: &str) -> Result<Tree> {
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
        Ok(Tree { paths: files.iter().map(|(_, path)| (*path).to_owned()).collect(), texts })
    }

    /// A file's text, if there is such a file.
    pub fn read(&self, path: &str) -> Option<String> {
        self.texts.get(path).cloned()
    }
}

/// One object of what `cat-file --batch` writes (`id type size`, the content), and the rest.
fn object(batch: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = batch.split_at_checked(batch.iter().position(|byte| *byte == b'\n')? + 1)?;
    let size = std::str::from_utf8(head).ok()?.trim_end().rsplit(' ').next()?.parse().ok()?;
    let (content, rest) = rest.split_at_checked(size)?;
    Some((content, rest.get(1..)?))
}
