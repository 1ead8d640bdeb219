//! Queries of GitHub's GraphQL API. A query with a field or argument that the schema does not have is rejected, and the
//! answer has only the selected fields. The used part of the schema is in the published description.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sluice_testkit::api_description::{ApiDescription, GITHUB};

static SCHEMA: LazyLock<ApiDescription> = LazyLock::new(|| ApiDescription::parse(GITHUB).unwrap());

/// What a query selects: a field, or the fields of one type out of several.
#[derive(Debug, Default)]
struct Selected {
    name: String,
    of_type: bool,
    arguments: Vec<String>,
    fields: Vec<Selected>,
}

/// A query that has passed the schema.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<Selected>);

impl Query {
    /// # Errors
    /// The `errors` of the answer where the query does not fit the schema.
    pub(super) fn parse(text: &str) -> Result<Query, Value> {
        let parse_error = || json!([{"message": "Parse error", "extensions": {"code": "parseError"}}]);
        let spaced: String = text.chars().flat_map(|c| spaced(c).into_iter().flatten()).collect();
        let mut tokens = spaced.split_whitespace().peekable();
        let root = match tokens.next() {
            Some("query") => "Query",
            Some("mutation") => "Mutation",
            _ => return Err(parse_error()),
        };
        while tokens.peek().is_some_and(|token| *token != "{") {
            tokens.next();
        }
        let fields = selection(&mut tokens).filter(|_| tokens.next().is_none()).ok_or_else(parse_error)?;
        check(&[root.into()], &fields)?;
        Ok(Query(fields))
    }

    /// Returns the selected part of an answer.
    pub(super) fn select(&self, value: &Value) -> Value {
        select(&self.0, value)
    }
}

/// Returns a character, with spaces around it if it is a token.
fn spaced(c: char) -> [Option<char>; 3] {
    let is_token = matches!(c, '{' | '}' | '(' | ')' | ':' | '[' | ']');
    let space = is_token.then_some(' ');
    [space, Some(if c == ',' { ' ' } else { c }), space]
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn selection(tokens: &mut Tokens<'_>) -> Option<Vec<Selected>> {
    tokens.next().filter(|token| *token == "{")?;
    let mut fields = Vec::new();
    loop {
        let mut field = match tokens.next()? {
            "}" => return Some(fields),
            "..." => {
                tokens.next().filter(|token| *token == "on")?;
                Selected { name: tokens.next()?.into(), of_type: true, ..Selected::default() }
            }
            name => Selected { name: name.into(), ..Selected::default() },
        };
        if tokens.next_if_eq(&"(").is_some() {
            let mut last = "";
            loop {
                match tokens.next()? {
                    ")" => break,
                    ":" => field.arguments.push(last.into()),
                    token => last = token,
                }
            }
        }
        if tokens.peek() == Some(&"{") {
            field.fields = selection(tokens)?;
        }
        fields.push(field);
    }
}

/// Checks what is selected of an object with one of these types.
fn check(of: &[String], fields: &[Selected]) -> Result<(), Value> {
    let names = of.join(" or ");
    let refused = |code: &str, name: &str, message: String| {
        let extensions = json!({"code": code, "typeName": names, "fieldName": name});
        json!([{"message": message, "extensions": extensions}])
    };
    for field in fields {
        let name = field.name.as_str();
        if field.of_type {
            if of.len() < 2 || !of.contains(&field.name) {
                return Err(refused(
                    "cannotSpreadFragment",
                    name,
                    format!("{names} can't be spread as {name}"),
                ));
            }
            check(std::slice::from_ref(&field.name), &field.fields)?;
            continue;
        }
        let known = if let [of] = of { SCHEMA.field(of, name) } else { None };
        let Some(known) = known else {
            let message = format!("Field '{name}' doesn't exist on type '{names}'");
            return Err(refused("undefinedField", name, message));
        };
        let fits = |one: &&String| {
            known.arguments().contains(one)
                || (names == "Mutation" && SCHEMA.field("EnqueuePullRequestInput", one).is_some())
        };
        if let Some(other) = field.arguments.iter().find(|one| !fits(one)) {
            let message = format!("Field '{name}' doesn't accept argument '{other}'");
            return Err(refused("argumentNotAccepted", name, message));
        }
        let result = known.type_names();
        let has_pages = result.iter().any(|name| name.ends_with("Connection"));
        if has_pages && !field.arguments.iter().any(|a| a == "first" || a == "last") {
            let message = format!(
                "You must provide a `first` or `last` value to properly paginate the `{name}` connection."
            );
            return Err(json!([{"type": "MISSING_PAGINATION_BOUNDARIES", "message": message}]));
        }
        check(result, &field.fields)?;
    }
    Ok(())
}

fn select(fields: &[Selected], value: &Value) -> Value {
    let object = match value {
        Value::Array(list) => return list.iter().map(|one| select(fields, one)).collect(),
        Value::Object(object) if !fields.is_empty() => object,
        other => return other.clone(),
    };
    let mut selected = Map::new();
    for field in fields {
        if !field.of_type {
            let part = object.get(&field.name).unwrap_or(&Value::Null);
            selected.insert(field.name.clone(), select(&field.fields, part));
        } else if object.get("__typename").is_some_and(|of| *of == field.name.as_str())
            && let Value::Object(part) = select(&field.fields, value)
        {
            selected.extend(part);
        }
    }
    selected.into()
}
