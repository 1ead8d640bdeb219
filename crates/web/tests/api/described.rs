//! The answers have the form that `/openapi.json` describes.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::ask;

/// Finds where a value differs from a schema: another type or value, fields that the schema does not have, and required
/// ones that are missing.
fn differences(document: &Value, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/schemas/")) {
        return differences(document, &document["components"]["schemas"][name], value, path, found);
    }
    let alternatives = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(alternatives) = alternatives {
        let differs = |schema: &Value| {
            let mut found = Vec::new();
            differences(document, schema, value, path, &mut found);
            found
        };
        let all: Vec<Vec<String>> = alternatives.iter().map(differs).collect();
        if all.iter().all(|found| !found.is_empty()) {
            found.push(format!("{path} is none of the alternatives: {all:?}"));
        }
        return;
    }
    let constant = schema.get("const").map(std::slice::from_ref);
    if let Some(values) = schema["enum"].as_array().map(Vec::as_slice).or(constant)
        && !values.contains(value)
    {
        found.push(format!("{path} is {value}, not one of {values:?}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ if schema.get("const").is_some() || schema["enum"].is_array() => return,
        _ => return found.push(format!("the schema of {path} says nothing: {schema}")),
    };
    let is = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::Null => "null",
    };
    if !types.contains(&is) {
        found.push(format!("{path} is of type {is}, not {types:?}"));
    }
    match value {
        Value::Object(fields) => {
            let others = schema.get("additionalProperties").filter(|schema| schema.is_object());
            for (name, value) in fields {
                match schema["properties"].get(name).or(others) {
                    Some(schema) => differences(document, schema, value, &format!("{path}.{name}"), found),
                    None => found.push(format!("{path}.{name} is not described")),
                }
            }
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let missing = required.filter(|name| !fields.contains_key(*name));
            found.extend(missing.map(|name| format!("{path}.{name} is required")));
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                let schema = schema["prefixItems"].get(n).unwrap_or(&schema["items"]);
                differences(document, schema, item, path, found);
            }
        }
        _ => {}
    }
}

#[test]
fn a_value_that_differs_from_its_schema_is_found() {
    let document =
        json!({"components": {"schemas": {"Health": {"oneOf": [{"const": "Ready"}, {"enum": ["Failed"]}]}}}});
    let schema = json!({"type": "object", "required": ["health"], "properties": {
        "health": {"$ref": "#/components/schemas/Health"}, "name": {"type": ["string", "null"]}, "any": {}},
        "additionalProperties": {"type": "integer"}});
    let count = |value: Value| {
        let mut found = Vec::new();
        differences(&document, &schema, &value, "", &mut found);
        found.len()
    };
    for good in [json!({"health": "Ready"}), json!({"health": "Failed", "name": null, "other": 1})] {
        assert_eq!(count(good.clone()), 0, "{good}");
    }
    for bad in [
        json!({}),
        json!({"health": "Lost"}),
        json!({"health": "Ready", "name": 1}),
        json!({"health": "Ready", "other": "text"}),
        json!({"health": "Ready", "any": 1}),
        json!([]),
    ] {
        assert!(count(bad.clone()) > 0, "{bad}");
    }
}

/// Returns how an answer differs from the description of its path.
pub fn differs_from_description(
    (method, path): (&str, &str),
    status: StatusCode,
    body: &Value,
) -> Vec<String> {
    let document = sluice_web::document();
    let asked: Vec<&str> = path.split('?').next().unwrap().split('/').collect();
    let is_of = |route: &&String| {
        let parts: Vec<&str> = route.split('/').collect();
        parts.len() == asked.len() && parts.iter().zip(&asked).all(|(a, b)| a.starts_with('{') || a == b)
    };
    let routes = document["paths"].as_object().unwrap();
    let route = routes.keys().filter(|route| routes[*route][method].is_object()).find(is_of);
    let Some(route) = route else { return vec!["the path is not described".into()] };
    let kind = if status == StatusCode::OK { "application/json" } else { "application/problem+json" };
    let described = &document["paths"][route][method]["responses"][status.as_str()];
    if status == StatusCode::NO_CONTENT {
        return if described.is_object() { vec![] } else { vec!["204 is not described".into()] };
    }
    let described = &described["content"][kind];
    let mut found = Vec::new();
    differences(&document, &described["schema"], body, route, &mut found);
    if !described.is_object() {
        found.push(format!("no description of {status}"));
    }
    found
}

#[tokio::test]
async fn every_answer_is_described() {
    assert_eq!(sluice_web::document()["openapi"], "3.1.0");
    for (path, token, status) in [
        ("/api/v1/clusters", "admin", StatusCode::OK),
        ("/api/v1/charts", "admin", StatusCode::OK),
        ("/api/v1/images?limit=1", "admin", StatusCode::OK),
        ("/api/v1/trace?kind=Deployment&namespace=shop&name=shop", "admin", StatusCode::OK),
        ("/api/v1/trace?kind=Deployment&namespace=shop&name=shop", "shop-team", StatusCode::OK),
        ("/api/v1/trace?kind=Pod", "admin", StatusCode::BAD_REQUEST),
        ("/api/v1/charts", "stolen", StatusCode::UNAUTHORIZED),
        ("/api/v1/charts", "down", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (found, body) = ask(token, path).await;
        assert_eq!(found, status, "{path}: {body}");
        let differs = differs_from_description(("get", path), status, &body);
        assert!(differs.is_empty(), "{path}: {differs:?}");
    }
}

#[tokio::test]
async fn every_parameter_that_is_described_is_accepted() {
    let document = sluice_web::document();
    // A stream has no end. Its own tests read it.
    let is_stream = |operations: &Value| {
        operations["get"]["responses"]["200"]["content"]["text/event-stream"].is_object()
    };
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths.iter().filter(|(_, operations)| !is_stream(operations)) {
        let parameters = operations["get"]["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            let is = |kind: &str| {
                schema["type"].as_str() == Some(kind)
                    || schema["type"].as_array().is_some_and(|all| all.contains(&kind.into()))
            };
            let value = if is("boolean") {
                "true"
            } else if is("integer") {
                "1"
            } else {
                "fleet/us"
            };
            let (status, body) =
                ask("admin", &format!("{}?{name}={value}", path.replace(['{', '}'], ""))).await;
            let text = body["detail"].as_str().unwrap_or_default();
            assert!(status == StatusCode::OK || !text.contains("unknown field"), "{path} {name}: {body}");
            assert!(parameter["description"].as_str().is_some_and(|text| !text.is_empty()), "{path} {name}");
        }
    }
}
