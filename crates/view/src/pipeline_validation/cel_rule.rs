//! Evaluates the validation rules of the CRDs, which are CEL expressions, as an API server does: with escaped names of
//! fields, and with the functions that Kubernetes adds to CEL (kubernetes.io, "Common Expression Language in Kubernetes").

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use cel::extractors::This;
use cel::{Context, ExecutionError, Program};
use regex::Regex;
use serde_json::Value;
use sluice_core::lock::lock;

type Text = Arc<String>;
type Elements = Arc<Vec<cel::Value>>;

/// The rules that were compiled, which takes longer than to evaluate them. All are of the CRDs, so there are few.
static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Program>>>> = LazyLock::new(Mutex::default);

/// Returns true if a value meets a rule.
///
/// # Errors
/// When the rule uses a function that is not implemented here.
pub(super) fn holds(rule: &str, value: &Value) -> Result<bool, String> {
    let program = compiled(rule)?;
    let mut context = Context::default();
    context.add_function("replace", |This(text): This<Text>, from: Text, to: Text| {
        text.replace(from.as_str(), to.as_str())
    });
    context.add_function("findAll", find_all);
    context.add_function("lowerAscii", |This(text): This<Text>| text.to_ascii_lowercase());
    context.add_function("trim", |This(text): This<Text>| text.trim().to_owned());
    context.add_function("type", kind);
    context.add_function("indexOf", |This(list): This<Elements>, wanted: cel::Value| {
        index(list.iter().position(|element| *element == wanted))
    });
    context.add_function("lastIndexOf", |This(list): This<Elements>, wanted: cel::Value| {
        index(list.iter().rposition(|element| *element == wanted))
    });
    let mut add = |name: &str, value: &Value| context.add_variable(name, value).map_err(|e| e.to_string());
    add("self", &escaped(value))?;
    for name in ["int", "string", "bool"] {
        add(name, &Value::from(name))?;
    }
    match program.execute(&context) {
        Ok(cel::Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err("the result is not a boolean".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn compiled(rule: &str) -> Result<Arc<Program>, String> {
    let mut known = lock(&COMPILED);
    if let Some(program) = known.get(rule) {
        return Ok(program.clone());
    }
    let program = Arc::new(Program::compile(rule).map_err(|error| error.to_string())?);
    known.insert(rule.into(), program.clone());
    Ok(program)
}

/// Returns the index of an element in a list; -1 if the list does not have it.
fn index(place: Option<usize>) -> i64 {
    place.and_then(|place| place.try_into().ok()).unwrap_or(-1)
}

fn find_all(This(text): This<Text>, pattern: Text) -> Result<cel::Value, ExecutionError> {
    let error = |error: regex::Error| ExecutionError::function_error("findAll", error.to_string());
    let pattern = Regex::new(&pattern).map_err(error)?;
    let found = pattern.find_iter(&text).map(|found| cel::Value::String(Arc::new(found.as_str().into())));
    Ok(cel::Value::List(Arc::new(found.collect())))
}

/// Returns the name of a value's type. The names of types are variables with the same value.
fn kind(value: cel::Value) -> Result<cel::Value, ExecutionError> {
    let name = match value {
        cel::Value::Int(_) | cel::Value::UInt(_) => "int",
        cel::Value::String(_) => "string",
        cel::Value::Bool(_) => "bool",
        _ => "other",
    };
    Ok(cel::Value::String(Arc::new(name.into())))
}

/// Returns a value with the keys of its objects escaped, and without nulls, which count as absent.
fn escaped(value: &Value) -> Value {
    let key = |key: &str| {
        let escapes = [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];
        escapes.iter().fold(key.to_owned(), |key, (from, to)| key.replace(from, to))
    };
    match value {
        Value::Object(fields) => {
            let there = fields.iter().filter(|(_, field)| !field.is_null());
            Value::Object(there.map(|(name, field)| (key(name), escaped(field))).collect())
        }
        Value::Array(items) => items.iter().map(escaped).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray,
    };
    use serde_json::json;

    use super::*;

    fn rules(schema: &JSONSchemaProps, found: &mut Vec<String>) {
        found.extend(schema.x_kubernetes_validations.iter().flatten().map(|rule| rule.rule.clone()));
        schema.properties.iter().flatten().for_each(|(_, field)| rules(field, found));
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            rules(items, found);
        }
    }

    /// A rule that is not evaluated would accept values that the server refuses.
    #[test]
    fn every_rule_of_a_pipeline_can_be_evaluated() {
        let crd = sluice_api::all_crds().remove(0);
        let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
        let mut all = Vec::new();
        rules(&schema, &mut all);
        assert!(all.len() > 20, "{}", all.len());
        let values = [
            json!("a"),
            json!(7),
            json!(["a"]),
            json!([{"name": "a", "targets": [{"namespace": "a"}]}]),
            json!({}),
            json!({"environments": [{"name": "a", "targets": [{"namespace": "a"}]}], "type": "github", "url": "https://h/a",
                "merge": "Never", "labels": [], "strategy": {}}),
        ];
        for rule in all.iter().filter(|rule| !rule.contains("oldSelf")) {
            let found: Vec<_> = values.iter().map(|value| holds(rule, value)).collect();
            assert!(found.iter().any(Result::is_ok), "{rule}: {found:?}");
            let is_missing = |error: &String| error.contains("Undeclared");
            assert!(
                !found.iter().filter_map(|found| found.as_ref().err()).any(is_missing),
                "{rule}: {found:?}"
            );
        }
    }

    #[test]
    fn the_place_of_an_element_is_found_from_either_end() {
        let places = |wanted: &str| {
            let at = |function: &str, place: i64| {
                holds(&format!("self.{function}({wanted}) == {place}"), &json!(["a", "b", "a"]))
            };
            [at("indexOf", 0), at("lastIndexOf", 2), at("indexOf", -1), at("lastIndexOf", -1)]
        };
        assert_eq!(places("'a'"), [true, true, false, false].map(Ok));
        assert_eq!(places("'c'"), [false, false, true, true].map(Ok));
    }

    #[test]
    fn fields_have_escaped_names_and_nulls_are_absent() {
        let value = json!({"pull-request": {"a.b": 1}, "commit": null});
        assert_eq!(holds("has(self.pull__dash__request) && !has(self.commit)", &value), Ok(true));
        assert_eq!(holds("self.pull__dash__request.a__dot__b == 2", &value), Ok(false));
        assert_eq!(holds("'a{b}{c}'.findAll('[{][^}]*[}]').all(v, v in ['{b}'])", &value), Ok(false));
        assert!(holds("self.quantity()", &value).is_err());
    }
}
