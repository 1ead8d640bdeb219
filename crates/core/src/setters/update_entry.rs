//! One entry of an `update` list: the files, the object and the field that it names, and the edit that follows.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::edit::{self, Edit, ScalarRequest};
use super::field::Field;
use super::limits::MAX_FILE_EVENTS;
use super::parsed_document::{DocumentObject, ParsedDocument};
use super::path_wildcards::{PathPattern, WILDCARDS};
use super::placeholder::{UpdateTarget, filled, parts};
use super::resolve::{FoundScalar, ResolveError, listed};
use super::set_error::{Asker, Location, SetError};
use super::update_error::{MAX_NAMED, UpdateError};
use crate::manifest_path::is_yaml;
use crate::revision::Revision;

/// One value to set. `path`, `name` and `field` may have the placeholders `{environment}`, `{target}`, `{cluster}` and
/// `{namespace}`. Each entry must mean exactly one value for each target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Update {
    /// The file, from the root of the repository; its name ends in `.yaml` or `.yml`. `*` and `?` stand
    /// for any part of a name, `**` for any folders.
    #[schemars(length(min = 1, max = 512))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "!self.replace('{environment}', '').replace('{target}', '').replace('{cluster}', '').replace('{namespace}', '').matches('[{}]')", "message": "a path may have the placeholders {environment}, {target}, {cluster} and {namespace}, and no other braces: write an entry for each"}]))]
    pub path: String,
    /// The kind of the Kubernetes object in the file, for example `HelmRelease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// The name of the Kubernetes object in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Where in the object the value is: `spec.chart.spec.version`,
    /// `spec.template.spec.containers[name=app].image`, `list[0]`, `["a.key"]`.
    #[schemars(length(min = 1, max = 512))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": r#"self.matches('^([^\\s.\\[\\]]+|\\[([0-9]+|[^\\s\\[\\]="\']+=[^\\[\\]]+|"[^"\\[\\]]+")\\])(\\.[^\\s.\\[\\]]+|\\[([0-9]+|[^\\s\\[\\]="\']+=[^\\[\\]]+|"[^"\\[\\]]+")\\])*$')"#, "message": "a field is a path such as spec.values.image.tag, spec.containers[name=app].image, list[0] or annotations[\"example.com/version\"]"}]))]
    pub field: String,
    /// The part of the revision that is the value: `chart`, `app`, `tag`, `digest`, `source` or
    /// `image:<repository>`. Default: the one that the pipeline tracks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self in ['chart', 'app', 'tag', 'digest', 'source'] || (self.startsWith('image:') && self.size() > 6)", "message": "value is chart, app, tag, digest, source or image:<repository>"}]))]
    pub value: Option<String>,
    /// The workload of the value, as `HelmRelease/podinfo`, if the pipeline tracks several with different values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub workload: Option<String>,
}

/// Why a file must be readable.
const NAMED: &str = "is named by an entry of update";

/// The work that may still be done for the entries of a list.
pub(super) struct WorkLeft {
    /// How many events may be read.
    pub events: usize,
    /// How many documents may be looked at.
    pub documents: usize,
}

/// One value to set, with the placeholders replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpdateEntry {
    /// The index in the pipeline's list.
    number: usize,
    pub path: String,
    pattern: PathPattern,
    /// The length of the pattern before its first wildcard.
    prefix_length: usize,
    kind: Option<String>,
    name: Option<String>,
    field: Field,
    choice: Choice,
}

/// A file of the repository that an entry names.
pub(super) struct UpdateFile<'a> {
    pub path: &'a str,
    bytes: &'a [u8],
    /// The parsed file; `None` until an entry needs it.
    pub document: Option<Result<ParsedDocument<'a>, SetError>>,
    pub edits: Vec<Edit>,
}

impl<'a> UpdateFile<'a> {
    pub(super) fn new(path: &'a str, bytes: &'a [u8]) -> Self {
        UpdateFile { path, bytes, document: None, edits: Vec::new() }
    }
}

/// An object in a file.
#[derive(Clone, Copy)]
struct FileObject {
    file: usize,
    root: usize,
}

impl UpdateEntry {
    pub(super) fn new(
        number: usize,
        update: &Update,
        place: &UpdateTarget,
    ) -> Result<UpdateEntry, UpdateError> {
        let bad = |field: &'static str, problem: String| UpdateError::BadEntry { number, field, problem };
        let (mut path, mut plain) = (String::new(), String::new());
        for part in parts(update.path.trim_start_matches("./").trim_start_matches('/')) {
            let part = part.map_err(|problem| bad("path", problem))?;
            let text = part.fill(place).map_err(|problem| bad("path", problem))?;
            // A lone brace is a plain character: `{...}` is a placeholder here, not the alternatives of a glob.
            path.push_str(&if part.is_literal() { text.replace('}', "[}]") } else { globset::escape(text) });
            plain.push_str(text);
        }
        let prefix_length = path.find(WILDCARDS).unwrap_or(path.len());
        let pattern = PathPattern::new(path).map_err(|wrong| bad("path", wrong))?;
        let name = update.name.as_deref().map(|name| filled(name, place)).transpose();
        let name = name.map_err(|problem| bad("name", problem))?;
        let field: Field = update.field.parse().map_err(|problem| bad("field", problem))?;
        let field = field.map(|text| filled(text, place)).map_err(|problem| bad("field", problem))?;
        let facet = update.value.as_deref().map(str::parse).transpose();
        let facet = facet.map_err(|wrong: crate::revision::InvalidFacet| bad("value", wrong.to_string()))?;
        let choice = Choice { facet, workload: update.workload.clone() };
        Ok(UpdateEntry {
            number,
            path: plain,
            pattern,
            prefix_length,
            kind: update.kind.clone(),
            name,
            field,
            choice,
        })
    }

