//! Sets the values of one file: find the markers, decide each new scalar, splice, read again.

use std::ops::Range;

use granit_parser::{Event, ScalarStyle, Tag};

use super::image::{self, Unfit};
use super::marker::{self, Marker, Reading};
use super::page::{self, Before, Page};
use super::{At, Edited, NEEDLE, SetError, SetValue, Wanted, scalar};

/// A scalar that is replaced.
struct Edit {
    event: usize,
    range: Range<usize>,
    scalar: String,
    value: SetValue,
}

/// Sets the values of one file that have a marker of the wanted environment (and target). `None`:
/// there is no such marker. `path` is for messages only.
pub fn set(path: &str, bytes: &[u8], wanted: &Wanted<'_>) -> Result<Option<Edited>, SetError> {
    let name = wanted.name();
    if !super::mentions(bytes) || !contains(bytes, name.as_bytes()) {
        return Ok(None);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return unreadable(path, bytes, &name, error.valid_up_to(), "it is not UTF-8"),
    };
    let page = match Page::parse(text) {
        Ok(page) => page,
        Err(error) => {
            let at = error.marker().byte_offset().unwrap_or_default();
            return unreadable(path, bytes, &name, at, &error.info());
        }
    };
    let file = File { path, name: &name, wanted, page: &page };
    file.refuse_markers_within_scalars()?;
    let edits = page.comments().filter_map(|(comment, range)| file.edit(comment, range).transpose());
    let mut edits = edits.collect::<Result<Vec<_>, _>>()?;
    if edits.is_empty() {
        return Ok(None);
    }
    edits.sort_by_key(|edit| edit.range.start);
    let text = splice(text, &edits).ok_or_else(|| file.changed("the values overlap"))?;
    file.verify(&text, &edits)?;
    Ok(Some(Edited { text, values: edits.into_iter().map(|edit| edit.value).collect() }))
}

