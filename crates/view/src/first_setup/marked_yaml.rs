//! A manifest as YAML with a marker at the end of the line of each promoted value.

use serde_json::Value;
use sluice_core::fleet::Kind;
use sluice_core::revision::{Facet, FacetKey, Revision};
use sluice_core::setters::{self, MARKER_KEY, MarkerRequest};

use super::promoted::{PromotedValue, field_of};
use super::readable::readable;
use crate::yaml::yaml;

/// What stands for a promoted value until its line is known.
const PLACEHOLDER: &str = "sluice-promoted-value-";
/// A value that is set to see whether Sluice finds the markers.
const PROBE: &str = "0.0.0-probe";

/// Why a manifest gets no file.
const LOSSY: &str = "the manifest cannot be written as YAML without a change: write this file by hand";

/// The environment that markers name.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedEnvironment<'a> {
    pub namespace: &'a str,
    pub pipeline: &'a str,
    pub environment: &'a str,
}

/// Returns the marker of a promoted value, without the `#`.
pub(super) fn marker(of: MarkedEnvironment<'_>, facet: &Facet) -> String {
    let MarkedEnvironment { namespace, pipeline, environment } = of;
    let value = match facet {
        Facet::Image(_) => format!(r#", "value": "{facet}""#),
        _ => String::new(),
    };
    format!(r#"{{"{MARKER_KEY}": "{namespace}:{pipeline}:{environment}"{value}}}"#)
}

/// Returns an object as YAML with the promoted values and their markers. Sluice would set these values, and no others.
///
/// # Errors
/// When a value cannot have a marker. The error is a sentence.
pub(super) fn marked_yaml(
    object: &Value,
    promoted: &[PromotedValue],
    of: MarkedEnvironment<'_>,
) -> Result<String, String> {
    let (mut open, mut closed) = (object.clone(), object.clone());
    for (at, value) in promoted.iter().enumerate() {
        put(&mut open, &value.pointer, placeholder(at).into());
        put(&mut closed, &value.pointer, value.value.clone().into());
    }
    let mut text = readable(&open).ok_or(LOSSY)?;
    for (at, value) in promoted.iter().enumerate() {
        text = with_marker(&text, &placeholder(at), value, of)?;
    }
    // One in a text of the manifest would be for this pipeline or another one.
    if text.matches(MARKER_KEY).count() != promoted.len() {
        return Err(format!("the manifest has a text with {MARKER_KEY} in it, as markers have: remove it"));
    }
    verify(&text, &closed, promoted, of)?;
    Ok(text)
}

fn placeholder(at: usize) -> String {
    format!("{PLACEHOLDER}{at}-")
}

/// Sets the value at a pointer. Only the last field may be missing.
pub(super) fn put(object: &mut Value, pointer: &str, value: Value) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
        fields.insert(name.into(), value);
    }
}

fn with_marker(
    text: &str,
    placeholder: &str,
    value: &PromotedValue,
    of: MarkedEnvironment<'_>,
) -> Result<String, String> {
    let scalar = yaml(&value.value).map_err(|error| error.to_string())?;
    let line = format!("{placeholder}\n");
    match text.matches(placeholder).count() {
        1 if text.contains(&line) => {
            Ok(text.replace(&line, &format!("{} # {}\n", scalar.trim_end(), marker(of, &value.facet))))
        }
        _ => Err(format!(
            "the value {} cannot have a marker: write this file by hand",
            field_of(&value.pointer)
        )),
    }
}

/// Makes sure that the text is the object, and that Sluice sets all promoted values, and no others.
fn verify(
    text: &str,
    object: &Value,
    promoted: &[PromotedValue],
    of: MarkedEnvironment<'_>,
) -> Result<(), String> {
    let read: Value = serde_saphyr::from_str(text).map_err(|_| LOSSY)?;
    if read != *object {
        return Err(LOSSY.into());
    }
    let key = |facet: &Facet| FacetKey {
        kind: Kind::HelmRelease.name().into(),
        name: "a".into(),
        facet: facet.clone(),
    };
    let revision = promoted.iter().map(|value| (key(&value.facet), PROBE.to_string())).collect();
    let revision = Revision::new(revision).ok_or(LOSSY)?;
    let wanted = MarkerRequest {
        namespace: of.namespace,
        pipeline: of.pipeline,
        environment: of.environment,
        target: None,
        revision: &revision,
    };
    let set = setters::set_marked("the file", text.as_bytes(), &wanted).map_err(|error| error.to_string())?;
    match set.map(|set| set.values.iter().filter(|value| value.new == PROBE).count()) {
        Some(count) if count == promoted.len() => Ok(()),
        _ => Err(LOSSY.into()),
    }
}
