//! The names of the head branches of change requests: one for each environment, or target, of a pipeline, and one for
//! each change of files that a person requests.

use sluice_core::hex::sha256_hex;

use crate::file_change::RequestedChange;
use crate::template::TemplateError;

/// The end of every head branch, which keeps one environment of one pipeline apart from all others.
const BRANCH_END: &str = "{namespace}/{pipeline}/{environment}";

/// The branch of Weave's pipeline-controller, before Sluice: its open change requests are updated in place.
/// Names with dashes can make it the same for two environments (`a-b` and `c`, `a` and `b-c`).
const OF_PREDECESSOR: &str = "promotion-{namespace}-{pipeline}-{environment}";

/// Returns the head branch of an environment, given as namespace, pipeline and environment, or of one of its targets.
/// `template` is the pipeline's own template.
pub(crate) fn of_environment(place: [&str; 3], target: Option<&str>, template: Option<&str>) -> String {
    let [namespace, pipeline, environment] = place.map(component);
    let last = match target {
        Some(target) => format!("{environment}@{}", component(target)),
        None => environment,
    };
    if may_be_shared(template) {
        return format!("promotion-{namespace}-{pipeline}-{last}");
    }
    let prefix = template.and_then(prefix).unwrap_or("sluice/");
    format!("{prefix}{namespace}/{pipeline}/{last}")
}

/// Whether another environment can have a head branch of this template.
pub(crate) fn may_be_shared(template: Option<&str>) -> bool {
    template == Some(OF_PREDECESSOR)
}

/// Returns the head branch of a change of files of a pipeline, which is given as namespace and name. No environment has
/// this branch: the names of environments begin with a letter, a digit, `-` or `_`.
pub(crate) fn of_files(pipeline: (&str, &str), change: &RequestedChange, base: &str) -> String {
    let (namespace, pipeline) = (component(pipeline.0), component(pipeline.1));
    format!("sluice/{namespace}/{pipeline}/@{}", change.identity(base))
}

/// Checks the template of a head branch.
pub(crate) fn check_template(branch: &str) -> Result<(), TemplateError> {
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

/// Returns the text before [`BRANCH_END`] in a template.
fn prefix(branch: &str) -> Option<&str> {
    branch.strip_suffix(BRANCH_END).filter(|before| before.is_empty() || before.ends_with('/'))
}

/// Returns a text as one part of a branch name. Characters that git does not allow there are replaced. Then a short hash keeps
/// different texts different.
fn component(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let clean: String = text.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    let bad = clean.is_empty() || clean.starts_with('.') || clean.ends_with('.') || clean.contains("..");
    if clean == text && !bad && !clean.ends_with(".lock") {
        return clean;
    }
    let hash = sha256_hex(text.as_bytes());
    format!("{}-{}", clean.replace('.', "-"), &hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_parts_are_what_git_allows_and_stay_apart() {
        assert_eq!(component("podinfo-2.x"), "podinfo-2.x");
        for text in ["a.lock", "a..b", ".a", "a.", "a b", "a@{1}", "fleet/dev", "", "a~b", "ü"] {
            let made = component(text);
            assert_ne!(made, text);
            let allowed = made.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
            assert!(allowed && !made.is_empty(), "{made}");
        }
        assert_ne!(component("a b"), component("a~b"));
    }

    #[test]
    fn an_error_says_what_to_write_instead() {
        let table = [
            ("deploy/{environment}", "it has to end with {namespace}/{pipeline}/{environment}"),
            ("x{namespace}/{pipeline}/{environment}", "write for example deploy/{namespace}"),
            ("promotion-{namespace}-{pipeline}", "letters, digits"),
            ("x/promotion-{namespace}-{pipeline}-{environment}", "letters, digits"),
            ("a b/{namespace}/{pipeline}/{environment}", "letters, digits"),
            ("../{namespace}/{pipeline}/{environment}", "letters, digits"),
            ("a.lock/{namespace}/{pipeline}/{environment}", "letters, digits"),
            ("-x/{namespace}/{pipeline}/{environment}", "letters, digits"),
            ("/{namespace}/{pipeline}/{environment}", "letters, digits"),
            ("{namespace}/{pipeline}/{environment}/x", "letters, digits"),
        ];
        for (template, words) in table {
            let error = check_template(template).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for template in [
            OF_PREDECESSOR.to_string(),
            BRANCH_END.to_string(),
            format!("deploy/{BRANCH_END}"),
            format!("a/b_c.d-e/{BRANCH_END}"),
        ] {
            check_template(&template).unwrap();
        }
    }
}
