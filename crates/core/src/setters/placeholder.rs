//! Placeholders such as `{environment}` in an `update` list, and the target whose names replace them.

/// The names of a target that replace the placeholders of an `update` list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateTarget {
    /// The value of `{environment}`.
    pub environment: String,
    /// The value of `{target}`.
    pub target: String,
    /// The value of `{cluster}`; `None` for the cluster that holds the Pipeline, which has no name.
    pub cluster: Option<String>,
    /// The value of `{namespace}`.
    pub namespace: String,
}

/// A part of a text with placeholders.
pub(super) enum TextPart<'t> {
    Literal(&'t str),
    Placeholder(&'t str),
}

impl<'t> TextPart<'t> {
    pub(super) fn is_literal(&self) -> bool {
        matches!(self, TextPart::Literal(_))
    }

    /// Returns the text, or the placeholder's value for a target.
    pub(super) fn fill<'a>(&'a self, place: &'a UpdateTarget) -> Result<&'a str, String> {
        Ok(match self {
            TextPart::Literal(text) => text,
            TextPart::Placeholder("environment") => &place.environment,
            TextPart::Placeholder("target") => &place.target,
            TextPart::Placeholder("namespace") => &place.namespace,
            TextPart::Placeholder("cluster") => place.cluster.as_deref().ok_or_else(|| {
                format!(
                    "{{cluster}} has no value for the target {} of {}, which is on the cluster that holds the \
                     Pipeline; use {{target}}",
                    place.target, place.environment
                )
            })?,
            TextPart::Placeholder(other) => {
                return Err(format!(
                    "{{{other}}} is no placeholder; these are: {{environment}}, {{target}}, {{cluster}}, \
                     {{namespace}}"
                ));
            }
        })
    }
}

/// Splits a text at its placeholders.
pub(super) fn parts(text: &str) -> impl Iterator<Item = Result<TextPart<'_>, String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(inside) = rest.strip_prefix('{') else {
            let (literal, behind) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            rest = behind;
            return Some(Ok(TextPart::Literal(literal)));
        };
        let Some((name, behind)) = inside.split_once('}') else {
            rest = "";
            return Some(Err("a { has no closing }".into()));
        };
        rest = behind;
        Some(Ok(TextPart::Placeholder(name)))
    })
}

/// Returns the text with the placeholders replaced by the names of a target.
///
/// # Errors
/// When a placeholder is unknown, not closed, or has no value for the target. The error is a sentence.
pub fn filled(text: &str, place: &UpdateTarget) -> Result<String, String> {
    parts(text).map(|part| part?.fill(place).map(String::from)).collect()
}
