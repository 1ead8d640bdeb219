//! Reads YAML files of a commit: those with markers, or those that are named. The content of a file never changes under its
//! hash, so each content is searched for markers once. Files that are missing in the partial cache are fetched in one call.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use super::access::RepositoryAccess;
use super::create_commit::ChangedFile;
use super::error::{GitError, GitResult};
use super::fetch::read_objects;
use super::files::{FoundFiles, KnownFile, ReadFile, UnreadFile, UnreadReason, is_pointer, readable_path};
use super::limits::{each_record, too_large};
use super::repository::LockedRepository;
use sluice_core::hex::hex;
use sluice_core::manifest_path::is_yaml;
use sluice_core::setters::MAX_FILE_BYTES;

/// A YAML file in a tree.
#[derive(Clone)]
pub(super) struct TreeEntry {
    pub(super) id: String,
    pub(super) mode: &'static str,
    pub(super) path: Vec<u8>,
}

/// The YAML files of a commit.
#[derive(Clone)]
pub(crate) struct YamlFiles(pub(super) Vec<TreeEntry>);

impl YamlFiles {
    /// Returns the paths of the files, in a form for messages.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.iter().map(|entry| readable_path(&entry.path)).collect()
    }

    /// Whether the list takes much memory.
    fn is_long(&self) -> bool {
        let bytes: usize = self.0.iter().map(|entry| entry.path.len()).sum();
        self.0.len() > MAX_SHORT_LIST.0 || bytes > MAX_SHORT_LIST.1
    }

    /// Keeps only the files at these indices.
    pub(crate) fn only(self, indices: &BTreeSet<usize>) -> YamlFiles {
        let entries = self.0.into_iter().enumerate().filter(|(index, _)| indices.contains(index));
        YamlFiles(entries.map(|(_, entry)| entry).collect())
    }
}

impl TreeEntry {
    /// Returns the part of the hash that identifies the content of the file.
    fn key(&self) -> u128 {
        key(&self.id)
    }

    fn read(self, bytes: &[u8]) -> ReadFile {
        ReadFile { path: self.path, mode: self.mode, bytes: bytes.to_vec() }
    }

    fn unread(&self, reason: UnreadReason) -> UnreadFile {
        UnreadFile { path: readable_path(&self.path), reason }
    }
}

fn key(id: &str) -> u128 {
    u128::from_str_radix(id.get(..32).unwrap_or_default(), 16).unwrap_or_default()
}

/// The most bytes of the files of one commit that are kept.
const MAX_KEPT_BYTES: u64 = 16 << 20;
/// The most bytes that are searched in one commit: 250,000 files of 4 KiB.
const MAX_READ_BYTES: u64 = 1 << 30;
/// The most YAML files of a commit.
const MAX_YAML_FILES: usize = 250_000;
/// The most bytes of their paths.
const MAX_PATH_BYTES: usize = 32 << 20;
/// The most files, and the most bytes of their paths, of a list that is not long. A longer list takes up to 100 MB,
/// and many deliveries may have one, so it waits for the slot of large work.
const MAX_SHORT_LIST: (usize, usize) = (4000, 1 << 20);
/// The most missing files of a long list that are fetched at a time. The list is not kept during the fetch, because the
/// server may be slow: it is read again afterwards.
const MAX_FETCHED_FILES: usize = 10_000;
/// The most files that a list of values may select.
const MAX_SELECTED_FILES: usize = 10_000;
/// The most bytes of the list of all files. A tree can contain one subtree many times: 100 KB become terabytes.
const MAX_LISTING_BYTES: usize = 256 << 20;
/// The most files that are remembered.
const MAX_KNOWN_FILES: usize = 500_000;

/// The files of a commit that may have markers.
struct FilesToRead {
    /// Each file once, without a path.
    files: Vec<TreeEntry>,
    /// The entries of the commit for each file: one file can have several paths.
    names: HashMap<u128, Vec<TreeEntry>>,
    /// The files that Sluice does not read, each with the reason.
    unread: Vec<UnreadFile>,
}

