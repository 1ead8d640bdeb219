//! Parses a YAML file into events, and finds the value that a comment belongs to: before the comment on the same
//! line, or on the line below.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

use super::limits::MAX_FILE_EVENTS;
use super::marker::MARKER_KEY;
use super::set_error::{Location, SetError};

/// A parsed file.
pub(super) struct ParsedDocument<'t> {
    pub text: &'t str,
    pub events: Vec<(Event<'t>, Span)>,
    /// For each event that begins a node, the event after the node and everything in it.
    pub ends: Vec<usize>,
    /// The node of each anchor, by the parser's number for it.
    pub anchors: HashMap<usize, usize>,
    /// The objects in the documents, when an entry has asked for them.
    pub objects: OnceLock<Vec<DocumentObject>>,
    tokens: Vec<Token>,
    line_starts: Vec<usize>,
}

/// A document, and the scalars of its kind and name, by their events.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentObject {
    pub root: usize,
    pub kind: Option<usize>,
    pub name: Option<usize>,
}

/// A token of the file with its bytes.
struct Token {
    range: Range<usize>,
    event: usize,
    kind: TokenKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// A scalar that is a value; `flow` within `[...]` or `{...}`.
    Value {
        flow: bool,
    },
    /// A scalar that is the key of a mapping.
    Key,
    Alias,
    /// A bracket or brace.
    Flow,
    /// The beginning or end of a document.
    Document,
}

/// What is beside a comment, before it on its line or on the line below.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// The value of this event; `flow` within `[...]` or `{...}`.
    Value { event: usize, flow: bool },
    /// The `|` or `>` of a block scalar.
    BlockScalar,
    /// The alias `*name`.
    Alias,
    /// A bracket or brace. On the line below, also a value within brackets or braces.
    Flow,
    /// No single value: the place of the comment, such as `above an empty line`.
    Other(&'static str),
}

/// The places of comments that follow no value on their line.
const AFTER_A_KEY: Beside = Beside::Other("after a key that has no value on this line");
const ON_NO_VALUE: Beside = Beside::Other("on a line without a value");

/// A file that cannot be parsed.
#[derive(Debug)]
pub(super) enum ParseError {
    NotYaml {
        line: u32,
        column: u32,
        message: String,
    },
    /// The file has more events than may be read.
    TooLarge,
}

impl ParseError {
    fn new(bytes: &[u8], at: usize, message: &str) -> Self {
        let line_starts = line_starts(bytes);
        let line_start = line_starts.iter().rfind(|start| **start <= at).copied().unwrap_or_default();
        let before = bytes.get(line_start..at).unwrap_or_default();
        let column = String::from_utf8_lossy(before).chars().count() + 1;
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        ParseError::NotYaml { line: line(&line_starts, at), column, message: message.into() }
    }

    /// Returns the error for a file that must be readable. `why` says what refers to the file.
    pub(super) fn into_set_error(self, path: &str, why: &'static str) -> SetError {
        let at = |line| Location { path: path.into(), line };
        match self {
            ParseError::NotYaml { line, column, message } => {
                SetError::UnparsableFile { at: at(line), why, column, message }
            }
            ParseError::TooLarge => SetError::FileTooLarge { at: at(1), why },
        }
    }
}

impl<'t> ParsedDocument<'t> {
    /// Parses a file that has at most `max_events` events.
    pub(super) fn read(bytes: &'t [u8], max_events: usize) -> Result<Self, ParseError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| ParseError::new(bytes, error.valid_up_to(), "it is not UTF-8"))?;
        ParsedDocument::parse(text, max_events)
    }

    pub(super) fn parse(text: &'t str, max_events: usize) -> Result<Self, ParseError> {
        let events = events_of(text, max_events).collect::<Result<Vec<_>, _>>()?;
        let mut tokens = tokens(&events);
        tokens.sort_by_key(|token| (token.range.start, token.range.end));
        let (ends, anchors) = (ends(&events), anchors(&events));
        let (objects, line_starts) = (OnceLock::new(), line_starts(text.as_bytes()));
        Ok(Self { text, events, ends, anchors, objects, tokens, line_starts })
    }

