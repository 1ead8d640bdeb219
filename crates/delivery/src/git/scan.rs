//! Reads files of a commit: those that carry markers, or those that are named. What a file holds never
//! changes under its hash, so each is looked at for markers once; what a partial cache left out is
//! fetched in one go, not file by file.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use super::cache::read_objects;
use super::run::Call;
use super::{Access, Cache, Git, GitError};
use crate::stats::Counters;

/// A file that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFile {
    /// As git knows it; not always UTF-8.
    pub(crate) path: Vec<u8>,
    /// `100644` or `100755`.
    pub(crate) mode: &'static str,
    pub(crate) bytes: Vec<u8>,
}

impl ReadFile {
    /// Its path for people.
    pub(crate) fn path_text(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// A YAML file in a tree.
struct Entry {
    id: String,
    mode: &'static str,
    path: Vec<u8>,
}

/// The YAML files of a commit.
pub(crate) struct Listing(Vec<Entry>);

impl Listing {
    /// Their paths for people.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    /// Only those in these places.
    pub(crate) fn only(self, places: &BTreeSet<usize>) -> Listing {
        let entries = self.0.into_iter().enumerate().filter(|(place, _)| places.contains(place));
        Listing(entries.map(|(_, entry)| entry).collect())
    }
}

impl Entry {
    /// Enough of the hash to tell files apart.
    fn key(&self) -> u128 {
        key(&self.id)
    }
}

fn key(id: &str) -> u128 {
    u128::from_str_radix(id.get(..32).unwrap_or_default(), 16).unwrap_or_default()
}

impl Cache {
    /// The YAML files of a commit.
    pub(crate) async fn list(&self, git: &Git, access: &Access, commit: &str) -> Result<Listing, GitError> {
        let listing = Call::local(self.dir(), access, ["ls-tree", "-r", "-z", "--full-tree", commit]);
        Ok(Listing(entries(&git.run(listing).await?)))
    }

    /// What these files hold.
    pub(crate) async fn read(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        Listing(entries): Listing,
    ) -> Result<Vec<ReadFile>, GitError> {
        self.complete(git, access, counters, entries.iter()).await?;
        let mut found = Vec::with_capacity(entries.len());
        self.read_entries(git, access, entries, |entry, bytes| {
            found.push(ReadFile { path: entry.path, mode: entry.mode, bytes: bytes.to_vec() });
        })
        .await?;
        Ok(found)
    }

    /// The files of a commit that carry any marker and, somewhere, the text `needle`.
    pub(crate) async fn scan(
        &mut self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        commit: &str,
        needle: &str,
    ) -> Result<Vec<ReadFile>, GitError> {
        let Listing(entries) = self.list(git, access, commit).await?;
        let unread: HashSet<u128> =
            entries.iter().map(Entry::key).filter(|k| !self.scanned.contains_key(k)).collect();
        if !unread.is_empty() {
            let unread = entries.iter().filter(|e| unread.contains(&e.key()));
            self.complete(git, access, counters, unread).await?;
        }
        let wanted: Vec<Entry> =
            entries.into_iter().filter(|e| self.scanned.get(&e.key()).copied().unwrap_or(true)).collect();
        let found = self.read_marked(git, access, wanted, needle).await?;
        Ok(found)
    }

    /// Fetches what is not here.
    async fn complete(
        &self,
        git: &Git,
        access: &Access,
        counters: &Counters,
        wanted: impl Iterator<Item = &Entry>,
    ) -> Result<(), GitError> {
        // Asking for one object that is missing would fetch it, and it alone: so list what is here.
        let args = ["cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)"];
        let here = git.run(Call::local(self.dir(), access, args)).await?;
        let here: HashSet<&[u8]> = here.split(|b| *b == b'\n').collect();
        let missing: HashSet<&str> =
            wanted.filter(|e| !here.contains(e.id.as_bytes())).map(|e| e.id.as_str()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut input: String = missing.into_iter().collect::<Vec<_>>().join("\n");
        input.push('\n');
        let args = [
            "-c",
            "fetch.negotiationAlgorithm=noop",
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--filter=blob:none",
            "--stdin",
            "origin",
        ];
        counters.fetches.fetch_add(1, Ordering::Relaxed);
        git.run(Call::remote(self.dir(), access, args).with_input(input.into_bytes())).await.map(drop)
    }

    /// Reads files, remembers which have markers and keeps those that hold `needle` too.
    async fn read_marked(
        &mut self,
        git: &Git,
        access: &Access,
        wanted: Vec<Entry>,
        needle: &str,
    ) -> Result<Vec<ReadFile>, GitError> {
        let mut found = Vec::new();
        let mut scanned = std::mem::take(&mut self.scanned);
        let read = self
            .read_entries(git, access, wanted, |entry, bytes| {
                let marked = sluice_core::setters::mentions(bytes);
                scanned.insert(entry.key(), marked);
                if marked && contains(bytes, needle.as_bytes()) {
                    found.push(ReadFile { path: entry.path, mode: entry.mode, bytes: bytes.to_vec() });
                }
            })
            .await;
        self.scanned = scanned;
        read.map(|()| found)
    }

    /// Reads files, all of which are here, with one run of git.
    async fn read_entries(
        &self,
        git: &Git,
        access: &Access,
        wanted: Vec<Entry>,
        mut each: impl FnMut(Entry, &[u8]),
    ) -> Result<(), GitError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut input = String::with_capacity(wanted.len() * 41);
        for entry in &wanted {
            input.push_str(&entry.id);
            input.push('\n');
        }
        let mut lost = false;
        let mut wanted = wanted.into_iter();
        let call = Call::local(self.dir(), access, ["cat-file", "--batch"]).with_input(input.into_bytes());
        let read = read_objects(git, call, |object| match (wanted.next(), object) {
            (Some(entry), Some((_, bytes))) => each(entry, bytes),
            _ => lost = true,
        })
        .await;
        if lost {
            let says = "objects are missing".to_string();
            return Err(GitError::Cache { repository: access.name().into(), says });
        }
        read
    }
}

/// The YAML files of a listing: plain ones only, no links.
fn entries(listing: &[u8]) -> Vec<Entry> {
    let entry = |line: &[u8]| {
        let tab = line.iter().position(|b| *b == b'\t')?;
        let (head, path) = (std::str::from_utf8(&line[..tab]).ok()?, &line[tab + 1..]);
        if !path.ends_with(b".yaml") && !path.ends_with(b".yml") {
            return None;
        }
        let mut words = head.split(' ');
        let mode = match words.next()? {
            "100644" => "100644",
            "100755" => "100755",
            _ => return None,
        };
        Some(Entry { id: words.nth(1)?.to_string(), mode, path: path.to_vec() })
    };
    listing.split(|b| *b == 0).filter_map(entry).collect()
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}
