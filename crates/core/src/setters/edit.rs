//! Replaces scalars of a file: computes each new scalar, splices it in, parses the result, and refuses an edit that
//! changes more than the values.

use std::collections::BTreeSet;
use std::ops::Range;

use granit_parser::{Event, ScalarStyle, Tag};

use super::choice::Choice;
use super::image::{self, ImageError};
use super::limits::MAX_FILE_EVENTS;
use super::parsed_document::{ParsedDocument, events_of};
use super::scalar;
use super::set_error::{Asker, Location, SetError};
use crate::revision::{Facet, FacetKey, Revision};

/// A file after an edit, and the values that were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedFile {
    /// The whole text. It equals the original text if every value was set already.
    pub text: String,
    /// One value for each marker or entry of `update`, in the order of the file.
    pub values: Vec<SetValue>,
}

/// One value that an edit set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    /// The line of the value, from 1.
    pub line: u32,
    /// The value before the edit, without quotes.
    pub old: String,
    /// The value after the edit, without quotes.
    pub new: String,
}

/// The replacement of a scalar.
pub(super) struct Edit {
    pub event: usize,
    range: Range<usize>,
    scalar: String,
    pub value: SetValue,
}

impl Edit {
    /// Checks that the new event has the value, and that only the value is new.
    fn check(&self, old: &Event<'_>, new: &Event<'_>) -> Result<(), &'static str> {
        let (Event::Scalar(_, was, anchor, tag), Event::Scalar(value, style, anchor_after, tag_after)) =
            (old, new)
        else {
            return Err("the value is no scalar");
        };
        let keeps_style = style == was || *style == ScalarStyle::DoubleQuoted;
        if *value == self.value.new && (anchor, tag) == (anchor_after, tag_after) && keeps_style {
            Ok(())
        } else {
            Err("the value is not read back")
        }
    }
}

/// The value to write into a scalar.
pub(super) struct ScalarRequest<'a> {
    pub choice: &'a Choice,
    pub revision: &'a Revision,
    pub asker: Asker,
}

/// Returns the edit that writes the requested value into a scalar. `flow` is true within `[...]` or `{...}`; `at` is the
/// location of the marker, or of the value for an entry of `update`.
pub(super) fn replace(
    document: &ParsedDocument<'_>,
    event: usize,
    flow: bool,
    request: &ScalarRequest<'_>,
    at: &Location,
) -> Result<Edit, SetError> {
    let (at, asker) = (|| at.clone(), request.asker);
    let Some((Event::Scalar(old, style, _, tag), span)) = document.events.get(event) else {
        return Err(SetError::ChangedTooMuch { at: at(), what: "the value is no scalar" });
    };
    let Some(range) = span.byte_range() else {
        return Err(SetError::ChangedTooMuch { at: at(), what: "the value has no place" });
    };
    let raw = document.text.get(range.clone()).unwrap_or_default();
    if raw.contains(['\n', '\r']) {
        return Err(SetError::MultilineScalar { at: at(), asker });
    }
    if let Some(tag) = tag.as_deref().filter(|tag| cannot_be_a_string(tag)) {
        return Err(SetError::TaggedValue { at: at(), asker, tag: tag.original() });
    }
    let (facet, value) = choose(request.choice, request.revision, asker, &at())?;
    let new = image::put(old, facet, value).map_err(|unfit| match unfit {
        ImageError::OtherImage { wanted } => SetError::ImageMismatch { at: at(), asker, wanted },
        ImageError::NoTag => SetError::ImageWithoutTag { at: at(), asker },
        ImageError::NotATag => SetError::NotATag { at: at(), asker, value: value.into() },
    })?;
    let is_string = *style != ScalarStyle::Plain || tag.is_some() || scalar::stays_plain(old, flow);
    let scalar = match *old == new && is_string {
        true => raw.into(),
        false => scalar::write(&new, *style, flow),
    };
    let value = SetValue { line: document.line(range.start), old: old.to_string(), new };
    Ok(Edit { event, range, scalar, value })
}

