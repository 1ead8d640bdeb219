//! Reads a comment as a promotion marker. A malformed comment that was plainly meant as a marker of this environment is
//! an error. Ignoring it, as the predecessor did, would set fewer values than the author wants.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::choice::Choice;
use super::set_error::{Location, SetError};
use crate::revision::Revision;

/// The key that every marker contains. A file without it needs no further look. It is searched without JSON's quotes, so
/// that a marker whose quotes were forgotten is found and reported.
pub const MARKER_KEY: &str = "$promotion";

/// Returns true if a file may have markers of any pipeline: the cheap test before [`set_marked`](super::set_marked).
pub fn mentions(bytes: &[u8]) -> bool {
    bytes.windows(MARKER_KEY.len()).any(|window| window == MARKER_KEY.as_bytes())
}

/// Returns the name in a marker, as it is written there; `None` if the text after the `#` is not a well-formed marker.
pub(super) fn marker_name(comment: &str) -> Option<String> {
    let StringFields(mut fields) = serde_json::from_str(comment.trim()).ok()?;
    fields.remove(MARKER_KEY)
}

/// A well-formed marker of the requested environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Marker {
    /// The only target that the marker is for.
    pub target: Option<String>,
    value: Option<String>,
    workload: Option<String>,
}

/// A comment, as seen from the requested environment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkerComment {
    /// No marker, or one of another environment.
    Other,
    /// A marker of the environment.
    Marker(Marker),
    /// A malformed marker of the environment: what is wrong with it.
    Malformed(String),
}

/// Reads the text after the `#`. `name` is `namespace:pipeline:environment`.
pub(super) fn read(comment: &str, name: &str) -> MarkerComment {
    if !comment.contains(MARKER_KEY) {
        return MarkerComment::Other;
    }
    let fields = match serde_json::from_str::<StringFields>(comment.trim()) {
        Ok(StringFields(fields)) => fields,
        Err(error) if names(comment, name) => {
            return MarkerComment::Malformed(malformed(comment.trim(), &error));
        }
        Err(_) => return MarkerComment::Other,
    };
    match fields.get(MARKER_KEY) {
        Some(found) if found == name => well_formed(&fields),
        Some(found) if names(found, name) => MarkerComment::Malformed(format!(
            "names {found:?}, which is not <namespace>:<pipeline>:<environment>"
        )),
        None if names(comment, name) => MarkerComment::Malformed(format!("has no key {MARKER_KEY:?}")),
        _ => MarkerComment::Other,
    }
}

fn well_formed(fields: &BTreeMap<String, String>) -> MarkerComment {
    for key in fields.keys() {
        let known = ["target", "value", "workload"];
        let almost = ["targ", "val", "work"].iter().any(|start| key.to_lowercase().starts_with(start));
        if almost && !known.contains(&key.as_str()) {
            return MarkerComment::Malformed(format!(
                "has the key {key:?}, where only {} are known",
                known.join(", ")
            ));
        }
    }
    let field = |key: &str| fields.get(key).cloned();
    MarkerComment::Marker(Marker {
        target: field("target"),
        value: field("value"),
        workload: field("workload"),
    })
}

/// Returns true if the text names the environment, not as a part of a longer name.
pub(super) fn names(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(|c| part(c) || c == ':') && !after.is_some_and(part)
    })
}

fn malformed(body: &str, error: &serde_json::Error) -> String {
    let Some(brace) = body.find('{') else { return "is not a JSON object".into() };
    if brace > 0 {
        return format!("has {:?} before the JSON object", body[..brace].trim());
    }
    let mut objects = serde_json::Deserializer::from_str(body).into_iter::<StringFields>();
    if matches!(objects.next(), Some(Ok(_))) {
        return format!("has {:?} after the JSON object", body[objects.byte_offset()..].trim());
    }
    if body.contains('\'') && !body.contains('"') {
        return "has single quotes, and JSON wants double ones".into();
    }
    format!("is not a JSON object of strings ({error})")
}