impl FilesToRead {
    /// Chooses the files to read. `known` is what earlier reads found; `sizes` has the bytes of all other files.
    ///
    /// # Errors
    /// The first file beyond [`MAX_READ_BYTES`].
    fn of(
        entries: Vec<TreeEntry>,
        known: &HashMap<u128, KnownFile>,
        sizes: &HashMap<u128, u64>,
    ) -> Result<Self, TreeEntry> {
        let (mut files, mut unread, mut left) = (Vec::new(), Vec::new(), MAX_READ_BYTES);
        let mut names: HashMap<u128, Vec<TreeEntry>> = HashMap::new();
        for entry in entries {
            let key = entry.key();
            let size = match known.get(&key) {
                Some(KnownFile::WithoutMarker) => continue,
                Some(KnownFile::Unread(why)) => {
                    unread.push(entry.unread(*why));
                    continue;
                }
                Some(KnownFile::WithMarkers(size)) => *size,
                None => sizes.get(&key).copied().unwrap_or_default(),
            };
            if !names.contains_key(&key) {
                let Some(rest) = left.checked_sub(size) else { return Err(entry) };
                left = rest;
                files.push(TreeEntry { path: Vec::new(), ..entry.clone() });
            }
            names.entry(key).or_default().push(entry);
        }
        Ok(Self { files, names, unread })
    }
}

