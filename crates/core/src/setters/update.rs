//! Sets values by a list in the pipeline, for files without markers: which file, which object in it,
//! which field. Each entry means exactly one value in each target: what is missing or could be
//! several is refused, with what there is instead. What was not meant is never set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use super::choice::Choice;
use super::document::{Found, Stop, listed};
use super::edit::{self, Edit, Wish};
use super::field::Field;
use super::page::{MAX_EVENTS, Page};
use super::update_error::UpdateError;
use super::{Asker, At, Edited, SetError};
use crate::revision::Revision;

/// One entry of a pipeline's `update` list, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// The file, from the root of the repository; `*`, `?`, `[...]` and `**` are patterns.
    pub path: String,
    /// The kind of the object in the file.
    pub kind: Option<String>,
    /// The name of the object in the file.
    pub name: Option<String>,
    /// Where in the object the value is.
    pub field: String,
    /// Which facet of the revision is the value.
    pub value: Option<String>,
    /// Of which workload, as `kind/name`.
    pub workload: Option<String>,
}

/// A target, as far as the placeholders of `update` name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// `{environment}`.
    pub environment: String,
    /// `{target}`.
    pub target: String,
    /// `{cluster}`; `None` for the cluster that holds the Pipeline, which has no name.
    pub cluster: Option<String>,
    /// `{namespace}`.
    pub namespace: String,
}

/// A list of values to set, its placeholders filled in for every target.
#[derive(Clone, Debug)]
pub struct Plan {
    entries: Vec<Entry>,
}

/// One value to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its place in the pipeline's list, from 0.
    number: usize,
    path: String,
    pattern: Pattern,
    /// What a path has to begin with to match.
    begin: usize,
    kind: Option<String>,
    name: Option<String>,
    field: Field,
    choice: Choice,
}

/// A file that entries may mean something in.
struct File<'a> {
    path: &'a str,
    bytes: &'a [u8],
    /// Read when an entry asks for it first.
    page: Option<Result<Page<'a>, SetError>>,
    edits: Vec<Edit>,
}

impl<'a> File<'a> {
    fn new(path: &'a str, bytes: &'a [u8]) -> Self {
        File { path, bytes, page: None, edits: Vec::new() }
    }
}

/// An object in a file.
#[derive(Clone, Copy)]
struct Spot {
    file: usize,
    root: usize,
}

/// What makes a path a pattern.
const WILD: [char; 3] = ['*', '?', '['];

/// A pattern of paths: `*` and `?` match no `/`, `**/` matches folders. Matching takes time in proportion to the
/// length of the path, whatever the pattern is.
#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    /// `None` for a plain path, which is most of them: a matcher takes a while to make.
    matcher: Option<GlobMatcher>,
}

impl Pattern {
    fn new(text: String) -> Result<Pattern, String> {
        if !text.contains(WILD) {
            return Ok(Pattern { text, matcher: None });
        }
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(false).build();
        let matcher = glob.map_err(|wrong| wrong.kind().to_string())?.compile_matcher();
        Ok(Pattern { text, matcher: Some(matcher) })
    }

