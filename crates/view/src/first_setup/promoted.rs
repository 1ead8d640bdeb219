//! The values of an application that are promoted, and so get a marker.

use serde_json::Value;
use sluice_api::flux::FluxStatus;
use sluice_core::fleet::Kind;
use sluice_core::revision::Facet;
use sluice_core::value_check;

use super::error::ApplicationError;

/// Where a HelmRelease has the version of its chart.
const CHART_VERSION: &str = "/spec/chart/spec/version";

/// A value that is promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PromotedValue {
    /// The JSON pointer of the value.
    pub pointer: String,
    /// The value that the files begin with.
    pub value: String,
    /// What the manifest has now, if that is another value.
    pub before: Option<String>,
    /// What the value is.
    pub facet: Facet,
}

/// Returns the values of an application that are promoted; at least one.
pub(super) fn promoted(
    kind: Kind,
    object: &Value,
    status: &FluxStatus,
) -> Result<Vec<PromotedValue>, ApplicationError> {
    match kind {
        Kind::HelmRelease => chart(object, status).map(|value| vec![value]),
        _ => images(object),
    }
}

fn chart(object: &Value, status: &FluxStatus) -> Result<PromotedValue, ApplicationError> {
    if let Some(reference) = object.pointer("/spec/chartRef") {
        let kind = match reference.get("kind").and_then(Value::as_str) {
            Some("HelmChart") => "HelmChart",
            Some("ExternalArtifact") => "ExternalArtifact",
            _ => "OCIRepository",
        };
        return Err(ApplicationError::ChartRef { kind });
    }
    // Source: source-controller, docs/spec/v1/helmcharts.md, Version.
    if object.pointer("/spec/chart/spec/sourceRef/kind").and_then(Value::as_str) != Some("HelmRepository") {
        return Err(ApplicationError::ChartSource);
    }
    let field = || field_of(CHART_VERSION);
    let written = match object.pointer(CHART_VERSION) {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text.as_str(),
        Some(_) => return Err(ApplicationError::Value { field: field() }),
    };
    if is_substitution(written) {
        return Err(ApplicationError::Substitution { field: field() });
    }
    let runs = || status.chart_version().filter(|version| is_one_version(version));
    let value = match is_one_version(written) {
        true => written,
        false => runs().ok_or(ApplicationError::Range)?,
    };
    Ok(PromotedValue {
        pointer: CHART_VERSION.into(),
        value: value.into(),
        before: (value != written).then(|| written.into()),
        facet: Facet::Chart,
    })
}

fn images(object: &Value) -> Result<Vec<PromotedValue>, ApplicationError> {
    match object.pointer("/spec/sourceRef/kind").and_then(Value::as_str) {
        Some("GitRepository") => {}
        Some("Bucket") => return Err(ApplicationError::Source { kind: "Bucket" }),
        Some("ExternalArtifact") => return Err(ApplicationError::Source { kind: "ExternalArtifact" }),
        _ => return Err(ApplicationError::Source { kind: "OCIRepository" }),
    }
    let images = object.pointer("/spec/images").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut promoted = Vec::new();
    for (at, image) in images.iter().enumerate() {
        let pointer = format!("/spec/images/{at}/newTag");
        let Some(tag) = image.get("newTag") else { continue };
        if image.get("digest").is_some() {
            return Err(ApplicationError::Digest);
        }
        let text = |name: &str| image.get(name).and_then(Value::as_str);
        let repository = text("newName").or_else(|| text("name")).unwrap_or_default();
        let (facet, field) = (Facet::Image(repository.into()), field_of(&pointer));
        let Some(tag) = tag.as_str() else { return Err(ApplicationError::Value { field }) };
        if is_substitution(tag) || is_substitution(repository) {
            return Err(ApplicationError::Substitution { field });
        }
        if value_check::check(&facet, tag).is_err() {
            return Err(ApplicationError::Value { field });
        }
        promoted.push(PromotedValue { pointer, value: tag.into(), before: None, facet });
    }
    if promoted.is_empty() {
        return Err(match images.iter().any(|image| image.get("digest").is_some()) {
            true => ApplicationError::Digest,
            false => ApplicationError::NoImages,
        });
    }
    Ok(promoted)
}

/// Whether Flux replaces a part of the value before it applies the object.
fn is_substitution(text: &str) -> bool {
    text.contains("${")
}

/// Whether a text is one version, and no range: three numbers, with an optional pre-release and build.
fn is_one_version(text: &str) -> bool {
    let numbers = text.strip_prefix('v').unwrap_or(text).split(['-', '+']).next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && value_check::check(&Facet::Chart, text).is_ok()
}

/// Returns the path of a value as people write it, such as `spec.images[0].newTag`.
pub(super) fn field_of(pointer: &str) -> String {
    let mut field = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|b| b.is_ascii_digit()) {
            field.push_str(&format!("[{part}]"));
        } else {
            let dot = if field.is_empty() { "" } else { "." };
            field.push_str(&format!("{dot}{part}"));
        }
    }
    field
}
