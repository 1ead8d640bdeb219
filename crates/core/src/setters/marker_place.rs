//! Finds the value that a comment with a marker belongs to: before the comment on the same line, or on the line below.

use std::ops::Range;

use super::parsed_document::{ParsedDocument, TokenKind};

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

impl ParsedDocument<'_> {
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
}

#[cfg(test)]
mod tests {
    use granit_parser::Event;

    use super::*;
    use crate::setters::limits::MAX_FILE_EVENTS;

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
}