    fn matches(&self, path: &str) -> bool {
        self.matcher.as_ref().map_or(self.text == path, |matcher| matcher.is_match(path))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

/// The most parser events that are read of all files together: they are kept until the values are set.
pub(super) const MAX_TOGETHER: usize = 500_000;

/// So many files, objects or values are named in a message.
const NAMED: usize = 6;

impl Plan {
    /// The values to set in the targets of one environment: in these places all, or in that of one
    /// target alone.
    ///
    /// # Errors
    /// When an entry cannot be understood, a placeholder has no value for a target, or what is meant for
    /// a target alone is also another's.
    pub fn new(updates: &[Update], places: &[Place], alone: Option<&str>) -> Result<Plan, UpdateError> {
        let mut entries: Vec<Entry> = Vec::new();
        let is_wanted = |place: &&Place| alone.is_none_or(|alone| alone == place.target);
        for (number, update) in updates.iter().enumerate() {
            for place in places.iter().filter(is_wanted) {
                let entry = Entry::new(number, update, place)?;
                let mut others = places.iter().filter(|other| !is_wanted(other));
                if let Some(other) =
                    others.find(|other| Entry::new(number, update, other).as_ref() == Ok(&entry))
                {
                    let problem = format!(
                        "it comes out the same for the targets {} and {}, and each target is promoted into by \
                         itself: use {{target}}, or another placeholder that tells them apart",
                        place.target, other.target
                    );
                    return Err(UpdateError::BadEntry { number, field: "path", problem });
                }
                // Targets that a path does not tell apart share the value.
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
        Ok(Plan { entries })
    }

    /// Which of these paths of a repository are to be read.
    ///
    /// # Errors
    /// When an entry means no file at all.
    pub fn select<P: AsRef<str>>(&self, paths: &[P]) -> Result<BTreeSet<usize>, UpdateError> {
        let mut selected = BTreeSet::new();
        for entry in &self.entries {
            let matching = paths.iter().enumerate().filter(|(_, path)| entry.means(path.as_ref()));
            let mut found = matching.map(|(at, _)| at).peekable();
            if found.peek().is_none() {
                let near = near(&entry.path, paths.iter().map(AsRef::as_ref));
                return Err(UpdateError::NoFile { entry: entry.to_string(), near });
            }
            selected.extend(found);
        }
        Ok(selected)
    }

    /// Sets the values in these files, each with its path; for each file what became of it, `None`
    /// for one in which nothing is meant.
    ///
    /// # Errors
    /// When an entry means no value or several, or one that cannot be set.
    pub fn set<P: AsRef<str>, B: AsRef<[u8]>>(
        &self,
        files: &[(P, B)],
        revision: &Revision,
    ) -> Result<Vec<Option<Edited>>, UpdateError> {
        let files = files.iter();
        let mut files: Vec<File<'_>> =
            files.map(|(path, bytes)| File::new(path.as_ref(), bytes.as_ref())).collect();
        let mut left = MAX_TOGETHER;
        for entry in &self.entries {
            let (file, edit) = entry.edit(&mut files, &mut left, revision)?;
            let file = &mut files[file];
            if let Some(other) = file.edits.iter().find(|other| other.event == edit.event)
                && other.value != edit.value
            {
                let at = At { path: file.path.into(), line: edit.value.line };
                let values = [other.value.new.clone(), edit.value.new.clone()];
                return Err(UpdateError::Contradiction { at, entry: entry.to_string(), values });
            }
            file.edits.push(edit);
        }
        let done = files.into_iter().map(|file| match file.page {
            Some(Ok(page)) if !file.edits.is_empty() => {
                edit::carry_out(file.path, &page, file.edits).map(Some).map_err(UpdateError::Set)
            }
            _ => Ok(None),
        });
        done.collect()
    }
}

impl Entry {
    fn new(number: usize, update: &Update, place: &Place) -> Result<Entry, UpdateError> {
        let bad = |field: &'static str, problem: String| UpdateError::BadEntry { number, field, problem };
        let (mut path, mut plain) = (String::new(), String::new());
        for part in parts(update.path.trim_start_matches("./").trim_start_matches('/')) {
            let part = part.map_err(|problem| bad("path", problem))?;
            let text = part.fill(place).map_err(|problem| bad("path", problem))?;
            // A lone brace is no more than that: alternatives would be placeholders here.
            path.push_str(&if part.is_literal() { text.replace('}', "[}]") } else { globset::escape(text) });
            plain.push_str(text);
        }
        let begin = path.find(WILD).unwrap_or(path.len());
        let pattern = Pattern::new(path).map_err(|wrong| bad("path", wrong))?;
        let name = update.name.as_deref().map(|name| filled(name, place)).transpose();
        let name = name.map_err(|problem| bad("name", problem))?;
        let field: Field = update.field.parse().map_err(|problem| bad("field", problem))?;
        let field = field.map(|text| filled(text, place)).map_err(|problem| bad("field", problem))?;
        let facet = update.value.as_deref().map(str::parse).transpose();
        let facet = facet.map_err(|wrong: crate::revision::NotAFacet| bad("value", wrong.to_string()))?;
        let choice = Choice { facet, workload: update.workload.clone() };
        Ok(Entry { number, path: plain, pattern, begin, kind: update.kind.clone(), name, field, choice })
    }

    /// Whether a file of this path may be meant.
    fn means(&self, path: &str) -> bool {
        let begin = self.pattern.text.get(..self.begin).unwrap_or_default();
        path.starts_with(begin)
            && (path.ends_with(".yaml") || path.ends_with(".yml"))
            && self.pattern.matches(path)
    }

    fn is_pattern(&self) -> bool {
        self.begin < self.pattern.text.len()
    }

    fn names_an_object(&self) -> bool {
        self.kind.is_some() || self.name.is_some()
    }

    /// The one edit that this entry means, and in which file. `left` is how many events may be read still.
    fn edit(
        &self,
        files: &mut [File<'_>],
        left: &mut usize,
        revision: &Revision,
    ) -> Result<(usize, Edit), UpdateError> {
        let meant: Vec<usize> = (0..files.len()).filter(|at| self.means(files[*at].path)).collect();
        for at in &meant {
            self.read(&mut files[*at], left)?;
        }
        let files = &*files;
        let spots: Vec<Spot> = meant.iter().flat_map(|at| self.spots(files, *at)).collect();
        let (spot, found) = match self.names_an_object() {
            true => {
                let spot = self.only_object(files, &meant, &spots)?;
                (spot, self.resolve(files, spot))
            }
            false => self.only_field(files, &meant, &spots)?,
        };
        let file = &files[spot.file];
        let found = found.map_err(|stop| self.stopped(file, stop))?;
        let page = self.page(file)?;
        let at = page.at(file.path, page.start(found.event));
        let wish = Wish { choice: &self.choice, revision, asker: Asker::Entry };
        Ok((spot.file, edit::replace(page, found.event, found.flow, &wish, &at)?))
    }

    /// Reads a file. One that is no YAML matters when it alone is meant, or has all the words of what
    /// is looked for.
    fn read(&self, file: &mut File<'_>, left: &mut usize) -> Result<(), UpdateError> {
        let bytes = file.bytes;
        let page = file.page.get_or_insert_with(|| {
            let page = Page::read(bytes, MAX_EVENTS.min(*left))
                .map_err(|unreadable| unreadable.of(file.path, "is named by an entry of update"))?;
            *left -= page.events.len();
            Ok(page)
        });
        let has = |word: &str| bytes.windows(word.len().max(1)).any(|window| window == word.as_bytes());
        let object = self.kind.as_deref().into_iter().chain(self.name.as_deref());
        match page {
            Err(error) if !self.is_pattern() || self.field.words().chain(object).all(has) => {
                Err(error.clone().into())
            }
            _ => Ok(()),
        }
    }

    fn page<'f, 't>(&self, file: &'f File<'t>) -> Result<&'f Page<'t>, UpdateError> {
        match &file.page {
            Some(Ok(page)) => Ok(page),
            Some(Err(error)) => Err(error.clone().into()),
            None => Err(UpdateError::NoFile { entry: self.to_string(), near: file.path.into() }),
        }
    }

    /// The documents of a file that are the object this entry names; all, where it names none.
    fn spots(&self, files: &[File<'_>], file: usize) -> Vec<Spot> {
        let Some(Ok(page)) = &files[file].page else { return Vec::new() };
        let is_it =
            |asked: &Option<String>, found: Option<&str>| asked.is_none() || asked.as_deref() == found;
        let fits = |root: &usize| {
            let (kind, name) = page.object(*root);
            is_it(&self.kind, kind) && is_it(&self.name, name)
        };
        page.documents().into_iter().filter(fits).map(|root| Spot { file, root }).collect()
    }

    fn only_object(&self, files: &[File<'_>], meant: &[usize], spots: &[Spot]) -> Result<Spot, UpdateError> {
        match spots {
            [one] => Ok(*one),
            [] => {
                let any = Entry { kind: None, name: None, ..self.clone() };
                let there = meant.iter().flat_map(|at| any.spots(files, *at));
                let there = there.map(|spot| any.describe(files, spot)).collect();
                Err(UpdateError::NoObject { entry: self.to_string(), there: listed(there, NAMED) })
            }
            several => {
                let there = several.iter().map(|spot| self.describe(files, *spot)).collect();
                Err(UpdateError::AmbiguousObject { entry: self.to_string(), there: listed(there, NAMED) })
            }
        }
    }

    /// The one document that has the field, and how that ends.
    fn only_field(
        &self,
        files: &[File<'_>],
        meant: &[usize],
        spots: &[Spot],
    ) -> Result<(Spot, Result<Found, Stop>), UpdateError> {
        let all = spots.iter().map(|spot| (*spot, self.resolve(files, *spot)));
        let (missing, mut there): (Vec<_>, Vec<_>) =
            all.partition(|(_, found)| matches!(found, Err(Stop::Missing(..))));
        if there.len() > 1 {
            let at = |(spot, found): &(Spot, Result<Found, Stop>)| match found {
                Ok(found) => self.at(&files[spot.file], found.event).to_string(),
                Err(_) => self.describe(files, *spot),
            };
            let there = listed(there.iter().map(at).collect(), NAMED);
            return Err(UpdateError::AmbiguousField { entry: self.to_string(), there });
        }
        if let Some(one) = there.pop() {
            return Ok(one);
        }
        match (meant, missing.into_iter().next()) {
            ([_], Some(one)) => Ok(one),
            _ => {
                let paths = meant.iter().map(|at| files[*at].path.to_string()).collect();
                let problem = format!("none of these files has it: {}", listed(paths, NAMED));
                Err(UpdateError::NoField { entry: self.to_string(), problem })
            }
        }
    }

    fn resolve(&self, files: &[File<'_>], spot: Spot) -> Result<Found, Stop> {
        match &files[spot.file].page {
            Some(Ok(page)) => page.resolve(spot.root, &self.field),
            _ => Err(Stop::Missing(spot.root, "the file is not readable".into())),
        }
    }

    fn at(&self, file: &File<'_>, event: usize) -> At {
        match &file.page {
            Some(Ok(page)) => page.at(file.path, page.start(event)),
            _ => At { path: file.path.into(), line: 1 },
        }
    }

    fn stopped(&self, file: &File<'_>, stop: Stop) -> UpdateError {
        let (entry, at) = (self.to_string(), |event| self.at(file, event));
        match stop {
            Stop::Missing(event, problem) => {
                UpdateError::NoField { entry, problem: format!("{}: {problem}", at(event)) }
            }
            Stop::Several(all) => {
                let there = all.into_iter().map(|event| at(event).to_string()).collect();
                UpdateError::AmbiguousField { entry, there: listed(there, NAMED) }
            }
            Stop::Alias(event) => UpdateError::Alias { at: at(event), entry },
            Stop::Block(event) => SetError::BlockScalar { at: at(event), asker: Asker::Entry }.into(),
            Stop::NotAValue(event, is) => {
                UpdateError::NotAValue { at: at(event), field: self.field.to_string(), is }
            }
        }
    }

    /// Where an object is, and what it is.
    fn describe(&self, files: &[File<'_>], spot: Spot) -> String {
        let file = &files[spot.file];
        let Some(Ok(page)) = &file.page else { return file.path.into() };
        let at = page.at(file.path, page.start(spot.root));
        match page.object(spot.root) {
            (None, None) => format!("{at} (no object)"),
            (kind, name) => format!("{at} ({}/{})", kind.unwrap_or("?"), name.unwrap_or("?")),
        }
    }
}

/// As messages name it: its place in the list, and what it means.
impl fmt::Display for Entry {
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

/// A part of a text with placeholders.
enum Part<'t> {
    Literal(&'t str),
    Placeholder(&'t str),
}

impl<'t> Part<'t> {
    fn is_literal(&self) -> bool {
        matches!(self, Part::Literal(_))
    }

    fn fill<'a>(&'a self, place: &'a Place) -> Result<&'a str, String> {
        Ok(match self {
            Part::Literal(text) => text,
            Part::Placeholder("environment") => &place.environment,
            Part::Placeholder("target") => &place.target,
            Part::Placeholder("namespace") => &place.namespace,
            Part::Placeholder("cluster") => place.cluster.as_deref().ok_or_else(|| {
                format!(
                    "{{cluster}} has no value for the target {} of {}, which is on the cluster that holds the \
                     Pipeline; use {{target}}",
                    place.target, place.environment
                )
            })?,
            Part::Placeholder(other) => {
                return Err(format!(
                    "{{{other}}} is no placeholder; these are: {{environment}}, {{target}}, {{cluster}}, \
                     {{namespace}}"
                ));
            }
        })
    }
}

fn parts(text: &str) -> impl Iterator<Item = Result<Part<'_>, String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(inside) = rest.strip_prefix('{') else {
            let (literal, behind) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            rest = behind;
            return Some(Ok(Part::Literal(literal)));
        };
        let Some((name, behind)) = inside.split_once('}') else {
            rest = "";
            return Some(Err("a { has no } behind it".into()));
        };
        rest = behind;
        Some(Ok(Part::Placeholder(name)))
    })
}

fn filled(text: &str, place: &Place) -> Result<String, String> {
    parts(text).map(|part| part?.fill(place).map(String::from)).collect()
}

/// The files that somebody may have meant by a path that no file has: of the same name, or as near to
/// it as there are.
fn near<'p>(asked: &str, paths: impl Iterator<Item = &'p str>) -> String {
    let shared = |path: &str| asked.split('/').zip(path.split('/')).take_while(|(a, b)| a == b).count();
    let name = |path: &'p str| path.rsplit('/').next().unwrap_or(path);
    let mut ranked: BTreeMap<(bool, std::cmp::Reverse<usize>), Vec<String>> = BTreeMap::new();
    for path in paths {
        let other_name = asked.rsplit('/').next() != Some(name(path));
        ranked.entry((other_name, std::cmp::Reverse(shared(path)))).or_default().push(path.into());
    }
    listed(ranked.into_values().flatten().collect(), NAMED)
}
