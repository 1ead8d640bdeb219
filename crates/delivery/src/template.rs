//! Templates of a pipeline's owner for change requests: text with placeholders such as `{revision}`. They have no
//! conditions, loops or includes, so a text is never longer than its template and the values in it.

/// The end of every head branch, which keeps one environment of one pipeline apart from all others.
pub(crate) const BRANCH_END: &str = "{namespace}/{pipeline}/{environment}";

/// The branch of Weave's pipeline-controller, before Sluice: its open change requests are updated in place.
/// Names with dashes can make it the same for two environments (`a-b` and `c`, `a` and `b-c`).
pub(crate) const OF_PREDECESSOR: &str = "promotion-{namespace}-{pipeline}-{environment}";

/// The placeholders in titles and bodies.
const PLACEHOLDERS: [&str; 7] =
    ["namespace", "pipeline", "environment", "target", "revision", "replaces", "promotion"];
/// Further placeholders in bodies: lists, and the default body.
const BODY_PLACEHOLDERS: [&str; 3] = ["evidence", "changes", "usual"];
/// GitLab or Gitea would open a change request with such a title as a draft.
const DRAFT_PREFIXES: [&str; 5] = ["draft:", "[draft]", "(draft)", "wip:", "[wip]"];

/// Why a text cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the strategy's {field} cannot be used: {what}")]
pub struct TemplateError {
    field: &'static str,
    what: String,
}

impl TemplateError {
    /// Returns one word for the condition, the event and the metric.
    pub fn reason(&self) -> &'static str {
        "BadTemplate"
    }

    pub(crate) fn new(field: &'static str, what: impl Into<String>) -> Self {
        TemplateError { field, what: what.into() }
    }
}

/// Checks a title, if there is one.
pub(crate) fn check_title(title: Option<&str>) -> Result<(), TemplateError> {
    let title = title.unwrap_or("{revision}");
    let begin = title.trim_start().to_ascii_lowercase();
    if DRAFT_PREFIXES.iter().any(|word| begin.starts_with(word)) {
        let what = "it begins like the title of a draft: write draft: true instead";
        return Err(TemplateError::new("title", what));
    }
    fill("title", title, &PLACEHOLDERS, |_| String::new()).map(drop)
}

/// Checks a body.
pub(crate) fn check_body(body: &str) -> Result<(), TemplateError> {
    if body.contains("<!-- sluice:") || body.contains("[sluice]: #") {
        let what = "it holds a marker by which Sluice finds its change requests: remove it";
        return Err(TemplateError::new("body", what));
    }
    fill("body", body, &[&PLACEHOLDERS[..], &BODY_PLACEHOLDERS].concat(), |_| String::new()).map(drop)
}

/// Fills in a title.
pub(crate) fn title(text: &str, value: impl Fn(&str) -> String) -> Result<String, TemplateError> {
    let title = fill("title", text, &PLACEHOLDERS, value)?;
    match title.trim() {
        "" => Err(TemplateError::new("title", "nothing is left of it for this promotion")),
        title => Ok(title.into()),
    }
}

/// Fills in a body.
pub(crate) fn body(text: &str, value: impl Fn(&str) -> String) -> Result<String, TemplateError> {
    fill("body", text, &[&PLACEHOLDERS[..], &BODY_PLACEHOLDERS].concat(), value)
}

/// The beginning of a branch, before [`BRANCH_END`].
pub(crate) fn prefix(branch: &str) -> Option<&str> {
    branch.strip_suffix(BRANCH_END).filter(|before| before.is_empty() || before.ends_with('/'))
}

/// Checks the template of a branch.
pub(crate) fn check_branch(branch: &str) -> Result<(), TemplateError> {
    let what = format!(
        "it has to end with {BRANCH_END}, which keeps one environment apart from all others, after parts of \
         letters, digits, '.', '_' and '-': write for example deploy/{BRANCH_END}"
    );
    let allowed = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            && !part.contains("..")
            && !part.ends_with('.')
            && !part.ends_with(".lock")
    };
    match prefix(branch) {
        _ if branch == OF_PREDECESSOR => Ok(()),
        Some(before) if before.split_terminator('/').all(allowed) && branch.len() <= 128 => Ok(()),
        _ => Err(TemplateError::new("branch", what)),
    }
}

