//! The objects of a YAML file, and the scalar that a field leads to. The functions walk over the parser's events without
//! recursion, because a file may be nested as deep as it is long.

use std::collections::BTreeSet;

use granit_parser::{Event, ScalarStyle, StructureStyle};

use super::field::{Field, Step};
use super::parsed_document::{DocumentObject, ParsedDocument};

/// A scalar that a field leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundScalar {
    pub event: usize,
    /// Within `[...]` or `{...}`.
    pub flow: bool,
}

/// Why a field leads to no scalar, with the event at which the search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResolveError {
    /// Nothing is there. The text says what is there instead.
    Missing(usize, String),
    /// Several scalars are there.
    Several(Vec<usize>),
    /// An alias is there, whose value belongs to an anchor elsewhere.
    Alias(usize),
    /// A block scalar is there.
    Block(usize),
    /// A collection is there, or a scalar without text.
    NotAValue(usize, &'static str),
}

/// The most keys that an error names if the wanted one is missing.
const MAX_NAMED: usize = 12;

impl ParsedDocument<'_> {
    /// Returns the outermost node of each document of the file.
    fn documents(&self) -> Vec<usize> {
        let mut open = false;
        let mut roots = Vec::new();
        let mut at = 0;
        while let Some((event, _)) = self.events.get(at) {
            match event {
                Event::DocumentStart(..) => open = true,
                event if open && is_node(event) => {
                    open = false;
                    roots.push(at);
                    at = self.behind(at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        roots
    }

    /// Returns the objects in the documents. They are searched for once: thousands of entries may ask.
    pub(super) fn objects(&self) -> &[DocumentObject] {
        let object = |root: usize| {
            let is_scalar = |at: &usize| self.scalar(*at).is_some();
            let kind = self.get(root, "kind").first().copied().filter(is_scalar);
            let metadata = self.get(root, "metadata").first().copied();
            let name = metadata.and_then(|at| self.get(at, "name").first().copied()).filter(is_scalar);
            DocumentObject { root, kind, name }
        };
        self.objects.get_or_init(|| self.documents().into_iter().map(object).collect())
    }

    /// Returns the kind and name of an object.
    pub(super) fn kind_and_name(&self, object: &DocumentObject) -> (Option<&str>, Option<&str>) {
        let text = |at: Option<usize>| at.and_then(|at| self.scalar(at));
        (text(object.kind), text(object.name))
    }

    /// Returns the scalar that a field leads to, from the outermost node of a document.
    pub(super) fn resolve(&self, root: usize, field: &Field) -> Result<FoundScalar, ResolveError> {
        self.search(root, field, true)
    }

    /// Returns the same without the texts of errors, which take most of the time if many documents have no such field.
    pub(super) fn find(&self, root: usize, field: &Field) -> Result<FoundScalar, ResolveError> {
        self.search(root, field, false)
    }

    fn search(&self, root: usize, field: &Field, explain: bool) -> Result<FoundScalar, ResolveError> {
        let mut found = FoundScalar { event: root, flow: false };
        let so_far = |steps: usize| Field(field.0[..steps].to_vec()).to_string();
        for (depth, step) in field.0.iter().enumerate() {
            let node = found.event;
            let style = match self.events.get(node) {
                Some((Event::SequenceStart(style, ..) | Event::MappingStart(style, ..), _)) => Some(style),
                _ => None,
            };
            found.flow |= style == Some(&StructureStyle::Flow);
            let all = match step {
                Step::Key(key) => self.get(node, key),
                Step::Index(place) => self.entries(node).nth(*place).into_iter().collect(),
                Step::Match(key, value) => self.matching(node, key, value),
            };
            found.event = match all[..] {
                [one] => one,
                [] if self.is_merged(node, step) => return Err(ResolveError::Alias(node)),
                [] if !explain => return Err(ResolveError::Missing(node, String::new())),
                [] => return Err(ResolveError::Missing(node, self.instead(node, step, &so_far(depth)))),
                _ => return Err(ResolveError::Several(all)),
            };
            if self.aliased(found.event).is_some() {
                return Err(ResolveError::Alias(found.event));
            }
        }
        self.value(found)
    }

    fn value(&self, found: FoundScalar) -> Result<FoundScalar, ResolveError> {
        let at = found.event;
        match self.events.get(at) {
            Some((Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..), _)) => {
                Err(ResolveError::Block(at))
            }
            Some((Event::Scalar(..), span)) if span.byte_range().is_some_and(|range| range.is_empty()) => {
                Err(ResolveError::NotAValue(at, "has no value yet: write one there, such as 0.0.0"))
            }
            Some((Event::Scalar(..), _)) => Ok(found),
            Some((Event::MappingStart(..), _)) => {
                Err(ResolveError::NotAValue(at, "is a mapping: name the field in it that holds the value"))
            }
            _ => Err(ResolveError::NotAValue(
                at,
                "is a list: name the entry of it that holds the value, as [0]",
            )),
        }
    }

    /// Returns a text that says what is there instead if a step leads nowhere. It names keys, and no values: a Pipeline can
    /// name any field of a file, and may be written by people who may not read the repository.
    fn instead(&self, node: usize, step: &Step, parent: &str) -> String {
        let place = if parent.is_empty() { "the document" } else { parent };
        let is_list = matches!(self.events.get(node), Some((Event::SequenceStart(..), _)));
        let is_mapping = matches!(self.events.get(node), Some((Event::MappingStart(..), _)));
        match step {
            Step::Key(key) if is_mapping => {
                let keys = self.pairs(node).filter_map(|(key, _)| self.scalar(key)).map(String::from);
                format!("{place} has no {key}; it has {}", listed(keys.collect(), MAX_NAMED))
            }
            Step::Key(_) if is_list => {
                format!("{place} is a list: say which entry of it, as {parent}[0] or {parent}[name=...]")
            }
            Step::Index(_) if is_list => {
                format!("{place} has {} entries, counted from 0", self.entries(node).count())
            }
            Step::Match(key, value) if is_list => {
                let count = self.entries(node).count();
                format!("no entry of {place}, which has {count} entries, has {value} as its {key}")
            }
            _ if is_mapping => format!("{place} is a mapping, not a list"),
            _ => format!("{place} is a value, and has no parts"),
        }
    }

    /// Returns true if a mapping has a key only because `<<` merges an anchor into it, or if the matching entry of a list
    /// is an alias.
    fn is_merged(&self, node: usize, step: &Step) -> bool {
        match step {
            Step::Key(key) => {
                let merges = self.get(node, "<<").into_iter().flat_map(|merged| {
                    let listed: Vec<usize> = self.entries(merged).collect();
                    if listed.is_empty() { vec![merged] } else { listed }
                });
                // Each anchor once: a list may name one a hundred thousand times.
                let anchors: BTreeSet<usize> = merges.filter_map(|merged| self.aliased(merged)).collect();
                anchors.into_iter().any(|of| !self.get(of, key).is_empty())
            }
            Step::Index(_) => false,
            Step::Match(key, value) => {
                let anchors: BTreeSet<usize> =
                    self.entries(node).filter_map(|entry| self.aliased(entry)).collect();
                anchors.into_iter().any(|of| self.has(of, key, value))
            }
        }
    }

    /// Returns the node of an alias's anchor.
    fn aliased(&self, node: usize) -> Option<usize> {
        let Some((Event::Alias(id), _)) = self.events.get(node) else { return None };
        self.anchors.get(id).copied()
    }

    fn matching(&self, node: usize, key: &str, value: &str) -> Vec<usize> {
        self.entries(node).filter(|entry| self.has(*entry, key, value)).collect()
    }

    fn has(&self, node: usize, key: &str, value: &str) -> bool {
        self.get(node, key).iter().any(|at| self.scalar(*at) == Some(value))
    }

    /// Returns the values of a key: several if the mapping has the key twice.
    fn get(&self, node: usize, key: &str) -> Vec<usize> {
        self.pairs(node).filter(|(at, _)| self.scalar(*at) == Some(key)).map(|(_, value)| value).collect()
    }

    fn scalar(&self, node: usize) -> Option<&str> {
        match self.events.get(node) {
            Some((Event::Scalar(text, ..), _)) => Some(text),
            _ => None,
        }
    }

    /// Returns the keys and values of a mapping; nothing for any other node.
    fn pairs(&self, node: usize) -> impl Iterator<Item = (usize, usize)> {
        let is_mapping = matches!(self.events.get(node), Some((Event::MappingStart(..), _)));
        let mut children = self.children(is_mapping.then_some(node));
        std::iter::from_fn(move || Some((children.next()?, children.next()?)))
    }

    /// Returns the entries of a list; nothing for any other node.
    fn entries(&self, node: usize) -> impl Iterator<Item = usize> {
        let is_list = matches!(self.events.get(node), Some((Event::SequenceStart(..), _)));
        self.children(is_list.then_some(node))
    }

    fn children(&self, node: Option<usize>) -> impl Iterator<Item = usize> {
        let mut next = node.map_or(usize::MAX, |node| node + 1);
        std::iter::from_fn(move || {
            loop {
                match self.events.get(next)? {
                    (Event::SequenceEnd | Event::MappingEnd, _) => return None,
                    (event, _) if is_node(event) => break,
                    _ => next += 1,
                }
            }
            let child = next;
            next = self.behind(child);
            Some(child)
        })
    }

    /// Returns the event after a node and everything in it.
    fn behind(&self, node: usize) -> usize {
        self.ends.get(node).copied().unwrap_or(self.events.len())
    }

    /// Returns the first byte of a node.
    pub(super) fn start(&self, node: usize) -> usize {
        self.events.get(node).and_then(|(_, span)| span.byte_range()).map_or(0, |range| range.start)
    }
}

fn is_node(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(..) | Event::Alias(_) | Event::SequenceStart(..) | Event::MappingStart(..))
}

/// Joins texts with commas: at most `most` of them, and the number of the others.
pub(super) fn listed(mut things: Vec<String>, most: usize) -> String {
    let more = things.len().saturating_sub(most);
    things.truncate(most);
    match (things.is_empty(), more) {
        (true, _) => "nothing".into(),
        (false, 0) => things.join(", "),
        (false, more) => format!("{} and {more} more", things.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::MAX_FILE_EVENTS;
    use super::*;

    fn resolved(text: &str, field: &str) -> String {
        let document = ParsedDocument::parse(text, MAX_FILE_EVENTS).unwrap();
        let root = document.documents()[0];
        match document.resolve(root, &field.parse().unwrap()) {
            Ok(found) => {
                document.scalar(found.event).unwrap().to_string() + if found.flow { " in flow" } else { "" }
            }
            Err(ResolveError::Missing(_, instead)) => instead,
            Err(ResolveError::Several(all)) => format!("{} of them", all.len()),
            Err(ResolveError::Alias(_)) => "alias".into(),
            Err(ResolveError::Block(_)) => "block".into(),
            Err(ResolveError::NotAValue(_, is)) => is.split(':').next().unwrap().into(),
        }
    }

    #[test]
    fn a_field_leads_to_a_scalar_or_to_an_error_that_says_what_is_there() {
        let list = "l:\n- {name: a, v: 1}\n- name: b\n  v: 2\n# x\n- &c\n  name: b\n  v: 3\n- *c\n";
        for (text, field, expected) in [
            ("a: {b: [1, 2]}", "a.b[1]", "2 in flow"),
            ("a:\n  # c\n  b: x # d\n", "a.b", "x"),
            ("'a': x", "a", "x"),
            ("- - x\n  - y", "[0][1]", "y"),
            (list, "l[name=a].v", "1 in flow"),
            (list, "l[name=b].v", "2 of them"),
            (list, "l[2].v", "3"),
            (list, "l[3].v", "alias"),
            (list, "l[name=x].v", "no entry of l, which has 4 entries, has x as its name"),
            (list, "l.name", "l is a list: say which entry of it, as l[0] or l[name=...]"),
            (list, "l[4]", "l has 4 entries, counted from 0"),
            ("x: &x {n: a, v: 1}\nl: [*x]", "l[n=a].v", "alias"),
            ("x: &x {v: 1}\ny: *x", "y.v", "alias"),
            ("x: &x {v: 1}\ny: {<<: *x, w: 2}", "y.v", "alias"),
            ("x: &x {v: 1}\ny: {<<: [*x], w: 2}", "y.v", "alias"),
            ("x: &x {v: 1}\ny: {<<: *x, v: 2}", "y.v", "2 in flow"),
            ("x: &x {v: 1}\ny: {<<: *x, w: 2}", "y.z", "y has no z; it has <<, w"),
            ("x: &x 1\ny: *x", "y", "alias"),
            ("x: &x 1\ny: *x", "x", "1"),
            ("a: 1", "b.c", "the document has no b; it has a"),
            ("a: 1", "a.c", "a is a value, and has no parts"),
            ("a: {}", "a[0]", "a is a mapping, not a list"),
            ("a: {}", "a.b", "a has no b; it has nothing"),
            ("a: {}", "a", "is a mapping"),
            ("a: []", "a", "is a list"),
            ("a:", "a", "has no value yet"),
            ("a: |\n  x", "a", "block"),
            ("a: ''", "a", ""),
            ("a: ~", "a", "~"),
        ] {
            assert_eq!(resolved(text, field), expected, "{field} in {text:?}");
        }
    }

    /// What a hostile repository may have: each takes milliseconds, and took hours when each alias was searched for.
    #[test]
    fn no_file_takes_long() {
        let merges = format!("x: &x {{a: 1, b: 2}}\ny: {{<<: [{}]}}", "*x, ".repeat(190_000));
        let entries = format!("x: &x {{a: 1, b: 2}}\ny: [{}]", "*x, ".repeat(190_000));
        let nested = format!("y: {}1{}", "{a: ".repeat(200), "}".repeat(200));
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let found = [(merges, "y.v"), (entries, "y[n=v].v"), (nested, "y.a.b")]
                .map(|(text, field)| resolved(&text, field));
            let _ = done.send(found);
        });
        let found = finished.recv_timeout(std::time::Duration::from_secs(60)).expect("it takes longer");
        assert_eq!(found[0], "y has no v; it has <<");
        assert_eq!(found[1], "no entry of y, which has 190000 entries, has v as its n");
        assert_eq!(found[2], "y.a has no b; it has a");
    }

    #[test]
    fn documents_have_a_kind_and_a_name() {
        let text = "# x\n---\nkind: A\nmetadata: {name: a}\n---\n# nothing\n---\n- 1\n---\nmetadata: x\nkind: B\n...\n";
        let document = ParsedDocument::parse(text, MAX_FILE_EVENTS).unwrap();
        let objects: Vec<_> = document.objects().iter().map(|one| document.kind_and_name(one)).collect();
        assert_eq!(objects, [(Some("A"), Some("a")), (None, None), (None, None), (Some("B"), None)]);
    }
}
