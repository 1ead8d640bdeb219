//! Errors of values that cannot be set. Every message names the file, the line and what to write instead.

use std::fmt;

use super::choice::Choice;
use super::limits::{MAX_FILE_EVENTS, MAX_UPDATE_EVENTS, MAX_VISITED_DOCUMENTS};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file's path in its repository.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

/// What names the value to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A marker beside the value.
    Marker,
    /// An entry of the pipeline's `update` list.
    Entry,
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Asker::Marker => "the promotion marker",
            Asker::Entry => "the entry of update",
        })
    }
}

/// A value that cannot be set. The error stays until the file or the pipeline changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SetError {
    #[error("{at}: the promotion marker {problem}; write # {instead}, and nothing else in that comment")]
    BadMarker { at: Location, problem: String, instead: String },

    #[error(
        "{at}: the promotion marker is {place}; put it at the end of the value's line, or alone on the line \
         directly above, indented as that line"
    )]
    MisplacedMarker { at: Location, place: &'static str },

    #[error(
        "{at}: the value has two promotion markers of this environment, in line {first} and in line {second}; \
         remove one of them"
    )]
    TwoMarkers { at: Location, first: u32, second: u32 },

    #[error(
        "{at}: the promotion marker is at a flow list or mapping ([...] or {{...}}), and does not say \
         which value it means; put the value on its own line with the marker at the end"
    )]
    FlowCollection { at: Location },

    #[error(
        "{at}: the promotion marker is after an alias (*name), which has no value of its own; put it \
         after the value that has the anchor (&name)"
    )]
    Alias { at: Location },

    #[error(
        "{at}: {asker} names a block scalar (| or >) or a text in one, which cannot be set; write the \
         value on one line, plain or quoted"
    )]
    BlockScalar { at: Location, asker: Asker },

    #[error("{at}: the value that {asker} names has several lines; write it on one line")]
    MultilineScalar { at: Location, asker: Asker },

    #[error(
        "{at}: the value that {asker} names has the tag {tag}, and a version is a string; remove the tag or \
         write !!str"
    )]
    TaggedValue { at: Location, asker: Asker, tag: String },

    #[error("{at}: {asker} does not say which value it means; add {key:?} with one of {choices} to it")]
    AmbiguousValue { at: Location, asker: Asker, key: &'static str, choices: String },

    #[error(
        "{at}: {asker} asks for {choice}, which the pipeline does not track; it tracks {has}; correct {asker}, or \
         spec.tracks of the Pipeline"
    )]
    UnknownFacet { at: Location, asker: Asker, choice: Choice, has: String },

    #[error(
        "{at}: the revision's {facet} is empty, and Sluice never writes an empty value; look at the workload that the \
         revision comes from"
    )]
    EmptyValue { at: Location, facet: String },

    #[error(
        "{at}: containers run {facet} with different tags ({tags}), and only one can be set; let all of them run the same \
         tag, or let {asker} ask for another value"
    )]
    SeveralTags { at: Location, asker: Asker, facet: String, tags: String },

    #[error(
        "{at}: the value is an image of another repository than {wanted}, which {asker} asks for; correct its \
         \"value\" or the image"
    )]
    ImageMismatch { at: Location, asker: Asker, wanted: String },

    #[error(
        "{at}: the image has no tag to set; write it as <repository>:<tag>, or let {asker} name the field with \
         the tag"
    )]
    ImageWithoutTag { at: Location, asker: Asker },

    #[error(
        "{at}: {value:?} cannot be the tag of an image; let {asker} name a field with only the \
         version, or name another \"value\" in it"
    )]
    NotATag { at: Location, asker: Asker, value: String },

    #[error(
        "{at}: the file {why} and is not readable as YAML (column {column}: {message}); correct it, or move \
         the value to a file that is YAML, not a template"
    )]
    UnparsableFile { at: Location, why: &'static str, column: u32, message: String },

    #[error(
        "{at}: the file {why} and has too many keys, values and comments to be read; move the value to a smaller \
         file (a file may have {MAX_FILE_EVENTS} of them, and all files of an entry of update {MAX_UPDATE_EVENTS})"
    )]
    FileTooLarge { at: Location, why: &'static str },

    #[error(
        "{at}: the entries of update would look at more than {MAX_VISITED_DOCUMENTS} documents, each entry for each target; \
         divide the file into several, and name fewer of them in an entry"
    )]
    TooManyDocuments { at: Location },

    #[error(
        "{at}: the file has more than {max} promotion markers of this environment; divide the file into several"
    )]
    TooManyMarkers { at: Location, max: usize },

    #[error(
        "{at}: setting the value would change more than the value ({what}); nothing was written. \
         This is a bug in Sluice: please report it with the file"
    )]
    ChangedTooMuch { at: Location, what: &'static str },
}

impl SetError {
    /// Returns the reason as one PascalCase word, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            SetError::BadMarker { .. } => "BadMarker",
            SetError::MisplacedMarker { .. } => "MisplacedMarker",
            SetError::TwoMarkers { .. } => "TwoMarkers",
            SetError::FlowCollection { .. } => "FlowCollection",
            SetError::Alias { .. } => "Alias",
            SetError::BlockScalar { .. } => "BlockScalar",
            SetError::MultilineScalar { .. } => "MultilineScalar",
            SetError::TaggedValue { .. } => "TaggedValue",
            SetError::AmbiguousValue { asker: Asker::Marker, .. } => "AmbiguousMarker",
            SetError::AmbiguousValue { asker: Asker::Entry, .. } => "AmbiguousValue",
            SetError::UnknownFacet { .. } => "UnknownFacet",
            SetError::EmptyValue { .. } => "EmptyValue",
            SetError::SeveralTags { .. } => "SeveralTags",
            SetError::ImageMismatch { .. } => "ImageMismatch",
            SetError::ImageWithoutTag { .. } => "ImageWithoutTag",
            SetError::NotATag { .. } => "NotATag",
            SetError::UnparsableFile { .. } => "UnparsableFile",
            SetError::FileTooLarge { .. }
            | SetError::TooManyDocuments { .. }
            | SetError::TooManyMarkers { .. } => "FileNotRead",
            SetError::ChangedTooMuch { .. } => "ChangedTooMuch",
        }
    }
}