    /// Returns what tells whether the entry names a file of a path.
    pub(super) fn matcher(&self) -> impl Fn(&str) -> bool {
        let prefix = self.pattern.text.get(..self.prefix_length).unwrap_or_default();
        let matches = self.pattern.matcher();
        move |path| path.starts_with(prefix) && is_yaml(path.as_bytes()) && matches(path)
    }

    fn is_pattern(&self) -> bool {
        self.prefix_length < self.pattern.text.len()
    }

    fn names_an_object(&self) -> bool {
        self.kind.is_some() || self.name.is_some()
    }

    /// Returns the edit of this entry, and the index of its file. `left` is the work that may still be done.
    pub(super) fn edit(
        &self,
        files: &mut [UpdateFile<'_>],
        left: &mut WorkLeft,
        revision: &Revision,
    ) -> Result<(usize, Edit), UpdateError> {
        let means = self.matcher();
        let meant: Vec<usize> = (0..files.len()).filter(|at| means(files[*at].path)).collect();
        for at in &meant {
            self.read(&mut files[*at], &mut left.events)?;
        }
        let files = &*files;
        for file in meant.iter().map(|at| &files[*at]) {
            let Some(Ok(document)) = &file.document else { continue };
            left.documents = left.documents.checked_sub(document.objects().len()).ok_or_else(|| {
                SetError::TooManyDocuments { at: Location { path: file.path.into(), line: 1 } }
            })?;
        }
        let objects: Vec<FileObject> = meant.iter().flat_map(|at| self.objects(files, *at)).collect();
        let (object, found) = match self.names_an_object() {
            true => {
                let object = self.only_object(files, &meant, &objects)?;
                (object, self.resolve(files, object))
            }
            false => self.only_field(files, &meant, &objects)?,
        };
        let file = &files[object.file];
        let found = found.map_err(|stop| self.stopped(file, stop))?;
        let document = self.document(file)?;
        let at = document.at(file.path, document.start(found.event));
        let request = ScalarRequest { choice: &self.choice, revision, asker: Asker::Entry };
        Ok((object.file, edit::replace(document, found.event, found.flow, &request, &at)?))
    }

    /// Parses a file. A file that is no YAML is an error if the entry names only this file, or if it has all the words of
    /// the wanted object and field.
    fn read(&self, file: &mut UpdateFile<'_>, left: &mut usize) -> Result<(), UpdateError> {
        let bytes = file.bytes;
        let document = file.document.get_or_insert_with(|| {
            let document = ParsedDocument::read(bytes, MAX_FILE_EVENTS.min(*left))
                .map_err(|unreadable| unreadable.into_set_error(file.path, NAMED))?;
            *left -= document.events.len();
            Ok(document)
        });
        let has = |word: &str| bytes.windows(word.len().max(1)).any(|window| window == word.as_bytes());
        let object = self.kind.as_deref().into_iter().chain(self.name.as_deref());
        match document {
            Err(error) if !self.is_pattern() || self.field.words().chain(object).all(has) => {
                Err(error.clone().into())
            }
            _ => Ok(()),
        }
    }

    fn document<'f, 't>(&self, file: &'f UpdateFile<'t>) -> Result<&'f ParsedDocument<'t>, UpdateError> {
        match &file.document {
            Some(Ok(document)) => Ok(document),
            Some(Err(error)) => Err(error.clone().into()),
            None => Err(UpdateError::NoFile { entry: self.to_string(), near: file.path.into() }),
        }
    }

    /// Returns the objects of a file that the entry names; all objects if it names none.
    fn objects(&self, files: &[UpdateFile<'_>], file: usize) -> Vec<FileObject> {
        let Some(Ok(document)) = &files[file].document else { return Vec::new() };
        let is_it =
            |asked: &Option<String>, found: Option<&str>| asked.is_none() || asked.as_deref() == found;
        let fits = |object: &&DocumentObject| {
            let (kind, name) = document.kind_and_name(object);
            is_it(&self.kind, kind) && is_it(&self.name, name)
        };
        let fitting = document.objects().iter().filter(fits);
        fitting.map(|object| FileObject { file, root: object.root }).collect()
    }

    fn only_object(
        &self,
        files: &[UpdateFile<'_>],
        meant: &[usize],
        objects: &[FileObject],
    ) -> Result<FileObject, UpdateError> {
        match objects {
            [one] => Ok(*one),
            [] => {
                let any = UpdateEntry { kind: None, name: None, ..self.clone() };
                let there = meant.iter().flat_map(|at| any.objects(files, *at));
                let there = there.map(|object| any.describe(files, object)).collect();
                Err(UpdateError::NoObject { entry: self.to_string(), there: listed(there, MAX_NAMED) })
            }
            several => {
                let there = several.iter().map(|object| self.describe(files, *object)).collect();
                Err(UpdateError::AmbiguousObject { entry: self.to_string(), there: listed(there, MAX_NAMED) })
            }
        }
    }

    /// Returns the only document that has the field, with the result of the search in it.
    fn only_field(
        &self,
        files: &[UpdateFile<'_>],
        meant: &[usize],
        objects: &[FileObject],
    ) -> Result<(FileObject, Result<FoundScalar, ResolveError>), UpdateError> {
        let find = |object: FileObject| match &files[object.file].document {
            Some(Ok(document)) => document.find(object.root, &self.field),
            _ => self.resolve(files, object),
        };
        let all = objects.iter().map(|object| (*object, find(*object)));
        let (missing, mut there): (Vec<_>, Vec<_>) =
            all.partition(|(_, found)| matches!(found, Err(ResolveError::Missing(..))));
        if there.len() > 1 {
            let at = |(object, found): &(FileObject, Result<FoundScalar, ResolveError>)| match found {
                Ok(found) => self.at(&files[object.file], found.event).to_string(),
                Err(_) => self.describe(files, *object),
            };
            let there = listed(there.iter().map(at).collect(), MAX_NAMED);
            return Err(UpdateError::AmbiguousField { entry: self.to_string(), there });
        }
        if let Some(one) = there.pop() {
            return Ok(one);
        }
        match (meant, missing.into_iter().next()) {
            ([_], Some((object, _))) => Ok((object, self.resolve(files, object))),
            _ => {
                let paths = meant.iter().map(|at| files[*at].path.to_string()).collect();
                let problem = format!("none of these files has it: {}", listed(paths, MAX_NAMED));
                Err(UpdateError::NoField { entry: self.to_string(), problem })
            }
        }
    }

    fn resolve(&self, files: &[UpdateFile<'_>], object: FileObject) -> Result<FoundScalar, ResolveError> {
        match &files[object.file].document {
            Some(Ok(document)) => document.resolve(object.root, &self.field),
            _ => Err(ResolveError::Missing(object.root, "the file is not readable".into())),
        }
    }

    fn at(&self, file: &UpdateFile<'_>, event: usize) -> Location {
        match &file.document {
            Some(Ok(document)) => document.at(file.path, document.start(event)),
            _ => Location { path: file.path.into(), line: 1 },
        }
    }

    fn stopped(&self, file: &UpdateFile<'_>, stop: ResolveError) -> UpdateError {
        let (entry, at) = (self.to_string(), |event| self.at(file, event));
        match stop {
            ResolveError::Missing(event, problem) => {
                UpdateError::NoField { entry, problem: format!("{}: {problem}", at(event)) }
            }
            ResolveError::Several(all) => {
                let there = all.into_iter().map(|event| at(event).to_string()).collect();
                UpdateError::AmbiguousField { entry, there: listed(there, MAX_NAMED) }
            }
            ResolveError::Alias(event) => UpdateError::Alias { at: at(event), entry },
            ResolveError::Block(event) => SetError::BlockScalar { at: at(event), asker: Asker::Entry }.into(),
            ResolveError::NotAValue(event, is) => {
                UpdateError::NotAValue { at: at(event), field: self.field.to_string(), is }
            }
        }
    }

    /// Returns the location, kind and name of an object.
    fn describe(&self, files: &[UpdateFile<'_>], object: FileObject) -> String {
        let file = &files[object.file];
        let Some(Ok(document)) = &file.document else { return file.path.into() };
        let at = document.at(file.path, document.start(object.root));
        let of = document.objects().iter().find(|one| one.root == object.root);
        match of.map(|one| document.kind_and_name(one)).unwrap_or_default() {
            (None, None) => format!("{at} (no object)"),
            (kind, name) => format!("{at} ({}/{})", kind.unwrap_or("?"), name.unwrap_or("?")),
        }
    }
}

/// Writes the index in the list, and what the entry names.
impl fmt::Display for UpdateEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "update[{}] ({} of ", self.number, self.field)?;
        match (&self.kind, &self.name) {
            (Some(kind), Some(name)) => write!(f, "{kind}/{name} in ")?,
            (Some(kind), None) => write!(f, "any {kind} in ")?,
            (None, Some(name)) => write!(f, "any {name} in ")?,
            (None, None) => {}
        }
        write!(f, "{})", self.path)
    }
}
