//! A YAML file as its parser's events, with the question that setting values needs answered: what
//! stands right before this comment, on the same line?

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StructureStyle};

use super::{At, NEEDLE, SetError};

/// A parsed file.
pub(super) struct Page<'t> {
    pub text: &'t str,
    pub events: Vec<(Event<'t>, Span)>,
    tokens: Vec<Token>,
    line_starts: Vec<usize>,
}

/// Something with bytes of its own, in the order of the file.
struct Token {
    range: Range<usize>,
    event: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A scalar that is a value; `flow` within `[...]` or `{...}`.
    Value {
        flow: bool,
    },
    /// A scalar that is the key of a mapping.
    Key,
    Alias,
    /// A bracket or brace.
    Flow,
    /// The begin or end of a document.
    Document,
}

/// What stands before a comment on its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The value that this event is.
    Value { event: usize, flow: bool },
    /// Nothing: the comment has the line for itself.
    Nothing,
    /// The `|` or `>` of a block scalar.
    BlockScalar,
    /// The alias `*name`.
    Alias,
    /// A bracket or brace.
    Flow,
    /// A key whose value is empty or on other lines, or an explicit key.
    Key,
    /// A dash, anchor, tag or `---` without a value on this line.
    Syntax,
}

/// Why a file is no page.
pub(super) struct Unreadable {
    line: u32,
    column: u32,
    message: String,
}

impl Unreadable {
    fn new(bytes: &[u8], at: usize, message: &str) -> Self {
        let line_starts = line_starts(bytes);
        let line_start = line_starts.iter().rfind(|start| **start <= at).copied().unwrap_or_default();
        let before = bytes.get(line_start..at).unwrap_or_default();
        let column = String::from_utf8_lossy(before).chars().count() + 1;
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        Unreadable { line: line(&line_starts, at), column, message: message.into() }
    }

    /// The error for a file that matters; `why` it does.
    pub(super) fn of(self, path: &str, why: &'static str) -> SetError {
        let Unreadable { line, column, message } = self;
        SetError::UnparsableFile { at: At { path: path.into(), line }, why, column, message }
    }
}

impl<'t> Page<'t> {
    pub(super) fn read(bytes: &'t [u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Unreadable::new(bytes, error.valid_up_to(), "it is not UTF-8"))?;
        Page::parse(text).map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or_default();
            Unreadable::new(bytes, at, &error.info())
        })
    }

    pub(super) fn parse(text: &'t str) -> Result<Self, ScanError> {
        let options = granit_parser::options! {
            emit_anchor_events: true,
            // Values files have hundreds of commented lines under one key.
            max_buffered_comment_events: text.len(),
        };
        let events = Parser::new_from_str_with_options(text, options).collect::<Result<Vec<_>, _>>()?;
        let mut tokens = tokens(&events);
        tokens.sort_by_key(|token| (token.range.start, token.range.end));
        Ok(Self { text, events, tokens, line_starts: line_starts(text.as_bytes()) })
    }

    /// The comments: what follows the `#`, and where.
    pub(super) fn comments(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.events.iter().filter_map(|(event, span)| match event {
            Event::Comment(text, _) => Some((text.as_ref(), span.byte_range()?)),
            _ => None,
        })
    }

    /// What would be comments with a marker if plain and block scalars had comments: what follows the
    /// `#`, where that is, and whether the scalar is a block.
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
                let comment = line[..line.find(NEEDLE)?].rfind('#')?;
                Some((&line[comment + 1..], start + comment, block))
            })
        })
    }

    /// What stands before the comment that begins at this byte.
    pub(super) fn before(&self, comment: usize) -> Before {
        let line = self.line_starts.partition_point(|start| *start <= comment).saturating_sub(1);
        let line_start = self.line_starts.get(line).copied().unwrap_or_default();
        let end = self.tokens.partition_point(|token| token.range.start < comment);
        let last = self.tokens[..end].iter().rfind(|token| !token.range.is_empty());
        let last = last.filter(|token| token.range.end > line_start && token.range.end <= comment);
        let gap_start = last.map_or(line_start, |token| token.range.end);
        let gap = self.text.get(gap_start..comment).unwrap_or_default().trim();
        let gap = if line_start == 0 { gap.trim_start_matches('\u{feff}') } else { gap };
        let word = gap.rsplit(char::is_whitespace).next().unwrap_or_default();
        match (last.map(|token| (token.kind, token.event)), gap) {
            (Some((Kind::Value { flow }, event)), "") => Before::Value { event, flow },
            (Some((Kind::Value { flow: true }, event)), ",") => Before::Value { event, flow: true },
            (Some((Kind::Alias, _)), "" | ",") => Before::Alias,
            (Some((Kind::Flow, _)), "" | ",") => Before::Flow,
            (Some((Kind::Key, _)), "" | "," | ":") => Before::Key,
            (Some((Kind::Document, _)), "") => Before::Syntax,
            (None, "") => Before::Nothing,
            _ if word.starts_with(['|', '>']) => Before::BlockScalar,
            _ if word == ":" => Before::Key,
            _ => Before::Syntax,
        }
    }

    /// The line of a byte, in a file of this path.
    pub(super) fn at(&self, path: &str, byte: usize) -> At {
        At { path: path.into(), line: self.line(byte) }
    }

    /// The line of a byte, from 1.
    pub(super) fn line(&self, byte: usize) -> u32 {
        line(&self.line_starts, byte)
    }
}