/// A JSON object whose values are strings. No key may occur twice.
struct StringFields(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for StringFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = StringFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringFields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if fields.insert(key.clone(), value).is_some() {
                        return Err(A::Error::custom(format_args!("the key {key:?} is there twice")));
                    }
                }
                Ok(StringFields(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl Marker {
    /// Returns the value of the revision that this marker asks for.
    pub(super) fn choice(&self, revision: &Revision, at: &Location, name: &str) -> Result<Choice, SetError> {
        let facet = self.value.as_deref().map(str::parse).transpose().map_err(|wrong| {
            let one = revision.facets().next().map(|(key, _)| key.facet.to_string()).unwrap_or_default();
            SetError::BadMarker {
                at: at.clone(),
                problem: format!("has a \"value\" that is none ({wrong})"),
                instead: format!("{{\"{MARKER_KEY}\": \"{name}\", \"value\": \"{one}\"}}"),
            }
        })?;
        Ok(Choice { facet, workload: self.workload.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(comment: &str) -> &'static str {
        match read(comment, "ns:app:prod") {
            MarkerComment::Other => "not ours",
            MarkerComment::Marker(_) => "ours",
            MarkerComment::Malformed(_) => "bad",
        }
    }

    #[test]
    fn a_marker_is_a_json_object_of_strings_that_names_the_environment() {
        for (comment, expected) in [
            (r#" {"$promotion": "ns:app:prod"}"#, "ours"),
            (r#"{"$promotion":"ns:app:prod"}"#, "ours"),
            ("\t {  \"$promotion\" :\t\"ns:app:prod\"  }  ", "ours"),
            (r#" {"$imagepolicy": "ns:p:tag", "$promotion": "ns:app:prod"}"#, "ours"),
            (r#" {"$promotion": "ns:app:prod", "note": "anything"}"#, "ours"),
            (r#" {"$promotion": "ns:app:prod", "target": "eu", "value": "app"}"#, "ours"),
            (r#" {"$promotion": "ns:app:prod-eu"}"#, "not ours"),
            (r#" {"$promotion": "ns:app:preprod"}"#, "not ours"),
            (r#" {"$promotion": "other-ns:app:prod"}"#, "not ours"),
            (r#" {"$promotion": "ns:app:prod/eu"}"#, "not ours"),
            (r#" {"$promotion": "ns:app:staging", "note": "ns:app:prod"}"#, "not ours"),
            (r#" {"$imagepolicy": "ns:app:prod"}"#, "not ours"),
            (" ns:app:prod", "not ours"),
            (" {$promotion: ns:app:staging}", "not ours"),
            (" {$promotion: ns:app:prod}", "bad"),
            (" {'$promotion': 'ns:app:prod'}", "bad"),
            (r#" {"$promotion": "ns:app:prod"} note"#, "bad"),
            (r#" note {"$promotion": "ns:app:prod"}"#, "bad"),
            (r#" {"$promotion": "ns:app:prod"} {"a": "b"}"#, "bad"),
            (r#" {"$promotion": "ns:app:prod""#, "bad"),
            (r#" {"$promotion": "ns:app:prod:tag"}"#, "bad"),
            (r#" {"$promotion": "ns:app:prod "}"#, "bad"),
            (r#" {"$promotion": ["ns:app:prod"]}"#, "bad"),
            (r#" {"$promotion": "ns:app:prod", "n": 1}"#, "bad"),
            (r#" {"$promotion": "ns:app:dev", "$promotion": "ns:app:prod"}"#, "bad"),
            (r#" {"$promotion": "ns:app:prod", "targets": "eu"}"#, "bad"),
            (r#" {"$promotion": "ns:app:prod", "Value": "app"}"#, "bad"),
            (r#" {"promotion": "ns:app:prod", "x": "$promotion"}"#, "bad"),
            (r#" "$promotion": "ns:app:prod""#, "bad"),
        ] {
            assert_eq!(reading(comment), expected, "{comment}");
        }
    }

    #[test]
    fn an_invalid_marker_is_reported_with_what_is_wrong() {
        for (comment, expected) in [
            (" {'$promotion': 'ns:app:prod'}", "has single quotes, and JSON wants double ones"),
            (r#" {"$promotion": "ns:app:prod"} # x"#, "has \"# x\" after the JSON object"),
            (r#" old # {"$promotion": "ns:app:prod"}"#, "has \"old #\" before the JSON object"),
            (r#" "$promotion" ns:app:prod"#, "is not a JSON object"),
        ] {
            assert_eq!(read(comment, "ns:app:prod"), MarkerComment::Malformed(expected.into()), "{comment}");
        }
    }
}