impl LockedRepository<'_> {
    /// Lists the YAML files of a commit: plain files only, no links and no submodules. A long list waits for the slot of
    /// large work, which the caller releases. If the last list was long, the wait comes first, so that git does not list
    /// the same files twice.
    pub(crate) async fn list_files(&mut self, commit: &str) -> GitResult<YamlFiles> {
        if !self.has_large_slot() {
            if !self.has_long_list {
                match self.list(commit, MAX_SHORT_LIST).await {
                    Err(GitError::TooLarge { .. }) => {}
                    listed => return listed,
                }
            }
            self.take_large_slot().await;
        }
        let listed = self.list(commit, (MAX_YAML_FILES, MAX_PATH_BYTES)).await;
        self.has_long_list = listed.as_ref().is_ok_and(YamlFiles::is_long);
        listed
    }

    /// Lists the YAML files of a commit, unless there are more than these, or their paths have more bytes.
    async fn list(&self, commit: &str, (most, most_bytes): (usize, usize)) -> GitResult<YamlFiles> {
        // With -t, trees are listed, too: trees without files count for the limit.
        let call = self.local(["ls-tree", "-r", "-t", "-z", "--full-tree", commit]);
        let read = |stdout| async move {
            let (mut entries, mut paths, mut listed) = (Vec::new(), 0, 0);
            let each = |line: &[u8]| {
                listed += line.len();
                if let Some(entry) = entry(line) {
                    paths += entry.path.len();
                    entries.push(entry);
                }
                match listed > MAX_LISTING_BYTES || paths > most_bytes || entries.len() > most {
                    true => Err(too_large("the list of files in its tree")),
                    false => Ok(()),
                }
            };
            each_record(stdout, 0, each).await.map(|()| entries)
        };
        self.git.read(call, read).await.map(YamlFiles)
    }

    /// Remembers files of a commit that was made here. They are in the cache, so git is not asked whether they are.
    pub(super) fn remember_made(&mut self, files: &[ChangedFile], commit: &str) {
        for file in files {
            let bytes = file.text.as_bytes();
            if bytes.len() as u64 > MAX_FILE_BYTES || self.files.len() >= MAX_KNOWN_FILES {
                continue;
            }
            self.files.insert(key(&blob_id(bytes, commit.len())), KnownFile::of(bytes));
        }
    }

    /// Reads the content of these files.
    pub(crate) async fn read_files(&self, YamlFiles(entries): YamlFiles) -> GitResult<FoundFiles> {
        if let Some(entry) = entries.get(MAX_SELECTED_FILES) {
            let (repository, doing) = (self.access.name().to_string(), "cat-file".to_string());
            let path = readable_path(&entry.path);
            let says = format!("more than {MAX_SELECTED_FILES} of its files, such as {path}, are selected");
            return Err(GitError::TooLarge { repository, doing, says });
        }
        self.fetch_files(self.missing(entries.iter().map(|entry| entry.id.as_str()).collect()).await?)
            .await?;
        let sizes = self.sizes(entries.iter()).await?;
        let size = |entry: &TreeEntry| sizes.get(&entry.key()).copied().unwrap_or_default();
        let (large, wanted): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| size(e) > MAX_FILE_BYTES);
        if wanted.iter().map(size).sum::<u64>() > MAX_KEPT_BYTES {
            return Err(too_many(&self.access, MARKED, &wanted[0]));
        }
        let mut unread: Vec<_> = large.iter().map(|e| e.unread(UnreadReason::TooLarge(size(e)))).collect();
        let mut found = Vec::with_capacity(wanted.len());
        self.read_entries(wanted, |entry, bytes| match is_pointer(bytes) {
            true => unread.push(entry.unread(UnreadReason::LfsPointer)),
            false => found.push(entry.read(bytes)),
        })
        .await?;
        Ok((found, unread))
    }

    /// Reads the files of a commit that have any marker and the text `needle`.
    pub(crate) async fn read_marked_files(&mut self, commit: &str, needle: &str) -> GitResult<FoundFiles> {
        let (entries, new) = self.list_and_fetch(commit).await?;
        let mut sizes = HashMap::new();
        if !new.is_empty() {
            sizes = self.sizes(entries.iter().filter(|e| new.contains(&e.id))).await?;
        }
        if self.files.len() + sizes.len() > MAX_KNOWN_FILES {
            self.files.retain(|_, known| *known != KnownFile::WithoutMarker);
        }
        if self.files.len() + sizes.len() > MAX_KNOWN_FILES {
            self.files.clear();
        }
        let large = sizes.iter().filter(|(_, size)| **size > MAX_FILE_BYTES);
        self.files.extend(large.map(|(key, size)| (*key, KnownFile::Unread(UnreadReason::TooLarge(*size)))));
        let to_read = FilesToRead::of(entries, &self.files, &sizes)
            .map_err(|entry| too_many(&self.access, "YAML files", &entry))?;
        let (found, pointers) = self.read_marked(to_read.files, to_read.names, needle).await?;
        Ok((found, [to_read.unread, pointers].concat()))
    }

    /// Lists the YAML files of a commit, and fetches those that are neither remembered nor in the cache. Returns the list, and
    /// the files in it that are not remembered.
    async fn list_and_fetch(&mut self, commit: &str) -> GitResult<(Vec<TreeEntry>, HashSet<String>)> {
        for _ in 0..=MAX_YAML_FILES / MAX_FETCHED_FILES {
            let YamlFiles(entries) = self.list_files(commit).await?;
            let unknown = |entry: &&TreeEntry| !self.files.contains_key(&entry.key());
            let new: HashSet<String> = entries.iter().filter(unknown).map(|entry| entry.id.clone()).collect();
            let missing = match new.is_empty() {
                true => Vec::new(),
                false => self.missing(new.iter().map(String::as_str).collect()).await?,
            };
            if missing.is_empty() || !self.has_large_slot() {
                self.fetch_files(missing).await?;
                return Ok((entries, new));
            }
            drop((entries, new));
            self.release_large_slot();
            self.fetch_files(missing).await?;
        }
        let says = "objects are missing after they were fetched".to_string();
        Err(GitError::Cache { repository: self.access.name().into(), says })
    }

    /// Returns the files that are missing in the cache; of a long list, only some of them.
    async fn missing(&self, wanted: HashSet<&str>) -> GitResult<Vec<String>> {
        // A question for a missing object would fetch it alone, so list the objects in the cache.
        let args = ["cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)"];
        let call = self.local(args);
        let read = |stdout| {
            let mut missing = wanted.clone();
            async move {
                each_record(stdout, b'\n', |id| {
                    missing.remove(std::str::from_utf8(id).unwrap_or_default());
                    Ok(())
                })
                .await?;
                Ok(missing)
            }
        };
        let missing = self.git.read(call, read).await?;
        Ok(missing.into_iter().take(MAX_FETCHED_FILES).map(String::from).collect())
    }

    /// Fetches these files.
    async fn fetch_files(&self, missing: Vec<String>) -> GitResult<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let input: String = missing.iter().flat_map(|id| [id.as_str(), "\n"]).collect();
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
        self.counters.fetches.fetch_add(1, Ordering::Relaxed);
        self.git.run(self.remote(args).with_input(input.into_bytes())).await.map(drop)
    }

    /// The sizes of these files, all of which are in the cache, in bytes. Their content is not read.
    async fn sizes(&self, wanted: impl Iterator<Item = &TreeEntry>) -> GitResult<HashMap<u128, u64>> {
        let input: String = wanted.flat_map(|entry| [entry.id.as_str(), "\n"]).collect();
        let args = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
        let call = self.local(args).with_input(input.into_bytes());
        let read = |stdout| async move {
            let mut sizes = HashMap::new();
            each_record(stdout, b'\n', |line| {
                let line = std::str::from_utf8(line).unwrap_or_default();
                if let Some((id, size)) = line.split_once(' ') {
                    sizes.insert(key(id), size.parse().unwrap_or(u64::MAX));
                }
                Ok(())
            })
            .await?;
            Ok(sizes)
        };
        self.git.read(call, read).await
    }

    /// Reads files, remembers which have markers, and keeps those that also have `needle`, under each of their names.
    async fn read_marked(
        &mut self,
        wanted: Vec<TreeEntry>,
        mut names: HashMap<u128, Vec<TreeEntry>>,
        needle: &str,
    ) -> GitResult<FoundFiles> {
        let (mut found, mut pointers) = (Vec::new(), Vec::new());
        let (mut left, mut over) = (MAX_KEPT_BYTES, None);
        let mut scanned = std::mem::take(&mut self.files);
        let read = self
            .read_entries(wanted, |entry, bytes| {
                let names = names.remove(&entry.key()).unwrap_or_default();
                let known = KnownFile::of(bytes);
                scanned.insert(entry.key(), known);
                if known == KnownFile::Unread(UnreadReason::LfsPointer) {
                    pointers.extend(names.iter().map(|name| name.unread(UnreadReason::LfsPointer)));
                } else if known != KnownFile::WithoutMarker && contains(bytes, needle.as_bytes()) {
                    for name in names {
                        match left.checked_sub(bytes.len() as u64) {
                            Some(rest) => left = rest,
                            None => {
                                over.get_or_insert(name);
                                return;
                            }
                        }
                        found.push(name.read(bytes));
                    }
                }
            })
            .await;
        self.files = scanned;
        match over {
            Some(entry) => Err(too_many(&self.access, MARKED, &entry)),
            None => read.map(|()| (found, pointers)),
        }
    }

    /// Reads files, all of which are in the cache and not too large, with one run of git.
    async fn read_entries(
        &self,
        wanted: Vec<TreeEntry>,
        mut each: impl FnMut(TreeEntry, &[u8]),
    ) -> GitResult<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let input: String = wanted.iter().flat_map(|entry| [entry.id.as_str(), "\n"]).collect();
        let mut lost = false;
        let mut wanted = wanted.into_iter();
        let call = self.local(["cat-file", "--batch"]).with_input(input.into_bytes());
        let read = read_objects(self.git, call, |object| match (wanted.next(), object) {
            (Some(entry), Some((_, bytes))) => each(entry, bytes),
            _ => lost = true,
        })
        .await;
        if lost {
            let says = "objects are missing".to_string();
            return Err(GitError::Cache { repository: self.access.name().into(), says });
        }
        read
    }
}

