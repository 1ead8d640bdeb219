//! Templates of a pipeline's owner for the title and body of change requests: text with placeholders such as `{revision}`. They have no
//! conditions, loops or includes, so a text is never longer than its template and the values in it.

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
        let of = |title: Option<&str>, body: Option<&str>| {
            let checked = check_title(title).and_then(|()| check_body(body.unwrap_or_default()));
            checked.map_err(|error| error.to_string())
        };
        let table = [
            (Some("{version}"), None, "{version} is not known here: write one of {namespace}, {pipeline}"),
            (Some("{evidence}"), None, "title cannot be used: {evidence} is not known here"),
            (Some("{revision"), None, "a single { is no placeholder: write {{"),
            (Some("a } b"), None, "a single } is no placeholder: write }}"),
            (Some(" Draft: {revision}"), None, "write draft: true"),
            (None, Some("{% for x in y %}"), "{% for x in y %} is not known here"),
            (None, Some("<!-- sluice: promotion=a/b -->"), "remove it"),
        ];
        for (title, body, words) in table {
            let error = of(title, body).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        of(Some("{revision} {target}"), Some("{changes}")).unwrap();
    }
}