/// Where the lines begin. They end with LF, CR or both.
fn line_starts(bytes: &[u8]) -> Vec<usize> {
    let ends = bytes.iter().enumerate().filter(|(at, b)| match b {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
}

/// The line of a byte, from 1.
fn line(line_starts: &[usize], byte: usize) -> u32 {
    u32::try_from(line_starts.partition_point(|start| *start <= byte)).unwrap_or(u32::MAX)
}

/// A collection that is open while the events go by.
struct Open {
    flow: bool,
    mapping: bool,
    /// In a mapping: the next node is a key.
    key_next: bool,
}

fn tokens(events: &[(Event<'_>, Span)]) -> Vec<Token> {
    let mut open: Vec<Open> = Vec::new();
    let mut tokens = Vec::new();
    for (event, (what, span)) in events.iter().enumerate() {
        let kind = match what {
            Event::Scalar(..) => match enter(&mut open) {
                (true, _) => Some(Kind::Key),
                (false, flow) => Some(Kind::Value { flow }),
            },
            Event::Alias(_) => {
                enter(&mut open);
                Some(Kind::Alias)
            }
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                enter(&mut open);
                let flow = *style == StructureStyle::Flow;
                let mapping = matches!(what, Event::MappingStart(..));
                open.push(Open { flow, mapping, key_next: true });
                flow.then_some(Kind::Flow)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop().filter(|collection| collection.flow).map(|_| Kind::Flow)
            }
            Event::DocumentStart(..) | Event::DocumentEnd => Some(Kind::Document),
            _ => None,
        };
        if let (Some(kind), Some(range)) = (kind, span.byte_range()) {
            tokens.push(Token { range, event, kind });
        }
    }
    tokens
}

/// A node begins: whether it is a key, and whether it is within a flow collection.
fn enter(open: &mut [Open]) -> (bool, bool) {
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
    fn knows_what_stands_before_a_comment() {
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
            let page = Page::parse(text).unwrap();
            let found = page.before(page.comments().next().unwrap().1.start);
            let found = match found {
                Before::Value { .. } => "value",
                Before::Nothing => "nothing",
                Before::BlockScalar => "block",
                Before::Alias => "alias",
                Before::Flow => "flow",
                Before::Key => "key",
                Before::Syntax => "syntax",
            };
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn counts_lines_as_yaml_does() {
        for (text, expected) in [("", 1), ("a\nb", 2), ("a\r\nb", 2), ("a\rb", 2), ("\n\r\n\r", 4)] {
            assert_eq!(line(&line_starts(text.as_bytes()), text.len()), expected, "{text:?}");
        }
    }
}
