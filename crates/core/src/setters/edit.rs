//! Replaces scalars of a file: decide each new scalar, splice, read again, and refuse what would be
//! different in more than the values.

use std::ops::Range;

use granit_parser::{Event, ScalarStyle, Tag};

use super::choice::Choice;
use super::image::{self, Unfit};
use super::page::{MAX_EVENTS, Page};
use super::{Asker, At, Edited, SetError, SetValue, scalar};
use crate::revision::Revision;

/// A scalar that is replaced.
pub(super) struct Edit {
    pub event: usize,
    range: Range<usize>,
    scalar: String,
    pub value: SetValue,
}

/// What a scalar is to hold.
pub(super) struct Wish<'a> {
    pub choice: &'a Choice,
    pub revision: &'a Revision,
    pub asker: Asker,
}

/// The edit that puts what is wished for into a scalar. `flow` says that it stands within `[...]` or
/// `{...}`; `at` is where who asks for it is.
pub(super) fn replace(
    page: &Page<'_>,
    event: usize,
    flow: bool,
    wish: &Wish<'_>,
    at: &At,
) -> Result<Edit, SetError> {
    let (at, asker) = (|| at.clone(), wish.asker);
    let Some((Event::Scalar(old, style, _, tag), span)) = page.events.get(event) else {
        return Err(SetError::ChangedTooMuch { at: at(), what: "the value is no scalar" });
    };
    let Some(range) = span.byte_range() else {
        return Err(SetError::ChangedTooMuch { at: at(), what: "the value has no place" });
    };
    let raw = page.text.get(range.clone()).unwrap_or_default();
    if raw.contains(['\n', '\r']) {
        return Err(SetError::MultilineScalar { at: at(), asker });
    }
    if let Some(tag) = tag.as_deref().filter(|tag| cannot_be_a_string(tag)) {
        return Err(SetError::TaggedValue { at: at(), asker, tag: tag.original() });
    }
    let (facet, value) = wish.choice.choose(wish.revision, asker, &at())?;
    let new = image::put(old, facet, value).map_err(|unfit| match unfit {
        Unfit::OtherImage { found, wanted } => SetError::ImageMismatch { at: at(), asker, found, wanted },
        Unfit::NoTag => SetError::ImageWithoutTag { at: at(), asker, found: old.to_string() },
        Unfit::NotATag => SetError::NotATag { at: at(), asker, value: value.into() },
    })?;
    let is_string = *style != ScalarStyle::Plain || tag.is_some() || scalar::stays_plain(old, flow);
    let scalar = match *old == new && is_string {
        true => raw.into(),
        false => scalar::write(&new, *style, flow),
    };
    let value = SetValue { line: page.line(range.start), old: old.to_string(), new };
    Ok(Edit { event, range, scalar, value })
}

/// The file with these scalars replaced; one that is to hold the same by two wishes is replaced once.
pub(super) fn carry_out(path: &str, page: &Page<'_>, mut edits: Vec<Edit>) -> Result<Edited, SetError> {
    edits.sort_by_key(|edit| edit.event);
    edits.dedup_by(|a, b| a.event == b.event && a.value == b.value);
    let file = File { path, page };
    let text = splice(page.text, &edits).ok_or_else(|| file.changed("the values overlap"))?;
    file.verify(&text, &edits)?;
    Ok(Edited { text, values: edits.into_iter().map(|edit| edit.value).collect() })
}

struct File<'a, 't> {
    path: &'a str,
    page: &'a Page<'t>,
}

impl File<'_, '_> {
    fn changed(&self, what: &'static str) -> SetError {
        SetError::ChangedTooMuch { at: At { path: self.path.into(), line: 1 }, what }
    }

    /// Reads the edited text, and refuses it if anything but the set values differs from before.
    fn verify(&self, text: &str, edits: &[Edit]) -> Result<(), SetError> {
        let after = Page::parse(text, MAX_EVENTS).map_err(|_| self.changed("the file is no longer YAML"))?;
        if after.events.len() != self.page.events.len() {
            return Err(self.changed("the file has more or fewer parts"));
        }
        let mut edits = edits.iter().peekable();
        for (index, ((old, span), (new, _))) in self.page.events.iter().zip(&after.events).enumerate() {
            let differs = |what| SetError::ChangedTooMuch {
                at: self.page.at(self.path, span.byte_range().unwrap_or(0..0).start),
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
