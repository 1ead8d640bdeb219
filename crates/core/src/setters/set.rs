//! Sets the values of one file that have a marker: at the end of the value's line, or alone on the line above,
//! where the predecessor took it too.

use std::ops::Range;

use super::edit::{self, Edit, Wish};
use super::marker::{self, Marker, Reading};
use super::page::{Before, Below, MAX_EVENTS, Page};
use super::{Asker, At, Edited, NEEDLE, SetError, Wanted};

/// The most values that are set in one file.
const MAX_VALUES: usize = 1_000;

/// Sets the values of one file that have a marker of the wanted environment (and target). `None`:
/// there is no such marker. `path` is for messages only.
pub fn set(path: &str, bytes: &[u8], wanted: &Wanted<'_>) -> Result<Option<Edited>, SetError> {
    let name = wanted.name();
    if !super::mentions(bytes) || !contains(bytes, name.as_bytes()) {
        return Ok(None);
    }
    let page = match Page::read(bytes, MAX_EVENTS) {
        Ok(page) => page,
        Err(_) if !is_marked(bytes, &name) => return Ok(None),
        Err(unreadable) => return Err(unreadable.of(path, "has a promotion marker")),
    };
    let file = File { path, name: &name, wanted, page: &page };
    file.refuse_markers_within_scalars()?;
    let mut edits: Vec<Edit> = Vec::new();
    let mut lines: Vec<u32> = Vec::new();
    for (comment, range) in page.comments() {
        let line = page.line(range.start);
        let Some(edit) = file.edit(comment, range)? else { continue };
        if let Some(other) = edits.iter().position(|other| other.event == edit.event) {
            let at = At { path: path.into(), line: edit.value.line };
            return Err(SetError::TwoMarkers { at, first: lines[other], second: line });
        }
        if edits.len() == MAX_VALUES {
            return Err(SetError::TooManyMarkers { at: At { path: path.into(), line }, max: MAX_VALUES });
        }
        edits.push(edit);
        lines.push(line);
    }
    if edits.is_empty() {
        return Ok(None);
    }
    edit::carry_out(path, &page, edits).map(Some)
}

/// Whether a file that cannot be read has a marker of ours: only then it matters.
fn is_marked(bytes: &[u8], name: &str) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.split(['\n', '\r']).any(|line| {
        let own_line = line.trim_start().strip_prefix('#').map(str::trim_start);
        line.contains(NEEDLE)
            && marker::names(line, name)
            && own_line.is_none_or(|comment| comment.starts_with('{'))
    })
}

struct File<'a, 't> {
    path: &'a str,
    name: &'a str,
    wanted: &'a Wanted<'a>,
    page: &'a Page<'t>,
}

impl File<'_, '_> {
    fn at(&self, byte: usize) -> At {
        self.page.at(self.path, byte)
    }

    fn is_for_us(&self, marker: &Marker) -> bool {
        match (self.wanted.target, &marker.target) {
            (Some(wanted), Some(target)) => wanted == target,
            _ => true,
        }
    }

    /// YAML within the text of a block scalar (a ConfigMap's `values.yaml: |`) is out of reach, and a
    /// `#` without a space before it begins no comment: markers that would be passed over in silence.
    fn refuse_markers_within_scalars(&self) -> Result<(), SetError> {
        for (comment, byte, block) in self.page.comments_in_scalars() {
            match marker::read(comment, self.name) {
                Reading::Ours(marker) if self.is_for_us(&marker) => {
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

    fn bad(&self, at: At, problem: String) -> SetError {
        SetError::BadMarker { at, problem, instead: format!("{{\"{NEEDLE}\": \"{}\"}}", self.name) }
    }

    /// What one comment wants done; nothing where it is no marker of ours.
    fn edit(&self, comment: &str, range: Range<usize>) -> Result<Option<Edit>, SetError> {
        let reading = marker::read(comment, self.name);
        if reading == Reading::NotOurs {
            return Ok(None);
        }
        let before = self.page.before(range.start);
        // A line that is commented out, marker and all, or a text about markers.
        if before == Before::Nothing && !comment.trim_start().starts_with('{') {
            return Ok(None);
        }
        let at = self.at(range.start);
        let marker = match reading {
            Reading::Ours(marker) if self.is_for_us(&marker) => marker,
            Reading::Bad(problem) => return Err(self.bad(at, problem)),
            _ => return Ok(None),
        };
        if let (Some(target), None) = (self.wanted.target, &marker.target) {
            let problem = "names no target, and each target is promoted into by itself".into();
            let instead = format!("{{\"{NEEDLE}\": \"{}\", \"target\": \"{target}\"}}", self.name);
            return Err(SetError::BadMarker { at, problem, instead });
        }
        match self.value(before, range) {
            Ok((event, flow)) => {
                let choice = marker.choice(self.wanted.revision, &at, self.name)?;
                let wish = Wish { choice: &choice, revision: self.wanted.revision, asker: Asker::Marker };
                edit::replace(self.page, event, flow, &wish, &at).map(Some)
            }
            Err(NoValue::BlockScalar) => Err(SetError::BlockScalar { at, asker: Asker::Marker }),
            Err(NoValue::Alias) => Err(SetError::Alias { at }),
            Err(NoValue::Flow) => Err(SetError::FlowCollection { at }),
            Err(NoValue::Misplaced(place)) => Err(SetError::MisplacedMarker { at, place }),
        }
    }

    /// Returns the value that the comment at these bytes means, and whether it is within `[...]` or `{...}`.
    fn value(&self, before: Before, comment: Range<usize>) -> Result<(usize, bool), NoValue> {
        match before {
            Before::Value { event, flow } => Ok((event, flow)),
            Before::BlockScalar => Err(NoValue::BlockScalar),
            Before::Alias => Err(NoValue::Alias),
            Before::Flow => Err(NoValue::Flow),
            Before::Key => Err(NoValue::Misplaced("behind a key that has no value on this line")),
            Before::Syntax => Err(NoValue::Misplaced("on a line without a value")),
            Before::Nothing => match self.page.below(comment) {
                Below::Value(event) => Ok((event, false)),
                Below::BlockScalar => Err(NoValue::BlockScalar),
                Below::Alias => Err(NoValue::Alias),
                Below::Flow => Err(NoValue::Flow),
                Below::Other(place) => Err(NoValue::Misplaced(place)),
            },
        }
    }
}

/// Why a comment means no value.
enum NoValue {
    BlockScalar,
    Alias,
    Flow,
    /// Where the comment stands.
    Misplaced(&'static str),
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}
