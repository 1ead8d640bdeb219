//! Paths to values in a YAML document: `spec.values.image.tag`, `containers[name=app].image`,
//! `list[0]`, `annotations["example.com/version"]`.

use std::fmt;
use std::str::FromStr;

/// A path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field(pub Vec<Step>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a mapping, by key.
    Key(String),
    /// Into a list, by index from 0.
    Index(usize),
    /// Into a list, to the one entry that has this value under this key.
    Match(String, String),
}

impl Field {
    /// The same path with every name put through `change`.
    pub(super) fn map<E>(&self, mut change: impl FnMut(&str) -> Result<String, E>) -> Result<Field, E> {
        let step = |step: &Step| {
            Ok(match step {
                Step::Key(key) => Step::Key(change(key)?),
                Step::Index(place) => Step::Index(*place),
                Step::Match(key, value) => Step::Match(change(key)?, change(value)?),
            })
        };
        self.0.iter().map(step).collect::<Result<_, _>>().map(Field)
    }

    /// Returns the keys and values in the path. A text that has the field contains all of them.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .flat_map(|step| match step {
                Step::Key(key) => [Some(key.as_str()), None],
                Step::Index(_) => [None, None],
                Step::Match(key, value) => [Some(key.as_str()), Some(value.as_str())],
            })
            .flatten()
    }
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (inside, behind) = inside.split_once(']').ok_or("a [ has no closing ]")?;
                steps.push(bracket(inside)?);
                rest = behind;
                continue;
            }
            let key = match rest.strip_prefix('.') {
                Some(key) if !steps.is_empty() => key,
                None if steps.is_empty() => rest,
                _ => return Err(format!("{rest:?} has no place there")),
            };
            let end = key.find(['.', '[']).unwrap_or(key.len());
            let (key, behind) = key.split_at(end);
            if key.is_empty() || key.contains(|c: char| c == ']' || c.is_whitespace()) {
                return Err(format!(
                    "{key:?} is no key; write odd ones in brackets and quotes, as [\"a key\"]"
                ));
            }
            steps.push(Step::Key(key.into()));
            rest = behind;
        }
        if steps.is_empty() { Err("it is empty".into()) } else { Ok(Field(steps)) }
    }
}

fn bracket(inside: &str) -> Result<Step, String> {
    if !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit()) {
        // A number that does not fit is the index of no entry.
        return Ok(Step::Index(inside.parse().unwrap_or(usize::MAX)));
    }
    if let Some(key) = unquoted(inside) {
        return Ok(Step::Key(key.into()));
    }
    match inside.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok(Step::Match(key.into(), unquoted(value).unwrap_or(value).into()))
        }
        _ => Err(format!(
            "[{inside}] is neither a place as [0], nor a match as [name=app], nor a key as [\"a.b\"]"
        )),
    }
}

fn unquoted(text: &str) -> Option<&str> {
    let inside = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).filter(|inside| !inside.is_empty())
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if key.contains(['.', '[', ']', ' ']) => write!(f, "[{key:?}]")?,
                Step::Key(key) if i == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(place) => write!(f, "[{place}]")?,
                Step::Match(key, value) => write!(f, "[{key}={value}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_and_written() {
        for (text, steps) in [
            ("a", 1),
            ("spec.chart.spec.version", 4),
            ("spec.template.spec.containers[name=app].image", 6),
            ("images[name=ghcr.io/x/app].newTag", 3),
            ("[0][1].a", 3),
            ("a[\"example.com/v\"].b", 3),
        ] {
            let field: Field = text.parse().unwrap();
            assert_eq!(field.0.len(), steps, "{text}");
            assert_eq!(field.to_string(), text);
        }
        let quoted: Field = "a['b.c'][k=\"v w\"]".parse().unwrap();
        let steps =
            vec![Step::Key("a".into()), Step::Key("b.c".into()), Step::Match("k".into(), "v w".into())];
        assert_eq!(quoted, Field(steps));
    }

    #[test]
    fn a_malformed_field_is_an_error() {
        for text in [
            "", ".", "a.", ".a", "a..b", "a[", "a[]", "a[b]", "a[=b]", "a[b=]", "a]", "a b", "a[0]b",
            "a[\"\"]",
        ] {
            assert!(text.parse::<Field>().is_err(), "{text:?}");
        }
    }
}