/// A file that cannot be read matters only when it has a marker of ours.
fn unreadable(
    path: &str,
    bytes: &[u8],
    name: &str,
    at: usize,
    message: &str,
) -> Result<Option<Edited>, SetError> {
    let text = String::from_utf8_lossy(bytes);
    let marked = text.split(['\n', '\r']).any(|line| {
        let own_line = line.trim_start().strip_prefix('#').map(str::trim_start);
        line.contains(NEEDLE)
            && marker::names(line, name)
            && own_line.is_none_or(|comment| comment.starts_with('{'))
    });
    if !marked {
        return Ok(None);
    }
    let line_starts = page::line_starts(bytes);
    let line = page::line(&line_starts, at);
    let line_start = line_starts.iter().rfind(|start| **start <= at).copied().unwrap_or_default();
    let before = bytes.get(line_start..at).unwrap_or_default();
    let column = String::from_utf8_lossy(before).chars().count() + 1;
    Err(SetError::UnparsableFile {
        at: At { path: path.into(), line },
        column: u32::try_from(column).unwrap_or(u32::MAX),
        message: message.into(),
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
        At { path: self.path.into(), line: self.page.line(byte) }
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
                        true => SetError::BlockScalar { at },
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
        let misplaced = |place| SetError::MisplacedMarker { at: at.clone(), place };
        Err(match before {
            Before::Value { event, flow } => return self.replace(event, flow, &marker, at).map(Some),
            Before::BlockScalar => SetError::BlockScalar { at },
            Before::Alias => SetError::Alias { at },
            Before::Flow => SetError::FlowCollection { at },
            Before::Nothing => misplaced("on a line of its own"),
            Before::Key => misplaced("behind a key that has no value on this line"),
            Before::Syntax => misplaced("on a line without a value"),
        })
    }

    fn replace(&self, event: usize, flow: bool, marker: &Marker, at: At) -> Result<Edit, SetError> {
        let Some((Event::Scalar(old, style, _, tag), span)) = self.page.events.get(event) else {
            return Err(SetError::ChangedTooMuch { at, what: "the value is no scalar" });
        };
        let Some(range) = span.byte_range() else {
            return Err(SetError::ChangedTooMuch { at, what: "the value has no place" });
        };
        let raw = self.page.text.get(range.clone()).unwrap_or_default();
        if raw.contains(['\n', '\r']) {
            return Err(SetError::MultilineScalar { at });
        }
        if let Some(tag) = tag.as_deref().filter(|tag| cannot_be_a_string(tag)) {
            return Err(SetError::TaggedValue { at, tag: tag.original() });
        }
        let (facet, value) = marker.choose(self.wanted.revision, &at, self.name)?;
        let new = image::put(old, facet, value).map_err(|unfit| match unfit {
            Unfit::OtherImage { found, wanted } => SetError::ImageMismatch { at: at.clone(), found, wanted },
            Unfit::NoTag => SetError::ImageWithoutTag { at: at.clone(), found: old.to_string() },
            Unfit::NotATag => SetError::NotATag { at: at.clone(), value: value.into() },
        })?;
        let is_string = *style != ScalarStyle::Plain || tag.is_some() || scalar::stays_plain(old, flow);
        let scalar = match *old == new && is_string {
            true => raw.into(),
            false => scalar::write(&new, *style, flow),
        };
        let value = SetValue { line: self.page.line(range.start), old: old.to_string(), new };
        Ok(Edit { event, range, scalar, value })
    }

    fn changed(&self, what: &'static str) -> SetError {
        SetError::ChangedTooMuch { at: At { path: self.path.into(), line: 1 }, what }
    }

    /// Reads the edited text, and refuses it if anything but the set values differs from before.
    fn verify(&self, text: &str, edits: &[Edit]) -> Result<(), SetError> {
        let after = Page::parse(text).map_err(|_| self.changed("the file is no longer YAML"))?;
        if after.events.len() != self.page.events.len() {
            return Err(self.changed("the file has more or fewer parts"));
        }
        let mut edits = edits.iter().peekable();
        for (index, ((old, span), (new, _))) in self.page.events.iter().zip(&after.events).enumerate() {
            let differs = |what| SetError::ChangedTooMuch {
                at: self.at(span.byte_range().unwrap_or(0..0).start),
                what,
            };
            let Some(edit) = edits.next_if(|edit| edit.event == index) else {
                if old != new {
                    return Err(differs("something else became different"));
                }
                continue;
            };
            let (Event::Scalar(_, was, anchor, tag), Event::Scalar(value, style, anchor_after, tag_after)) =
                (old, new)
            else {
                return Err(differs("the value is no scalar"));
            };
            if *value != edit.value.new
                || (anchor, tag) != (anchor_after, tag_after)
                || (style != was && *style != ScalarStyle::DoubleQuoted)
            {
                return Err(differs("the value is not read back"));
            }
        }
        match edits.next() {
            None => Ok(()),
            Some(_) => Err(self.changed("the values are not in the order of the file")),
        }
    }
}

/// Tags that say that the value is something else than a string. `!!str`, `!` and an application's
/// own tags do not.
fn cannot_be_a_string(tag: &Tag) -> bool {
    let (handle, suffix) = tag.parts();
    let full = format!("{handle}{suffix}");
    full.strip_prefix("tag:yaml.org,2002:").is_some_and(|kind| kind != "str")
}

fn splice(text: &str, edits: &[Edit]) -> Option<String> {
    let longer = edits.iter().map(|edit| edit.scalar.len()).sum::<usize>();
    let mut out = String::with_capacity(text.len() + longer);
    let mut done = 0;
    for edit in edits {
        out.push_str(text.get(done..edit.range.start)?);
        out.push_str(&edit.scalar);
        done = edit.range.end;
    }
    out.push_str(text.get(done..)?);
    Some(out)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}