    /// Returns the comments: the text after the `#`, and its bytes.
    pub(super) fn comments(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.events.iter().filter_map(|(event, span)| match event {
            Event::Comment(text, _) => Some((text.as_ref(), span.byte_range()?)),
            _ => None,
        })
    }

    /// Returns the texts in plain and block scalars that look like comments with a marker: the text after the `#`, the
    /// byte of the `#`, and whether the scalar is a block.
    pub(super) fn comments_in_scalars(&self) -> impl Iterator<Item = (&str, usize, bool)> {
        let scalars = self.events.iter().filter_map(|(event, span)| match event {
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => {
                Some((span.byte_range()?, true))
            }
            Event::Scalar(_, ScalarStyle::Plain, ..) => Some((span.byte_range()?, false)),
            _ => None,
        });
        scalars.flat_map(|(range, block)| {
            let text = self.text.get(range.clone()).unwrap_or_default();
            let mut next = range.start;
            text.split_inclusive(['\n', '\r']).filter_map(move |line| {
                let start = next;
                next += line.len();
                let comment = line[..line.find(MARKER_KEY)?].rfind('#')?;
                Some((&line[comment + 1..], start + comment, block))
            })
        })
    }

    /// Returns what is before the comment that begins at this byte; `None` if the comment is alone on its line.
    pub(super) fn before(&self, comment: usize) -> Option<Beside> {
        let line = self.line_starts.partition_point(|start| *start <= comment).saturating_sub(1);
        let line_start = self.line_starts.get(line).copied().unwrap_or_default();
        let indent = self.text.get(line_start..comment).unwrap_or_default();
        // The parser counts white space below a block scalar as a part of the scalar.
        if indent.trim_start_matches('\u{feff}').trim().is_empty() {
            return None;
        }
        let end = self.tokens.partition_point(|token| token.range.start < comment);
        let last = self.tokens[..end].last();
        let last = last.filter(|token| token.range.end > line_start && token.range.end <= comment);
        let gap_start = last.map_or(line_start, |token| token.range.end);
        let gap = self.text.get(gap_start..comment).unwrap_or_default().trim();
        let gap = if line_start == 0 { gap.trim_start_matches('\u{feff}') } else { gap };
        let word = gap.rsplit(char::is_whitespace).next().unwrap_or_default();
        Some(match (last.map(|token| (token.kind, token.event)), gap) {
            (Some((TokenKind::Value { flow }, event)), "") => Beside::Value { event, flow },
            (Some((TokenKind::Value { flow: true }, event)), ",") => Beside::Value { event, flow: true },
            (Some((TokenKind::Alias, _)), "" | ",") => Beside::Alias,
            (Some((TokenKind::Flow, _)), "" | ",") => Beside::Flow,
            (Some((TokenKind::Key, _)), "" | "," | ":") => AFTER_A_KEY,
            (Some((TokenKind::Document, _)), "") => ON_NO_VALUE,
            _ if word.starts_with(['|', '>']) => Beside::BlockScalar,
            _ if word == ":" => AFTER_A_KEY,
            _ => ON_NO_VALUE,
        })
    }

    /// Returns the value on the line below a comment. `comment` are the bytes of the comment, which is alone on its
    /// line. Lines with further markers may be between the comment and the value.
    pub(super) fn below(&self, comment: Range<usize>) -> Beside {
        let line = self.line_starts.partition_point(|start| *start <= comment.start);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let indent = self.text.get(start..comment.start).unwrap_or_default();
        let column = indent.trim_start_matches('\u{feff}').len();
        for line in line..self.line_starts.len() {
            let start = self.line_starts.get(line).copied().unwrap_or_default();
            let end = self.line_starts.get(line + 1).copied().unwrap_or(self.text.len());
            let text = self.text.get(start..end).unwrap_or_default();
            let content = text.trim();
            match content.strip_prefix('#') {
                Some(comment) if comment.trim_start().starts_with('{') => {}
                Some(_) => return Beside::Other("above a comment"),
                None if content.is_empty() => return Beside::Other("above an empty line"),
                None if text.len() - text.trim_start().len() != column => {
                    return Beside::Other("above a line that is indented differently");
                }
                None => return self.value_of(start + column..end),
            }
        }
        Beside::Other("above the end of the file")
    }

