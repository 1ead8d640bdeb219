//! Sets values by a list in the pipeline, for files without markers. Each entry of the list names a file, an object in it
//! and a field, and must mean exactly one value in each target: an entry that means no value or several is refused, with
//! what there is instead.

use std::collections::BTreeSet;

use super::edit::{self, EditedFile};
use super::limits::{MAX_UPDATE_EVENTS, MAX_VISITED_DOCUMENTS};
use super::placeholder::UpdateTarget;
use super::set_error::Location;
use super::update_entry::{Update, UpdateEntry, UpdateFile, WorkLeft};
use super::update_error::{UpdateError, near};
use crate::revision::Revision;

/// The values to set by an `update` list, with the placeholders replaced for every target.
#[derive(Clone, Debug)]
pub struct Plan {
    entries: Vec<UpdateEntry>,
}

impl Plan {
    /// Returns the values to set in all targets of an environment, or in the target `alone`.
    ///
    /// # Errors
    /// When an entry is malformed, a placeholder has no value for a target, or an entry names the same value for the
    /// target `alone` and for another one.
    pub fn new(
        updates: &[Update],
        places: &[UpdateTarget],
        only_target: Option<&str>,
    ) -> Result<Plan, UpdateError> {
        let mut entries: Vec<UpdateEntry> = Vec::new();
        let is_wanted =
            |place: &&UpdateTarget| only_target.is_none_or(|only_target| only_target == place.target);
        for (number, update) in updates.iter().enumerate() {
            for place in places.iter().filter(is_wanted) {
                let entry = UpdateEntry::new(number, update, place)?;
                let mut others = places.iter().filter(|other| !is_wanted(other));
                if let Some(other) =
                    others.find(|other| UpdateEntry::new(number, update, other).as_ref() == Ok(&entry))
                {
                    let problem = format!(
                        "it comes out the same for the targets {} and {}, and each target is promoted into by \
                         itself: use {{target}}, or another placeholder that tells them apart",
                        place.target, other.target
                    );
                    return Err(UpdateError::BadEntry { number, field: "path", problem });
                }
                // Targets with the same path share the value.
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
        Ok(Plan { entries })
    }

    /// Returns the number of values to set. Two targets whose value is at different places count as two.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the indices of the paths in a repository whose files the entries need.
    ///
    /// # Errors
    /// When an entry names no file.
    pub fn select<P: AsRef<str>>(&self, paths: &[P]) -> Result<BTreeSet<usize>, UpdateError> {
        let mut selected = BTreeSet::new();
        for entry in &self.entries {
            let means = entry.matcher();
            let matching = paths.iter().enumerate().filter(|(_, path)| means(path.as_ref()));
            let mut found = matching.map(|(at, _)| at).peekable();
            if found.peek().is_none() {
                let near = near(&entry.path, paths.iter().map(AsRef::as_ref));
                return Err(UpdateError::NoFile { entry: entry.to_string(), near });
            }
            selected.extend(found);
        }
        Ok(selected)
    }

    /// Sets the values in these files, each given with its path. Returns the edited file for each, or `None` if no entry
    /// names a value in it.
    ///
    /// # Errors
    /// When an entry names no value or several, or a value that cannot be set.
    pub fn set<P: AsRef<str>, B: AsRef<[u8]>>(
        &self,
        files: &[(P, B)],
        revision: &Revision,
    ) -> Result<Vec<Option<EditedFile>>, UpdateError> {
        let files = files.iter();
        let mut files: Vec<UpdateFile<'_>> =
            files.map(|(path, bytes)| UpdateFile::new(path.as_ref(), bytes.as_ref())).collect();
        let mut left = WorkLeft { events: MAX_UPDATE_EVENTS, documents: MAX_VISITED_DOCUMENTS };
        for entry in &self.entries {
            let (file, edit) = entry.edit(&mut files, &mut left, revision)?;
            let file = &mut files[file];
            if let Some(other) = file.edits.iter().find(|other| other.event == edit.event)
                && other.value != edit.value
            {
                let at = Location { path: file.path.into(), line: edit.value.line };
                let values = [other.value.new.clone(), edit.value.new.clone()];
                return Err(UpdateError::Contradiction { at, entry: entry.to_string(), values });
            }
            file.edits.push(edit);
        }
        let done = files.into_iter().map(|file| match file.document {
            Some(Ok(document)) if !file.edits.is_empty() => {
                edit::apply(file.path, &document, file.edits).map(Some).map_err(UpdateError::Set)
            }
            _ => Ok(None),
        });
        done.collect()
    }
}
