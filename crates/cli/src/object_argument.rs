//! Arguments that name an object: the plain name, or the form that `-o name` prints.

use sluice_api::GROUP;

/// Reads `podinfo`, `pipeline/podinfo` or `pipeline.pipelines.weave.works/podinfo`: what `sluice get pipelines -o
/// name` and `kubectl get pipelines -o name` print.
///
/// # Errors
/// When the name is empty, or names another kind.
pub(crate) fn pipeline(text: &str) -> Result<String, String> {
    named(text, &["pipeline"])
}

/// Reads the name of a promotion in the same forms.
///
/// # Errors
/// When the name is empty, or names another kind.
pub(crate) fn promotion(text: &str) -> Result<String, String> {
    named(text, &["promotion"])
}

/// Reads the name of a promotion or of a pipeline in the same forms.
///
/// # Errors
/// When the name is empty, or names another kind.
pub(crate) fn either(text: &str) -> Result<String, String> {
    named(text, &["promotion", "pipeline"])
}

fn named(text: &str, kinds: &[&str]) -> Result<String, String> {
    let name = match text.split_once('/') {
        None => text,
        Some((kind, name)) => {
            let short = kind.strip_suffix(GROUP).and_then(|kind| kind.strip_suffix('.')).unwrap_or(kind);
            let singular = short.strip_suffix('s').unwrap_or(short);
            if !kinds.iter().any(|kind| kind.eq_ignore_ascii_case(singular)) {
                return Err(format!("{kind} is not the kind of a {}", kinds.join(" or ")));
            }
            name
        }
    };
    match name {
        "" => Err(format!("write the name of a {}", kinds.join(" or "))),
        name if name.contains('/') => Err(format!("{name} has a / too many")),
        name => Ok(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_in_every_printed_form() {
        for (text, expected) in [
            ("podinfo", Ok("podinfo")),
            ("pipeline/podinfo", Ok("podinfo")),
            ("pipelines/podinfo", Ok("podinfo")),
            ("pipeline.pipelines.weave.works/podinfo", Ok("podinfo")),
            ("pipelines.pipelines.weave.works/podinfo", Ok("podinfo")),
            (
                "promotion.pipelines.weave.works/podinfo",
                Err("promotion.pipelines.weave.works is not the kind of a pipeline"),
            ),
            ("deployment.apps/podinfo", Err("deployment.apps is not the kind of a pipeline")),
            ("pipeline/", Err("write the name of a pipeline")),
            ("", Err("write the name of a pipeline")),
            ("pipeline/a/b", Err("a/b has a / too many")),
        ] {
            assert_eq!(pipeline(text), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert_eq!(promotion("promotion.pipelines.weave.works/p-1").as_deref(), Ok("p-1"));
        assert_eq!(either("promotion.pipelines.weave.works/p-1").as_deref(), Ok("p-1"));
        assert_eq!(either("pipeline.pipelines.weave.works/p").as_deref(), Ok("p"));
    }
}