    /// Returns the only value of a line: the value of a key, or an entry of a list.
    fn value_of(&self, line: Range<usize>) -> Beside {
        let first = self.tokens.partition_point(|token| token.range.start < line.start);
        let mut tokens = self.tokens.get(first..).unwrap_or_default().iter().peekable();
        let text = |range: Range<usize>| self.text.get(range).unwrap_or_default();
        let is_block = |range: Range<usize>| {
            let words = text(range).split_whitespace().take_while(|word| !word.starts_with('#'));
            words.into_iter().any(|word| word.starts_with(['|', '>']))
        };
        let Some(token) = tokens.next_if(|token| token.range.start < line.end) else {
            return match is_block(line) {
                true => Beside::BlockScalar,
                false => Beside::Other("above a line without a value"),
            };
        };
        let mut before = text(line.start..token.range.start).split_whitespace();
        let is_entry = before.clone().next() == Some("-");
        let other = match token.kind {
            TokenKind::Document => Some("above the beginning or the end of a document"),
            TokenKind::Key if is_entry => Some("above an entry of a list that is not a single value"),
            _ if before.clone().any(|word| matches!(word, "?" | ":")) => Some("above an explicit key"),
            _ if before.by_ref().filter(|word| *word == "-").count() > 1 => Some("above a list in a list"),
            _ => None,
        };
        if let Some(place) = other {
            return Beside::Other(place);
        }
        let value = match token.kind {
            TokenKind::Key => tokens.next_if(|value| value.range.start < line.end),
            _ => Some(token),
        };
        match value.map(|value| (value.kind, value.event)) {
            Some((TokenKind::Value { flow: false }, event)) => Beside::Value { event, flow: false },
            Some((TokenKind::Alias, _)) => Beside::Alias,
            Some((TokenKind::Value { flow: true } | TokenKind::Flow, _)) => Beside::Flow,
            None if is_block(token.range.end..line.end) => Beside::BlockScalar,
            _ => Beside::Other("above a key that has no value on its line"),
        }
    }

    /// Returns the location of a byte, in a file of this path.
    pub(super) fn at(&self, path: &str, byte: usize) -> Location {
        Location { path: path.into(), line: self.line(byte) }
    }

    /// Returns the line of a byte, from 1.
    pub(super) fn line(&self, byte: usize) -> u32 {
        line(&self.line_starts, byte)
    }
}

/// Returns the events of a file that has at most `max_events`, as they are read.
pub(super) fn events_of(
    text: &str,
    max_events: usize,
) -> impl Iterator<Item = Result<(Event<'_>, Span), ParseError>> {
    let options = granit_parser::options! {
        emit_anchor_events: true,
        // Values files have hundreds of commented lines under one key.
        max_buffered_comment_events: MAX_FILE_EVENTS,
    };
    Parser::new_from_str_with_options(text, options).enumerate().map(move |(number, event)| match event {
        _ if number == max_events => Err(ParseError::TooLarge),
        Ok(event) => Ok(event),
        Err(error) => {
            let at = error.marker().byte_offset().unwrap_or_default();
            Err(ParseError::new(text.as_bytes(), at, &error.info()))
        }
    })
}

