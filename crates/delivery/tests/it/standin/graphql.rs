//! The used part of GitHub's GraphQL schema, from github.com/octokit/graphql-schema, schema.graphql at commit 82ff2d4 of
//! 2026-07-22. A query with an unknown field or argument is rejected, and the answer has only the selected fields.

use serde_json::{Map, Value, json};

/// A type, a field of the type, the type of the field, and the arguments of the field.
type SchemaField = (&'static str, &'static str, &'static str, &'static [&'static str]);

const PAGED: &[&str] = &["after", "before", "first", "last"];
const OF_PULL: &[&str] = &["pullRequestId", "pullRequestNumber"];

const SCHEMA: &[SchemaField] = &[
    ("Query", "repository", "Repository", &["followRenames", "name", "owner"]),
    ("Mutation", "enqueuePullRequest", "EnqueuePullRequestPayload", &["input"]),
    ("EnqueuePullRequestInput", "expectedHeadOid", "GitObjectID", &[]),
    ("EnqueuePullRequestInput", "jump", "Boolean", &[]),
    ("EnqueuePullRequestInput", "pullRequestId", "ID", &[]),
    ("EnqueuePullRequestPayload", "mergeQueueEntry", "MergeQueueEntry", &[]),
    ("MergeQueueEntry", "id", "ID", &[]),
    ("MergeQueueEntry", "state", "MergeQueueEntryState", &[]),
    ("Repository", "mergeCommitAllowed", "Boolean", &[]),
    ("Repository", "squashMergeAllowed", "Boolean", &[]),
    ("Repository", "rebaseMergeAllowed", "Boolean", &[]),
    ("Repository", "viewerDefaultMergeMethod", "PullRequestMergeMethod", &[]),
    ("Repository", "pullRequest", "PullRequest", &["number"]),
    ("PullRequest", "id", "ID", &[]),
    ("PullRequest", "headRefOid", "GitObjectID", &[]),
    ("PullRequest", "isDraft", "Boolean", &[]),
    ("PullRequest", "mergeStateStatus", "MergeStateStatus", &[]),
    ("PullRequest", "mergeable", "MergeableState", &[]),
    ("PullRequest", "reviewDecision", "PullRequestReviewDecision", &[]),
    ("PullRequest", "mergeQueueEntry", "MergeQueueEntry", &[]),
    (
        "PullRequest",
        "latestOpinionatedReviews",
        "PullRequestReviewConnection",
        &["after", "before", "first", "last", "writersOnly"],
    ),
    ("PullRequest", "baseRef", "Ref", &[]),
    ("PullRequest", "commits", "PullRequestCommitConnection", PAGED),
    ("PullRequestReviewConnection", "nodes", "PullRequestReview", &[]),
    ("PullRequestReview", "state", "PullRequestReviewState", &[]),
    ("PullRequestReview", "commit", "Commit", &[]),
    ("Ref", "refUpdateRule", "RefUpdateRule", &[]),
    ("RefUpdateRule", "requiredApprovingReviewCount", "Int", &[]),
    ("RefUpdateRule", "requiredStatusCheckContexts", "String", &[]),
    ("RefUpdateRule", "requiresLinearHistory", "Boolean", &[]),
    ("PullRequestCommitConnection", "nodes", "PullRequestCommit", &[]),
    ("PullRequestCommit", "commit", "Commit", &[]),
    ("Commit", "oid", "GitObjectID", &[]),
    ("Commit", "statusCheckRollup", "StatusCheckRollup", &[]),
    ("StatusCheckRollup", "contexts", "StatusCheckRollupContextConnection", PAGED),
    ("StatusCheckRollupContextConnection", "nodes", "StatusCheckRollupContext", &[]),
    ("StatusCheckRollupContextConnection", "pageInfo", "PageInfo", &[]),
    ("PageInfo", "hasNextPage", "Boolean", &[]),
    ("PageInfo", "endCursor", "String", &[]),
    ("CheckRun", "name", "String", &[]),
    ("CheckRun", "status", "CheckStatusState", &[]),
    ("CheckRun", "conclusion", "CheckConclusionState", &[]),
    ("CheckRun", "isRequired", "Boolean", OF_PULL),
    ("StatusContext", "context", "String", &[]),
    ("StatusContext", "state", "StatusState", &[]),
    ("StatusContext", "isRequired", "Boolean", OF_PULL),
];

/// The members of the one union that is called.
const CONTEXTS: [&str; 2] = ["CheckRun", "StatusContext"];

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
        check(root, &fields)?;
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

fn check(of: &str, fields: &[Selected]) -> Result<(), Value> {
    let refused = |code: &str, name: &str, message: String| {
        let extensions = json!({"code": code, "typeName": of, "fieldName": name});
        json!([{"message": message, "extensions": extensions}])
    };
    for field in fields {
        let name = field.name.as_str();
        if field.of_type {
            if !(of == "StatusCheckRollupContext" && CONTEXTS.contains(&name)) {
                return Err(refused("cannotSpreadFragment", name, format!("{of} can't be spread as {name}")));
            }
            check(name, &field.fields)?;
            continue;
        }
        let known = |of: &str, name: &str| SCHEMA.iter().find(|(t, field, ..)| *t == of && *field == name);
        let Some((_, _, result, arguments)) = known(of, name) else {
            let message = format!("Field '{name}' doesn't exist on type '{of}'");
            return Err(refused("undefinedField", name, message));
        };
        let fits = |one: &&String| {
            arguments.contains(&one.as_str())
                || (of == "Mutation" && known("EnqueuePullRequestInput", one).is_some())
        };
        if let Some(other) = field.arguments.iter().find(|one| !fits(one)) {
            let message = format!("Field '{name}' doesn't accept argument '{other}'");
            return Err(refused("argumentNotAccepted", name, message));
        }
        if result.ends_with("Connection") && !field.arguments.iter().any(|a| a == "first" || a == "last") {
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
