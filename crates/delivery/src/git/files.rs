//! Files of a commit as Sluice reads them, and what it remembers about their content.

use sluice_core::setters::mentions;
use sluice_core::value_check::is_unsafe;

/// A file that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFile {
    /// The path in git; not always UTF-8.
    pub(crate) path: Vec<u8>,
    /// `100644` or `100755`.
    pub(crate) mode: &'static str,
    pub(crate) bytes: Vec<u8>,
}

impl ReadFile {
    /// A new file, which is empty so far.
    pub(crate) fn new(path: &str) -> ReadFile {
        ReadFile { path: path.into(), mode: "100644", bytes: Vec::new() }
    }

    /// Returns the path for people.
    pub(crate) fn path_text(&self) -> String {
        readable_path(&self.path)
    }
}

/// A file that was not read, although its name says that it may be wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadFile {
    pub(crate) path: String,
    pub(crate) reason: UnreadReason,
}

/// Why a file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadReason {
    /// The file has this many bytes.
    TooLarge(u64),
    /// The content of the file is in Git LFS.
    LfsPointer,
}

/// The files that were asked for, and those that were not read.
pub(crate) type FoundFiles = (Vec<ReadFile>, Vec<UnreadFile>);

/// What is known about a file by the hash of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownFile {
    WithoutMarker,
    /// The file has markers, and this many bytes.
    WithMarkers(u64),
    Unread(UnreadReason),
}

impl KnownFile {
    /// What the content of a file says.
    pub(super) fn of(bytes: &[u8]) -> Self {
        match (is_pointer(bytes), mentions(bytes)) {
            (true, _) => KnownFile::Unread(UnreadReason::LfsPointer),
            (false, true) => KnownFile::WithMarkers(bytes.len() as u64),
            (false, false) => KnownFile::WithoutMarker,
        }
    }
}

/// Whether a file is a pointer to content in Git LFS (github.com/git-lfs/git-lfs, docs/spec.md: "Pointer files
/// must be less than 1024 bytes", and "the first line is always version").
pub(super) fn is_pointer(bytes: &[u8]) -> bool {
    bytes.len() < 1024 && bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

/// Returns a path for people, without characters that move a cursor, begin a new line or hide text.
pub(super) fn readable_path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_to_lfs_is_no_yaml() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        assert!(is_pointer(pointer.as_bytes()));
        assert!(!is_pointer(b"version: https://git-lfs.github.com/spec/v1\n"));
        assert!(!is_pointer(&[pointer.as_bytes(), &[b' '; 2000]].concat()));
    }
}