/// Returns the first byte of each line. Lines end with LF, CR or both.
fn line_starts(bytes: &[u8]) -> Vec<usize> {
    let ends = bytes.iter().enumerate().filter(|(at, b)| match b {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
}

/// Returns the line of a byte, from 1.
fn line(line_starts: &[usize], byte: usize) -> u32 {
    u32::try_from(line_starts.partition_point(|start| *start <= byte)).unwrap_or(u32::MAX)
}

/// A collection whose end event has not come yet.
struct OpenCollection {
    flow: bool,
    mapping: bool,
    /// In a mapping: true if the next node is a key.
    key_next: bool,
}

/// The event after each node, by the event that begins the node; for any other event the next one.
fn ends(events: &[(Event<'_>, Span)]) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..=events.len()).collect();
    let mut open = Vec::new();
    for (at, (event, _)) in events.iter().enumerate() {
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => open.push(at),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(start) = open.pop() {
                    ends[start] = at + 1;
                }
            }
            _ => {}
        }
    }
    for start in open {
        ends[start] = events.len();
    }
    ends
}

/// The node of each anchor. The parser gives each anchor a number of its own, also if two have one name.
fn anchors(events: &[(Event<'_>, Span)]) -> HashMap<usize, usize> {
    let anchor = |event: &Event<'_>| match event {
        Event::Scalar(_, _, anchor, _)
        | Event::SequenceStart(_, anchor, _)
        | Event::MappingStart(_, anchor, _) => Some(*anchor).filter(|anchor| *anchor > 0),
        _ => None,
    };
    events.iter().enumerate().filter_map(|(at, (event, _))| Some((anchor(event)?, at))).collect()
}

fn tokens(events: &[(Event<'_>, Span)]) -> Vec<Token> {
    let mut open: Vec<OpenCollection> = Vec::new();
    let mut tokens = Vec::new();
    for (event, (what, span)) in events.iter().enumerate() {
        let kind = match what {
            Event::Scalar(..) => match enter(&mut open) {
                (true, _) => Some(TokenKind::Key),
                (false, flow) => Some(TokenKind::Value { flow }),
            },
            Event::Alias(_) => {
                enter(&mut open);
                Some(TokenKind::Alias)
            }
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                enter(&mut open);
                let flow = *style == StructureStyle::Flow;
                let mapping = matches!(what, Event::MappingStart(..));
                open.push(OpenCollection { flow, mapping, key_next: true });
                flow.then_some(TokenKind::Flow)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop().filter(|collection| collection.flow).map(|_| TokenKind::Flow)
            }
            Event::DocumentStart(..) | Event::DocumentEnd => Some(TokenKind::Document),
            _ => None,
        };
        if let (Some(kind), Some(range)) = (kind, span.byte_range().filter(|range| !range.is_empty())) {
            tokens.push(Token { range, event, kind });
        }
    }
    tokens
}

/// Records the beginning of a node. Returns whether the node is a key, and whether it is within a flow collection.
fn enter(open: &mut [OpenCollection]) -> (bool, bool) {
    let flow = open.iter().any(|collection| collection.flow);
    let Some(parent) = open.last_mut().filter(|collection| collection.mapping) else { return (false, flow) };
    let key = parent.key_next;
    parent.key_next = !key;
    (key, flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_before_a_comment_is_found() {
        for (text, expected) in [
            ("a: 1 #", "value"),
            ("a: 1\t#", "value"),
            ("- 1 #", "value"),
            ("- - 'x' #", "value"),
            ("1 #", "value"),
            ("--- 1 #", "value"),
            ("a:\n  1 #", "value"),
            ("? a\n: 1 #", "value"),
            ("a: &x 1 #", "value"),
            ("a: !!str 1 #", "value"),
            ("a: \"\" #", "value"),
            ("a: 'x\n  y' #", "value"),
            ("[a, b #\n]", "value"),
            ("[a, b, #\n]", "value"),
            ("{a: b, #\n c: d}", "value"),
            ("\u{feff}a: 1 #", "value"),
            ("\u{feff}#", "nothing"),
            ("#\na: 1", "nothing"),
            ("a:\n  #\n  b: 1", "nothing"),
            ("a: 1\r  #", "nothing"),
            ("- |\n  x\n\n #\n- 1", "nothing"),
            ("a: | #\n  x", "block"),
            ("a: >-2 #\n  x", "block"),
            ("a: &x !!str |+ #\n  x", "block"),
            ("- > #\n  x", "block"),
            ("a: &x 1\nb: *x #", "alias"),
            ("[&x a, *x, #\n]", "alias"),
            ("a: [1] #", "flow"),
            ("a: {b: 1} #", "flow"),
            ("a: [ #\n]", "flow"),
            ("[[a], #\n b]", "flow"),
            ("a: {{ .Values.x }} #", "flow"),
            ("a: #\n  b: 1", "key"),
            ("a: #", "key"),
            ("\"a\" : #", "key"),
            ("? a #\n: 1", "key"),
            ("{a, #\n b: 1}", "key"),
            ("{a #\n}", "key"),
            ("- #\n  - 1", "syntax"),
            ("? #\n  a", "syntax"),
            ("a: &x #\n  1", "syntax"),
            ("a: !!str #\n  1", "syntax"),
            ("--- #\na: 1", "syntax"),
            ("a: 1\n... #\n", "syntax"),
            ("[a\n, #\n b]", "syntax"),
        ] {
            let document = ParsedDocument::parse(text, MAX_FILE_EVENTS).unwrap();
            let found = document.before(document.comments().next().unwrap().1.start);
            let found = match found {
                Some(Beside::Value { .. }) => "value",
                None => "nothing",
                Some(Beside::BlockScalar) => "block",
                Some(Beside::Alias) => "alias",
                Some(Beside::Flow) => "flow",
                Some(found) if found == AFTER_A_KEY => "key",
                Some(Beside::Other(_)) => "syntax",
            };
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn the_value_below_a_comment_is_found() {
        for (text, expected) in [
            ("#\na: 1", "value 1"),
            ("#\n'a' : 'x'", "value x"),
            ("#\na: &x !!str 1", "value 1"),
            ("a:\n  #\n  b: 1\n  c: 2", "value 1"),
            ("a:\n  #\n  1", "value 1"),
            ("a:\n#\n- 1\n- 2", "value 1"),
            ("a:\n  #\n  - &x 1", "value 1"),
            ("#\r\na: 1 # x\r\n", "value 1"),
            ("#\ra: 1\r", "value 1"),
            ("#\n# {\"a\": \"b\"}\na: 1", "value 1"),
            ("#\na: ''", "value "),
            ("#\na: | # x\n  1", "block"),
            ("#\n- >-\n  1", "block"),
            ("x: &x 1\n#\na: *x", "alias"),
            ("x: &x 1\nl:\n#\n- *x", "alias"),
            ("#\na: [1]", "flow"),
            ("#\n- {a: 1}", "flow"),
            ("{\n#\na: 1 }", "flow"),
            ("[\n#\n1, 2]", "flow"),
            ("#", "above the end of the file"),
            ("#\n\na: 1", "above an empty line"),
            ("#\n# a: 0\na: 1", "above a comment"),
            ("  #\na: 1", "above a line that is indented differently"),
            ("a:\n  b: 1\n  #\nc: 2", "above a line that is indented differently"),
            ("#\n---\na: 1", "above the beginning or the end of a document"),
            ("#\na:\n  b: 1", "above a key that has no value on its line"),
            ("#\na:\nb: 1", "above a key that has no value on its line"),
            ("#\na:\n  1", "above a key that has no value on its line"),
            ("l:\n#\n- a: 1", "above an entry of a list that is not a single value"),
            ("#\n- - 1", "above a list in a list"),
            ("#\n-\n  a: 1", "above a line without a value"),
            ("#\n? a\n: 1", "above an explicit key"),
        ] {
            let document = ParsedDocument::parse(text, MAX_FILE_EVENTS).unwrap();
            let found = match document.below(document.comments().next().unwrap().1) {
                Beside::Value { event, .. } => format!("value {}", document.event_text(event)),
                Beside::BlockScalar => "block".into(),
                Beside::Alias => "alias".into(),
                Beside::Flow => "flow".into(),
                Beside::Other(place) => place.into(),
            };
            assert_eq!(found, expected, "{text:?}");
        }
    }

    impl ParsedDocument<'_> {
        fn event_text(&self, event: usize) -> &str {
            match &self.events[event].0 {
                Event::Scalar(text, ..) => text,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn lines_are_counted_as_in_yaml() {
        for (text, expected) in [("", 1), ("a\nb", 2), ("a\r\nb", 2), ("a\rb", 2), ("\n\r\n\r", 4)] {
            assert_eq!(line(&line_starts(text.as_bytes()), text.len()), expected, "{text:?}");
        }
    }
}
