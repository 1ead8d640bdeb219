//! Parses a YAML file into events, and finds its comments.

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
    /// In their order.
    pub tokens: Vec<Token>,
    /// The first byte of each line.
    pub line_starts: Vec<usize>,
}

/// A document, and the scalars of its kind and name, by their events.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentObject {
    pub root: usize,
    pub kind: Option<usize>,
    pub name: Option<usize>,
}

/// A token of the file with its bytes.
pub(super) struct Token {
    pub range: Range<usize>,
    pub event: usize,
    pub kind: TokenKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
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
    fn lines_are_counted_as_in_yaml() {
        for (text, expected) in [("", 1), ("a\nb", 2), ("a\r\nb", 2), ("a\rb", 2), ("\n\r\n\r", 4)] {
            assert_eq!(line(&line_starts(text.as_bytes()), text.len()), expected, "{text:?}");
        }
    }
}
