//! A check of JSON values against their schema, as far as the schemas of Sluice go.

use serde_json::Value;

/// Finds where a value differs from a schema: another type or value, fields that the schema does not have, and required
/// ones that are missing.
pub fn differences(document: &Value, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    if let Some(pointer) = schema["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
        return match document.pointer(pointer) {
            Some(schema) => differences(document, schema, value, path, found),
            None => found.push(format!("the schema of {path} is missing: {pointer}")),
        };
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
    inside(document, schema, value, path, found);
}

/// Finds where the fields or items of a value differ from a schema.
fn inside(document: &Value, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_that_differs_from_its_schema_is_found() {
        let document = json!({"components": {"schemas": {"Health": {"oneOf": [{"const": "Ready"}, {"enum": ["Failed"]}]}}}});
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
}