/// The name in messages for the files that Sluice keeps to edit them.
const MARKED: &str = "files with markers";

/// Returns the error for files that are too large together.
fn too_many(access: &RepositoryAccess, files: &str, entry: &TreeEntry) -> GitError {
    let (repository, doing) = (access.name().to_string(), "cat-file".to_string());
    let path = readable_path(&entry.path);
    let says = format!("its {files}, such as {path}, are larger together than Sluice reads");
    GitError::TooLarge { repository, doing, says }
}

/// Returns the id of a file in a repository whose ids have this length: SHA-1, or SHA-256 if they are longer
/// (git-scm.com/docs/hash-function-transition, "Object format").
fn blob_id(bytes: &[u8], length: usize) -> String {
    let algorithm = if length > 40 { &SHA256 } else { &SHA1_FOR_LEGACY_USE_ONLY };
    let mut context = Context::new(algorithm);
    context.update(format!("blob {}\0", bytes.len()).as_bytes());
    context.update(bytes);
    hex(context.finish().as_ref())
}

/// Parses a line of the list of files. Returns `None` if the line is not a YAML file.
fn entry(line: &[u8]) -> Option<TreeEntry> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    let (head, path) = (std::str::from_utf8(&line[..tab]).ok()?, &line[tab + 1..]);
    if !is_yaml(path) {
        return None;
    }
    let mut words = head.split(' ');
    let mode = match words.next()? {
        "100644" => "100644",
        "100755" => "100755",
        _ => return None,
    };
    Some(TreeEntry { id: words.nth(1)?.to_string(), mode, path: path.to_vec() })
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_listed() {
        let id = "1".repeat(40);
        for (line, is) in [
            (format!("100644 blob {id}\ta/b.yaml"), true),
            (format!("100755 blob {id}\ta\nb\x1b[2J.yml"), true),
            (format!("120000 blob {id}\tlink.yaml"), false),
            (format!("160000 commit {id}\tmodule.yaml"), false),
            (format!("040000 tree {id}\tfolder.yaml"), false),
            (format!("100644 blob {id}\tb.json"), false),
            ("nonsense".into(), false),
        ] {
            assert_eq!(entry(line.as_bytes()).is_some(), is, "{line}");
        }
        assert_eq!(readable_path(b"a\nb\x1b[2J\xff.yml"), "a\u{fffd}b\u{fffd}[2J\u{fffd}.yml");
    }

    /// What `git hash-object` says of each, with `--object-format`.
    #[test]
    fn the_id_of_a_file_is_that_of_git() {
        assert_eq!(blob_id(b"a: 1\n", 40), "a8926a52d8dcba5c4386945476ab6a2ad008afd4");
        assert_eq!(
            blob_id(b"a: 1\n", 64),
            "80d3735834c615c1ed161b8c218d42171f3247f20cfc07f033dee488cb7b98a9"
        );
    }

    #[test]
    fn the_bytes_that_are_searched_in_a_commit_have_a_budget() {
        let entries = |count: u64, contents: u64| -> Vec<TreeEntry> {
            let file = |n: u64| TreeEntry {
                id: format!("{:040x}", (n % contents) << 32),
                mode: "100644",
                path: format!("{n}.yaml").into_bytes(),
            };
            (0..count).map(file).collect()
        };
        let most = MAX_READ_BYTES / MAX_FILE_BYTES;
        let none = HashMap::new();
        let all = |known| entries(most + 1, most + 1).iter().map(|entry| (entry.key(), known)).collect();
        let (marked, unmarked) = (all(KnownFile::WithMarkers(MAX_FILE_BYTES)), all(KnownFile::WithoutMarker));
        for (known, files, contents, expected) in [
            (&none, most, most, Some(most)),
            (&none, most + 1, most + 1, None),
            (&marked, most + 1, most + 1, None),
            // A file with many names is read once, and one without markers is not read again.
            (&none, 100 * most, most, Some(most)),
            (&unmarked, most + 1, most + 1, Some(0)),
        ] {
            let entries = entries(files, contents);
            let sizes = entries.iter().map(|entry| (entry.key(), MAX_FILE_BYTES)).collect();
            let to_read = FilesToRead::of(entries, known, &sizes).ok();
            assert_eq!(to_read.map(|to_read| to_read.files.len() as u64), expected, "{files} {contents}");
        }
    }
}
