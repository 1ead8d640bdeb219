//! Files of a commit as Sluice reads them, and what it remembers about their content.

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

/// Returns a path for people, without characters that move a cursor, begin a new line or hide text.
pub(super) fn readable_path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}