/// Replaces placeholders by values. `{{` and `}}` are braces.
fn fill(
    field: &'static str,
    text: &str,
    known: &[&str],
    value: impl Fn(&str) -> String,
) -> Result<String, TemplateError> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        filled.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            filled.push_str(brace);
            rest = after;
            continue;
        }
        let name = after.split_once('}').filter(|_| brace == "{");
        let Some((name, after)) = name else {
            let what = format!("a single {brace} is no placeholder: write {brace}{brace} for a brace");
            return Err(TemplateError::new(field, what));
        };
        if !known.contains(&name) {
            let known: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
            let name: String = name.chars().take(40).collect();
            let what = format!("{{{name}}} is not known here: write one of {}", known.join(", "));
            return Err(TemplateError::new(field, what));
        }
        filled.push_str(&value(name));
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_once_and_braces_are_written_twice() {
        let value = |name: &str| match name {
            "revision" => "{pipeline}".to_string(),
            name => name.to_uppercase(),
        };
        assert_eq!(title("{pipeline}: {revision} {{x}}", value).unwrap(), "PIPELINE: {pipeline} {x}");
        assert_eq!(body("{evidence}\n{usual}", value).unwrap(), "EVIDENCE\nUSUAL");
        assert_eq!(body("", value).unwrap(), "");
    }

    #[test]
    fn an_error_says_what_to_write_instead() {
        let of = |title: Option<&str>, body: Option<&str>, branch: Option<&str>| {
            let checked = check_title(title)
                .and_then(|()| check_body(body.unwrap_or_default()))
                .and_then(|()| branch.map_or(Ok(()), check_branch));
            checked.map_err(|error| error.to_string())
        };
        let table = [
            (
                Some("{version}"),
                None,
                None,
                "{version} is not known here: write one of {namespace}, {pipeline}",
            ),
            (Some("{evidence}"), None, None, "title cannot be used: {evidence} is not known here"),
            (Some("{revision"), None, None, "a single { is no placeholder: write {{"),
            (Some("a } b"), None, None, "a single } is no placeholder: write }}"),
            (Some(" Draft: {revision}"), None, None, "write draft: true"),
            (None, Some("{% for x in y %}"), None, "{% for x in y %} is not known here"),
            (None, Some("<!-- sluice: promotion=a/b -->"), None, "remove it"),
            (
                None,
                None,
                Some("deploy/{environment}"),
                "it has to end with {namespace}/{pipeline}/{environment}",
            ),
            (
                None,
                None,
                Some("x{namespace}/{pipeline}/{environment}"),
                "write for example deploy/{namespace}",
            ),
            (None, None, Some("promotion-{namespace}-{pipeline}"), "letters, digits"),
            (None, None, Some("x/promotion-{namespace}-{pipeline}-{environment}"), "letters, digits"),
            (None, None, Some("a b/{namespace}/{pipeline}/{environment}"), "letters, digits"),
            (None, None, Some("../{namespace}/{pipeline}/{environment}"), "letters, digits"),
            (None, None, Some("a.lock/{namespace}/{pipeline}/{environment}"), "letters, digits"),
            (None, None, Some("-x/{namespace}/{pipeline}/{environment}"), "letters, digits"),
            (None, None, Some("/{namespace}/{pipeline}/{environment}"), "letters, digits"),
            (None, None, Some("{namespace}/{pipeline}/{environment}/x"), "letters, digits"),
        ];
        for (title, body, branch, words) in table {
            let error = of(title, body, branch).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        for branch in [
            OF_PREDECESSOR.to_string(),
            BRANCH_END.to_string(),
            format!("deploy/{BRANCH_END}"),
            format!("a/b_c.d-e/{BRANCH_END}"),
        ] {
            of(Some("{revision} {target}"), Some("{changes}"), Some(&branch)).unwrap();
        }
    }
}
