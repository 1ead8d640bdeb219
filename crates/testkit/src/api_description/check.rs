//! Compares requests and answers with a description. Each difference is a sentence.

use super::description::{ApiDescription, Field, Kind, Operation, Slot};
use axum::http::Method;
use serde_json::Value;

/// A request, decoded.
pub(super) struct Call<'a> {
    pub(super) method: &'a Method,
    /// The parts of the path below the address of the API.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: &'a [u8],
}

impl ApiDescription {
    /// Returns the operation of a call.
    pub(super) fn operation(&self, call: &Call<'_>) -> Option<&Operation> {
        let fits = |part: &String, is: &String| part.contains('{') && !is.is_empty() || part == is;
        self.operations.iter().find(|one| {
            one.method == call.method.as_str()
                && one.path.len() == call.path.len()
                && one.path.iter().zip(&call.path).all(|(part, is)| fits(part, is))
        })
    }

    /// Returns the differences of a request.
    pub(super) fn check_request(&self, operation: &Operation, call: &Call<'_>) -> Vec<String> {
        let mut found = Vec::new();
        for (name, text) in &call.query {
            match operation.query.iter().find(|field| field.name == *name) {
                Some(field) => check_parameter(field, text, &mut found),
                None => found.push(format!("the parameter {name} is not documented")),
            }
        }
        let is_sent = |field: &&Field| !call.query.iter().any(|(name, _)| *name == field.name);
        let missing = operation.query.iter().filter(|field| field.is_required).filter(is_sent);
        found.extend(missing.map(|field| format!("the parameter {} is missing", field.name)));
        match &operation.body {
            None if !call.body.is_empty() => found.push("a body is not documented".into()),
            None => {}
            Some(slot) => self.check_body("body", slot, call.body, &mut found),
        }
        found
    }

    /// Returns the differences of an answer.
    pub(super) fn check_answer(&self, operation: &Operation, status: u16, body: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        match operation.answers.get(&status).or(self.every.get(&status)) {
            None => found.push(format!("the status {status} is not documented")),
            Some(None) => {}
            Some(Some(slot)) => self.check_body("answer", slot, body, &mut found),
        }
        found
    }

    fn check_body(&self, at: &str, slot: &Slot, body: &[u8], found: &mut Vec<String>) {
        match serde_json::from_slice(body) {
            Ok(value) => self.check(at, slot, &value, found),
            Err(error) => found.push(format!("{at} is not JSON: {error}")),
        }
    }

    fn check(&self, at: &str, slot: &Slot, value: &Value, found: &mut Vec<String>) {
        let fits = match (&slot.kind, value) {
            (Kind::Any, _) => true,
            (_, Value::Null) => slot.may_be_null,
            (Kind::Text, Value::String(_))
            | (Kind::Boolean, Value::Bool(_))
            | (Kind::Number, Value::Number(_)) => true,
            (Kind::Integer, Value::Number(number)) => number.is_i64() || number.is_u64(),
            (Kind::Words(words), Value::String(text)) => words.contains(text),
            (Kind::List(of), Value::Array(list)) => {
                let check = |(index, one)| self.check(&format!("{at}[{index}]"), of, one, found);
                list.iter().enumerate().for_each(check);
                true
            }
            (Kind::Object(fields), Value::Object(_)) => {
                self.check_object(at, fields, value, found);
                true
            }
            (Kind::Named(names), Value::Object(_)) => {
                self.check_named(at, names, value, found);
                true
            }
            _ => false,
        };
        if !fits {
            found.push(format!("{at} is {}, and is documented as {}", short(value), expected(slot)));
        }
    }

    /// Checks an object that has one of several types.
    fn check_named(&self, at: &str, names: &[String], value: &Value, found: &mut Vec<String>) {
        let mut fewest: Option<Vec<String>> = None;
        for fields in names.iter().filter_map(|name| self.types.get(name)) {
            let mut differences = Vec::new();
            self.check_object(at, fields, value, &mut differences);
            if fewest.as_ref().is_none_or(|before| differences.len() < before.len()) {
                fewest = Some(differences);
            }
        }
        found.extend(fewest.unwrap_or_default());
    }

    fn check_object(&self, at: &str, fields: &[Field], value: &Value, found: &mut Vec<String>) {
        for (name, part) in value.as_object().into_iter().flatten() {
            match fields.iter().find(|field| field.name == *name) {
                Some(field) => self.check(&format!("{at}.{name}"), &field.slot, part, found),
                None => found.push(format!("{at}.{name} is not documented")),
            }
        }
        let missing = fields.iter().filter(|field| field.is_required && value.get(&field.name).is_none());
        found.extend(missing.map(|field| format!("{at}.{} is missing", field.name)));
    }
}

fn check_parameter(field: &Field, text: &str, found: &mut Vec<String>) {
    let fits = match &field.slot.kind {
        Kind::Integer => text.parse::<i64>().is_ok(),
        Kind::Boolean => matches!(text, "true" | "false"),
        Kind::Words(words) => words.iter().any(|word| word == text),
        _ => true,
    };
    if !fits {
        let (name, slot) = (&field.name, expected(&field.slot));
        found.push(format!("the parameter {name} is {text}, and is documented as {slot}"));
    }
}

fn expected(slot: &Slot) -> String {
    let kind = match &slot.kind {
        Kind::Text => "a text".into(),
        Kind::Integer => "an integer".into(),
        Kind::Number => "a number".into(),
        Kind::Boolean => "true or false".into(),
        Kind::Any => "anything".into(),
        Kind::Words(words) => format!("one of {}", words.join(", ")),
        Kind::List(_) => "a list".into(),
        Kind::Object(_) => "an object".into(),
        Kind::Named(names) => names.join(" or "),
    };
    if slot.may_be_null { format!("{kind}, or null") } else { kind }
}

/// The begin of a value.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
