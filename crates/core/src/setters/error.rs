//! Why a file cannot be set. Every message is for the person who wrote the marker: it names file
//! and line, and what to write instead.

use std::fmt;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The file's path in its repository.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

/// Why a marker cannot be obeyed. None of these goes away before the file or the pipeline changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SetError {
    #[error("{at}: the promotion marker {problem}; write # {instead}, and nothing else in that comment")]
    BadMarker { at: At, problem: String, instead: String },

    #[error("{at}: the promotion marker stands {place}; put it on the value's own line, behind the value")]
    MisplacedMarker { at: At, place: &'static str },

    #[error(
        "{at}: the promotion marker stands at a flow list or mapping ([...] or {{...}}), and does not say \
         which value it means; put the value on a line of its own with the marker behind it"
    )]
    FlowCollection { at: At },

    #[error(
        "{at}: the promotion marker stands behind an alias (*name), which has no value of its own; put it \
         behind the value that has the anchor (&name)"
    )]
    Alias { at: At },

    #[error(
        "{at}: the promotion marker is at or inside a block scalar (| or >), which cannot be set; write the \
         value on one line, plain or quoted, with the marker behind it"
    )]
    BlockScalar { at: At },

    #[error("{at}: the value before the promotion marker goes over several lines; write it on one line")]
    MultilineScalar { at: At },

    #[error(
        "{at}: the value before the promotion marker has the tag {tag}, and a version is a string; remove \
         the tag or write !!str"
    )]
    TaggedValue { at: At, tag: String },

    #[error(
        "{at}: the promotion marker does not say which value it means; add {key:?} with one of {choices} to it"
    )]
    AmbiguousMarker { at: At, key: &'static str, choices: String },

    #[error(
        "{at}: the promotion marker asks for {asked}, which the pipeline does not track; it tracks {has}"
    )]
    UnknownFacet { at: At, asked: String, has: String },

    #[error("{at}: the revision's {facet} is empty; an empty value is never written")]
    EmptyValue { at: At, facet: String },

    #[error(
        "{at}: the value is an image of {found}, but the promotion marker asks for the image {wanted}; \
         correct the marker's \"value\" or the image"
    )]
    ImageMismatch { at: At, found: String, wanted: String },

    #[error(
        "{at}: {found:?} has no tag to set; write it as <repository>:<tag>, or put the promotion marker \
         behind the field that holds the tag"
    )]
    ImageWithoutTag { at: At, found: String },

    #[error(
        "{at}: {value:?} cannot be the tag of an image; put the promotion marker behind a field that holds \
         nothing but the version, or name another \"value\" in it"
    )]
    NotATag { at: At, value: String },

    #[error(
        "{at}: the file has a promotion marker and is not readable as YAML (column {column}: {message}); \
         correct it, or move the value to a file that is YAML, not a template"
    )]
    UnparsableFile { at: At, column: u32, message: String },

    #[error(
        "{at}: setting the value would change more than the value ({what}); nothing was written. This is a bug in Sluice"
    )]
    ChangedTooMuch { at: At, what: &'static str },
}

impl SetError {
    /// One word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            SetError::BadMarker { .. } => "BadMarker",
            SetError::MisplacedMarker { .. } => "MisplacedMarker",
            SetError::FlowCollection { .. } => "FlowCollection",
            SetError::Alias { .. } => "Alias",
            SetError::BlockScalar { .. } => "BlockScalar",
            SetError::MultilineScalar { .. } => "MultilineScalar",
            SetError::TaggedValue { .. } => "TaggedValue",
            SetError::AmbiguousMarker { .. } => "AmbiguousMarker",
            SetError::UnknownFacet { .. } => "UnknownFacet",
            SetError::EmptyValue { .. } => "EmptyValue",
            SetError::ImageMismatch { .. } => "ImageMismatch",
            SetError::ImageWithoutTag { .. } => "ImageWithoutTag",
            SetError::NotATag { .. } => "NotATag",
            SetError::UnparsableFile { .. } => "UnparsableFile",
            SetError::ChangedTooMuch { .. } => "ChangedTooMuch",
        }
    }

    /// Where the marker, or what is wrong with the file, is.
    pub fn at(&self) -> &At {
        match self {
            SetError::BadMarker { at, .. }
            | SetError::MisplacedMarker { at, .. }
            | SetError::FlowCollection { at }
            | SetError::Alias { at }
            | SetError::BlockScalar { at }
            | SetError::MultilineScalar { at }
            | SetError::TaggedValue { at, .. }
            | SetError::AmbiguousMarker { at, .. }
            | SetError::UnknownFacet { at, .. }
            | SetError::EmptyValue { at, .. }
            | SetError::ImageMismatch { at, .. }
            | SetError::ImageWithoutTag { at, .. }
            | SetError::NotATag { at, .. }
            | SetError::UnparsableFile { at, .. }
            | SetError::ChangedTooMuch { at, .. } => at,
        }
    }
}
