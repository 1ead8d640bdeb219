//! The parameters of a request, and the fields of a body. Each problem says what is wrong and what to write instead, in the
//! words of the API.

use std::fmt;

use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::Value;
use sluice_core::nearest::nearest;
use sluice_core::value_check::visible;

use crate::problem::Problem;

/// The most bytes of a value in a problem.
const MAX_SHOWN_BYTES: usize = 60;

/// The parameters of a request.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        of_uri(&parts.uri).map(Parameters)
    }
}

/// Returns the parameters of an address.
///
/// # Errors
/// When a parameter is wrong.
pub(crate) fn of_uri<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let unreadable = |_| Problem::bad_request("the part after ? cannot be read: write name=value&name=value");
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(unreadable)?;
    read(pairs).map_err(Problem::bad_request)
}

/// Returns the fields of a JSON body, which are all texts.
///
/// # Errors
/// The sentence that says what is wrong.
pub(crate) fn body_fields<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let example = r#"send an object such as {"name": "value"}, as /openapi.json describes it"#;
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        format!("the body is not JSON at line {}, column {}: {example}", error.line(), error.column())
    })?;
    let Value::Object(fields) = value else { return Err(format!("the body is not an object: {example}")) };
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => Err(format!("{} is not a text: write it in quotes", shown(&name))),
    };
    read(fields.into_iter().map(text).collect::<Result<_, _>>()?)
}

/// Returns the parameters with these names and values.
fn read<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T, String> {
    let values = pairs.into_iter().map(|(name, text)| (name.clone(), NamedText { name, text }));
    T::deserialize(MapDeserializer::new(values)).map_err(|WrongParameter(why)| why)
}

/// The value of a parameter, as it was sent.
struct NamedText {
    name: String,
    text: String,
}

impl NamedText {
    fn wrong(&self, what_to_write: impl fmt::Display) -> WrongParameter {
        WrongParameter(format!("{}={}: {what_to_write}", shown(&self.name), shown(&self.text)))
    }
}

/// Returns a text of a caller in a form that problems can have.
fn shown(text: &str) -> String {
    visible(text, MAX_SHOWN_BYTES)
}

/// What is wrong with a parameter.
#[derive(Debug)]
struct WrongParameter(String);

impl std::error::Error for WrongParameter {}

impl fmt::Display for WrongParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl de::Error for WrongParameter {
    fn custom<T: fmt::Display>(why: T) -> Self {
        WrongParameter(why.to_string())
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let name = shown(name);
        if known.is_empty() {
            return WrongParameter(format!("there is no parameter {name}: leave it out"));
        }
        let meant = nearest(&name, known.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        WrongParameter(format!("there is no parameter {name}: write one of {}{meant}", known.join(", ")))
    }

    fn missing_field(name: &'static str) -> Self {
        WrongParameter(format!("{name} is missing: /openapi.json describes it"))
    }

    fn duplicate_field(name: &'static str) -> Self {
        WrongParameter(format!("{name} is there twice: write it once"))
    }
}

impl<'de> IntoDeserializer<'de, WrongParameter> for NamedText {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for NamedText {
    type Error = WrongParameter;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongParameter> {
        visitor.visit_string(self.text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongParameter> {
        match self.text.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.wrong("write true or false")),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, WrongParameter> {
        let wrong = NamedText { name: self.name.clone(), text: self.text.clone() };
        visitor.visit_newtype_struct(self).map_err(|WrongParameter(why)| wrong.wrong(why))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongParameter> {
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::list_parameters::Limit;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Query {
        name: String,
        outliers: bool,
        limit: Limit,
    }

    fn problem(pairs: &[(&str, &str)]) -> String {
        let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        read::<Query>(pairs).unwrap_err()
    }

    #[test]
    fn a_wrong_parameter_says_what_to_write() {
        let limit = "write a whole number from 1 to 5000";
        for (pairs, why) in [
            (&[("limit", "0")][..], format!("limit=0: {limit}")),
            (&[("limit", "5001")], format!("limit=5001: {limit}")),
            (&[("limit", "-1")], format!("limit=-1: {limit}")),
            (&[("limit", "")], format!("limit=: {limit}")),
            (&[("limit", "many")], format!("limit=many: {limit}")),
            (&[("outliers", "yes")], "outliers=yes: write true or false".into()),
            (&[("name", "a"), ("name", "b")], "name is there twice: write it once".into()),
            (
                &[("nmae", "a")],
                "there is no parameter nmae: write one of name, outliers, limit; did you mean name?".into(),
            ),
            (&[("a\u{1b}", "a")], "there is no parameter a: write one of name, outliers, limit".into()),
        ] {
            assert_eq!(problem(pairs), why);
        }
        let long = problem(&[("limit", &"9".repeat(10_000))]);
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn right_parameters_are_read() {
        let pairs = [("name", "5"), ("outliers", "true"), ("limit", "7")];
        let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
        let query: Query = read(pairs).unwrap();
        assert_eq!((query.name.as_str(), query.outliers, query.limit.rows()), ("5", true, 7));
        assert_eq!(read::<Query>(vec![]).unwrap().limit.rows(), 500);
    }

    #[test]
    fn a_wrong_body_says_what_to_send() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "only errors are looked at")]
        struct Body {
            seen: String,
        }
        let example = r#"send an object such as {"name": "value"}, as /openapi.json describes it"#;
        for (body, why) in [
            ("{\"seen\"", format!("the body is not JSON at line 1, column 7: {example}")),
            ("", format!("the body is not JSON at line 1, column 0: {example}")),
            ("[]", format!("the body is not an object: {example}")),
            ("{}", "seen is missing: /openapi.json describes it".into()),
            (r#"{"seen": 1}"#, "seen is not a text: write it in quotes".into()),
            (r#"{"sen": "1"}"#, "there is no parameter sen: write one of seen; did you mean seen?".into()),
        ] {
            assert_eq!(body_fields::<Body>(body.as_bytes()).unwrap_err(), why, "{body}");
        }
        assert_eq!(body_fields::<Body>(br#"{"seen": "a"}"#).unwrap().seen, "a");
    }
}
