//! Sets the values of a file that have a marker at the end of their line, or alone on the line above, as in the
//! predecessor.

use std::ops::Range;

use super::edit::{self, Edit, EditedFile, ScalarRequest};
use super::limits::MAX_FILE_EVENTS;
use super::marker::{self, MARKER_KEY, Marker, MarkerComment, mentions};
use super::marker_place::Beside;
use super::parsed_document::ParsedDocument;
use super::set_error::{Asker, Location, SetError};
use crate::revision::Revision;

/// The markers to set: those of an environment of a pipeline, for all its targets or for one.
#[derive(Clone, Copy, Debug)]
pub struct MarkerRequest<'a> {
    /// The pipeline's namespace.
    pub namespace: &'a str,
    /// The pipeline's name.
    pub pipeline: &'a str,
    /// The environment that the revision goes into.
    pub environment: &'a str,
    /// The only target to set. Every marker then has to name its target.
    pub target: Option<&'a str>,
    /// The values to write.
    pub revision: &'a Revision,
}

impl MarkerRequest<'_> {
    /// Returns the value of the marker's key: `namespace:pipeline:environment`.
    pub fn name(&self) -> String {
        format!("{}:{}:{}", self.namespace, self.pipeline, self.environment)
    }
}

/// The most values that are set in one file.
const MAX_VALUES: usize = 1_000;

/// Sets the values of one file that have a marker of the requested environment and target. Returns `None` if there is no
/// such marker. `path` is for messages only.
///
/// # Errors
/// When a marker is malformed or misplaced, or a value cannot be set.
pub fn set_marked(
    path: &str,
    bytes: &[u8],
    wanted: &MarkerRequest<'_>,
) -> Result<Option<EditedFile>, SetError> {
    let name = wanted.name();
    if !mentions(bytes) || !contains(bytes, name.as_bytes()) {
        return Ok(None);
    }
    let document = match ParsedDocument::read(bytes, MAX_FILE_EVENTS) {
        Ok(document) => document,
        Err(_) if !is_marked(bytes, &name) => return Ok(None),
        Err(unreadable) => return Err(unreadable.into_set_error(path, "has a promotion marker")),
    };
    let file = MarkedFile { path, name: &name, wanted, document: &document };
    file.refuse_markers_within_scalars()?;
    let mut edits: Vec<Edit> = Vec::new();
    let mut lines: Vec<u32> = Vec::new();
    for (comment, range) in document.comments() {
        let line = document.line(range.start);
        let Some(edit) = file.edit(comment, range)? else { continue };
        if let Some(other) = edits.iter().position(|other| other.event == edit.event) {
            let at = Location { path: path.into(), line: edit.value.line };
            return Err(SetError::TwoMarkers { at, first: lines[other], second: line });
        }
        if edits.len() == MAX_VALUES {
            return Err(SetError::TooManyMarkers {
                at: Location { path: path.into(), line },
                max: MAX_VALUES,
            });
        }
        edits.push(edit);
        lines.push(line);
    }
    if edits.is_empty() {
        return Ok(None);
    }
    edit::apply(path, &document, edits).map(Some)
}

/// Returns true if a file that cannot be parsed may have a marker of the environment. Only then it is an error.
fn is_marked(bytes: &[u8], name: &str) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.split(['\n', '\r']).any(|line| {
        let own_line = line.trim_start().strip_prefix('#').map(str::trim_start);
        line.contains(MARKER_KEY)
            && marker::names(line, name)
            && own_line.is_none_or(|comment| comment.starts_with('{'))
    })
}

struct MarkedFile<'a, 't> {
    path: &'a str,
    name: &'a str,
    wanted: &'a MarkerRequest<'a>,
    document: &'a ParsedDocument<'t>,
}

impl MarkedFile<'_, '_> {
    fn at(&self, byte: usize) -> Location {
        self.document.at(self.path, byte)
    }

    fn is_for_target(&self, marker: &Marker) -> bool {
        match (self.wanted.target, &marker.target) {
            (Some(wanted), Some(target)) => wanted == target,
            _ => true,
        }
    }

    /// Refuses markers that would be ignored silently: within the text of a block scalar (a ConfigMap's `values.yaml: |`),
    /// which is not edited, and after a `#` without a space before it, which begins no comment.
    fn refuse_markers_within_scalars(&self) -> Result<(), SetError> {
        for (comment, byte, block) in self.document.comments_in_scalars() {
            match marker::read(comment, self.name) {
                MarkerComment::Marker(marker) if self.is_for_target(&marker) => {
                    let at = self.at(byte);
                    return Err(match block {
                        true => SetError::BlockScalar { at, asker: Asker::Marker },
                        false => {
                            self.bad(at, "is part of the value, for want of a space before the #".into())
                        }
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn bad(&self, at: Location, problem: String) -> SetError {
        SetError::BadMarker { at, problem, instead: format!("{{\"{MARKER_KEY}\": \"{}\"}}", self.name) }
    }

    /// Returns the edit for one comment, or `None` if it is no marker of the environment and target.
    fn edit(&self, comment: &str, range: Range<usize>) -> Result<Option<Edit>, SetError> {
        let reading = marker::read(comment, self.name);
        if reading == MarkerComment::Other {
            return Ok(None);
        }
        let before = self.document.before(range.start);
        // A line that is commented out with its marker, or a text about markers.
        if before.is_none() && !comment.trim_start().starts_with('{') {
            return Ok(None);
        }
        let at = self.at(range.start);
        let marker = match reading {
            MarkerComment::Marker(marker) if self.is_for_target(&marker) => marker,
            MarkerComment::Malformed(problem) => return Err(self.bad(at, problem)),
            _ => return Ok(None),
        };
        if let (Some(target), None) = (self.wanted.target, &marker.target) {
            let problem = "names no target, and each target is promoted into separately".into();
            let instead = format!("{{\"{MARKER_KEY}\": \"{}\", \"target\": \"{target}\"}}", self.name);
            return Err(SetError::BadMarker { at, problem, instead });
        }
        match before.unwrap_or_else(|| self.document.below(range)) {
            Beside::Value { event, flow } => {
                let choice = marker.choice(self.wanted.revision, &at, self.name)?;
                let request =
                    ScalarRequest { choice: &choice, revision: self.wanted.revision, asker: Asker::Marker };
                edit::replace(self.document, event, flow, &request, &at).map(Some)
            }
            Beside::BlockScalar => Err(SetError::BlockScalar { at, asker: Asker::Marker }),
            Beside::Alias => Err(SetError::Alias { at }),
            Beside::Flow => Err(SetError::FlowCollection { at }),
            Beside::Other(place) => Err(SetError::MisplacedMarker { at, place }),
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}