/// Returns the facet of a revision that is chosen, and its value.
fn choose<'r>(
    choice: &Choice,
    revision: &'r Revision,
    asker: Asker,
    at: &Location,
) -> Result<(&'r Facet, &'r str), SetError> {
    let fits = |key: &FacetKey| {
        choice.facet.as_ref().is_none_or(|facet| *facet == key.facet)
            && choice.workload.as_ref().is_none_or(|w| *w == format!("{}/{}", key.kind, key.name))
    };
    let found: Vec<_> = revision.facets().filter(|(key, _)| fits(key)).collect();
    let at = || at.clone();
    let Some(&(first, value)) = found.first() else {
        let has = revision.facets().map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(", ");
        return Err(SetError::UnknownFacet { at: at(), asker, choice: choice.clone(), has });
    };
    let facets: BTreeSet<String> = found.iter().map(|(key, _)| format!("\"{}\"", key.facet)).collect();
    if facets.len() > 1 {
        let choices = facets.into_iter().collect::<Vec<_>>().join(", ");
        return Err(SetError::AmbiguousValue { at: at(), asker, key: "value", choices });
    }
    if found.iter().any(|(_, other)| *other != value) {
        let named = |(key, value): &(&FacetKey, &str)| format!("\"{}/{}\" ({value})", key.kind, key.name);
        let choices = found.iter().map(named).collect::<Vec<_>>().join(", ");
        return Err(SetError::AmbiguousValue { at: at(), asker, key: "workload", choices });
    }
    if value.is_empty() {
        return Err(SetError::EmptyValue { at: at(), facet: first.facet.to_string() });
    }
    // The tags of containers that run different ones, joined.
    if matches!(first.facet, Facet::Image(_)) && value.contains(',') {
        let facet = first.facet.to_string();
        return Err(SetError::SeveralTags { at: at(), asker, facet, tags: value.into() });
    }
    Ok((&first.facet, value))
}

/// Returns the file with these scalars replaced. A scalar for which two edits have the same value is replaced once.
pub(super) fn apply(
    path: &str,
    document: &ParsedDocument<'_>,
    mut edits: Vec<Edit>,
) -> Result<EditedFile, SetError> {
    edits.sort_by_key(|edit| edit.event);
    edits.dedup_by(|a, b| a.event == b.event && a.value == b.value);
    let file = DocumentAtPath { path, document };
    let text = splice(document.text, &edits).ok_or_else(|| file.changed("the values overlap"))?;
    file.verify(&text, &edits)?;
    Ok(EditedFile { text, values: edits.into_iter().map(|edit| edit.value).collect() })
}

struct DocumentAtPath<'a, 't> {
    path: &'a str,
    document: &'a ParsedDocument<'t>,
}

impl DocumentAtPath<'_, '_> {
    fn changed(&self, what: &'static str) -> SetError {
        SetError::ChangedTooMuch { at: Location { path: self.path.into(), line: 1 }, what }
    }

    /// Reads the edited text, and refuses it if anything but the set values differs from the original. The events of the
    /// edited text are not kept: those of both texts would take twice the memory.
    fn verify(&self, text: &str, edits: &[Edit]) -> Result<(), SetError> {
        let mut after = events_of(text, MAX_FILE_EVENTS);
        let mut edits = edits.iter().peekable();
        for (index, (old, span)) in self.document.events.iter().enumerate() {
            let new = match after.next() {
                Some(Ok((new, _))) => new,
                Some(Err(_)) => return Err(self.changed("the file is no longer YAML")),
                None => return Err(self.changed("the file has fewer parts")),
            };
            let what = match edits.next_if(|edit| edit.event == index) {
                Some(edit) => edit.check(old, &new),
                None if *old == new => Ok(()),
                None => Err("something else became different"),
            };
            what.map_err(|what| SetError::ChangedTooMuch {
                at: self.document.at(self.path, span.byte_range().unwrap_or(0..0).start),
                what,
            })?;
        }
        if after.next().is_some() {
            return Err(self.changed("the file has more parts"));
        }
        match edits.next() {
            None => Ok(()),
            Some(_) => Err(self.changed("the values are not in the order of the file")),
        }
    }
}

/// Returns true for tags of YAML's types other than string. `!!str`, `!` and an application's own tags are not such
/// tags.
fn cannot_be_a_string(tag: &Tag) -> bool {
    let (handle, suffix) = tag.parts();
    let full = format!("{handle}{suffix}");
    full.strip_prefix("tag:yaml.org,2002:").is_some_and(|kind| kind != "str")
}

/// Returns the text with the edits, or `None` if they overlap.
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
