//! Makes a commit on top of another with one `fast-import`: no index, no working tree, and only the changed blobs. The
//! same base, files and date make the same commit, so a repetition is harmless. A signed commit is written again with the
//! signature in it, because `fast-import` of git 2.39 cannot sign.

use std::io::Write;

use jiff::Timestamp;

use super::access::RepositoryAccess;
use super::error::{GitError, GitResult};
use super::repository::LockedRepository;
use super::sign::{self, Signer};

/// A commit to make: the files that it changes, author, date and message.
#[derive(Clone, Debug)]
pub(crate) struct NewCommit {
    pub(crate) files: Vec<ChangedFile>,
    /// `Name <address>`.
    pub(crate) author: String,
    pub(crate) date: Timestamp,
    pub(crate) message: String,
}

/// A file with its new content.
#[derive(Clone, Debug)]
pub(crate) struct ChangedFile {
    pub(crate) path: Vec<u8>,
    pub(crate) mode: &'static str,
    pub(crate) text: String,
}

impl LockedRepository<'_> {
    /// Makes the commit and returns its id.
    pub(crate) async fn commit(&mut self, base: &str, new: &NewCommit) -> GitResult<String> {
        let id = self.commit_unsigned(base, new).await?;
        self.remember_made(&new.files, &id);
        let Some(signer) = Signer::new(self.git, &self.access)? else { return Ok(id) };
        let unsigned = self.git.run(self.local(["cat-file", "commit", &id])).await?;
        let signature = signer.sign(&unsigned).await?;
        self.write_commit(sign::put_in(&unsigned, sign::header(&id), &signature)).await
    }

    /// Makes the commit without a signature and returns its id.
    pub(super) async fn commit_unsigned(&self, base: &str, new: &NewCommit) -> GitResult<String> {
        let stream = stream(base, new)
            .map_err(|e| GitError::Cache { repository: self.access.name().into(), says: e.to_string() })?;
        let args = ["fast-import", "--quiet", "--force", "--done", "--date-format=raw"];
        let out = self.git.run(self.local(args).with_input(stream)).await?;
        let id = String::from_utf8_lossy(&out).trim().to_string();
        check_id(&self.access, "fast-import", &id).map(|()| id)
    }

    /// Stores the text of a commit and returns its id.
    pub(super) async fn write_commit(&self, raw: Vec<u8>) -> GitResult<String> {
        let args = ["hash-object", "-t", "commit", "-w", "--stdin"];
        let out = self.git.run(self.local(args).with_input(raw)).await?;
        let id = String::from_utf8_lossy(&out).trim().to_string();
        check_id(&self.access, "hash-object", &id).map(|()| id)
    }
}

fn check_id(access: &RepositoryAccess, doing: &str, id: &str) -> GitResult<()> {
    if id.len() >= 40 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(());
    }
    let says = "it made no commit".to_string();
    Err(GitError::Failed { repository: access.name().into(), doing: doing.into(), says })
}

fn stream(base: &str, new: &NewCommit) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let when = new.date.as_second();
    writeln!(out, "commit refs/sluice/made")?;
    writeln!(out, "mark :1")?;
    writeln!(out, "author {} {when} +0000", new.author)?;
    writeln!(out, "committer {} {when} +0000", new.author)?;
    data(&mut out, new.message.as_bytes())?;
    writeln!(out, "from {base}")?;
    for file in &new.files {
        write!(out, "M {} inline ", file.mode)?;
        quote(&mut out, &file.path)?;
        writeln!(out)?;
        data(&mut out, file.text.as_bytes())?;
    }
    writeln!(out, "get-mark :1")?;
    writeln!(out, "done")?;
    Ok(out)
}

fn data(out: &mut Vec<u8>, bytes: &[u8]) -> std::io::Result<()> {
    writeln!(out, "data {}", bytes.len())?;
    out.write_all(bytes)?;
    writeln!(out)
}

/// Writes a path of any bytes in the form that fast-import reads.
fn quote(out: &mut Vec<u8>, path: &[u8]) -> std::io::Result<()> {
    out.push(b'"');
    for byte in path {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0x20..=0x7e => out.push(*byte),
            _ => write!(out, "\\{byte:03o}")?,
        }
    }
    out.push(b'"');
    Ok(())
}
