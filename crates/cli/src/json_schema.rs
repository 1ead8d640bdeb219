//! The JSON Schema of the documents that commands print with `-o json` and `-o yaml`.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use sluice_view::check::CheckReport;
use sluice_view::clusters::ClusterRow;
use sluice_view::events::EventLine;
use sluice_view::explain::Explanation;
use sluice_view::fleet::observed_clusters::ObservedClusterRow;
use sluice_view::fleet::trace::TraceLink;
use sluice_view::fleet::versions::RunningVersion;
use sluice_view::history::Entry;
use sluice_view::pipeline_screen::PipelineScreen;
use sluice_view::story::StoryEvent;
use sluice_view::tree::EnvironmentNode;
use sluice_view::triggers::TriggerView;
use sluice_view::versions::VersionRow;

use crate::document_kind::{DocumentKind, VERSION};
use crate::get::TargetLine;
use crate::validate::PipelineReport;
use crate::version::ProgramVersion;

/// Returns the JSON Schema of all documents, made from the types that the commands print. `get pipelines` and `get
/// promotions` print the objects of the cluster, which the CRDs describe.
pub fn json_schema() -> Value {
    let mut schemas = SchemaSettings::draft2020_12().into_generator();
    let document = |kind: DocumentKind, schemas: &mut SchemaGenerator| {
        let fields = json!({"apiVersion": {"const": VERSION}, "kind": {"const": kind.name()}, "view": view(kind, schemas)});
        json!({"title": kind.name(), "description": commands(kind), "type": "object", "properties": fields,
            "required": ["apiVersion", "kind", "view"]})
    };
    let mut all: Vec<Value> = DocumentKind::ALL.iter().map(|kind| document(*kind, &mut schemas)).collect();
    let metadata = json!({"type": "object", "properties": {"resourceVersion": {"const": ""}}});
    let fields = json!({"apiVersion": {"const": "v1"}, "kind": {"const": "List"}, "metadata": metadata,
        "items": list::<TargetLine>(&mut schemas)});
    all.push(
        json!({"title": "List", "description": "sluice get targets", "type": "object", "properties": fields,
        "required": ["apiVersion", "kind", "metadata", "items"]}),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The data that the commands of Sluice print with -o json",
        "oneOf": all,
        "$defs": schemas.take_definitions(true),
    })
}

fn one<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn list<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!({"type": "array", "items": one::<T>(schemas)})
}

/// Returns the commands that print it.
fn commands(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::Charts => "sluice charts",
        DocumentKind::Check => "sluice check",
        DocumentKind::Clusters => "sluice clusters",
        DocumentKind::Events => "sluice events",
        DocumentKind::Explanations => "sluice explain PIPELINE",
        DocumentKind::FleetCharts => "sluice charts --fleet",
        DocumentKind::FleetClusters => "sluice clusters --fleet",
        DocumentKind::FleetImages => "sluice images --fleet",
        DocumentKind::History => "sluice history",
        DocumentKind::Images => "sluice images",
        DocumentKind::PipelineStatus => "sluice status",
        DocumentKind::Story => "sluice explain PROMOTION",
        DocumentKind::Trace => "sluice trace",
        DocumentKind::Tree => "sluice tree",
        DocumentKind::Triggers => "sluice triggers",
        DocumentKind::Validation => "sluice validate",
        DocumentKind::Version => "sluice version",
    }
}

fn view(kind: DocumentKind, schemas: &mut SchemaGenerator) -> Value {
    match kind {
        DocumentKind::Charts | DocumentKind::Images => list::<VersionRow>(schemas),
        DocumentKind::Check => one::<CheckReport>(schemas),
        DocumentKind::Clusters => list::<ClusterRow>(schemas),
        DocumentKind::Events => list::<EventLine>(schemas),
        DocumentKind::Explanations => list::<Explanation>(schemas),
        DocumentKind::FleetCharts | DocumentKind::FleetImages => list::<RunningVersion>(schemas),
        DocumentKind::FleetClusters => list::<ObservedClusterRow>(schemas),
        DocumentKind::History => list::<Entry>(schemas),
        DocumentKind::PipelineStatus => one::<PipelineScreen>(schemas),
        DocumentKind::Story => list::<StoryEvent>(schemas),
        DocumentKind::Trace => list::<TraceLink>(schemas),
        DocumentKind::Tree => list::<EnvironmentNode>(schemas),
        DocumentKind::Triggers => list::<TriggerView>(schemas),
        DocumentKind::Validation => list::<PipelineReport>(schemas),
        DocumentKind::Version => one::<ProgramVersion>(schemas),
    }
}
