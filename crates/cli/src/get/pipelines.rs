//! `sluice get pipelines`: one line for each pipeline, with the revisions of its environments.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::Deserialize;
use sluice_api::Pipeline;
use sluice_api::flux::FluxCondition;
use sluice_api::pipeline::{AppRef, Summary};

use super::fetch::lean_metadata;
use super::flags::Shape;
use super::listing::{Listing, NOT_OBSERVED, fields};
use crate::name_completion;
use crate::object_argument;
use crate::table::{Cell, Row, Tone};

/// Show pipelines and what their environments run
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  # In the current namespace, in all of them, with more columns
  sluice get pipelines
  sluice get pipelines -A
  sluice get pipelines -A -o wide

  # One, as it is stored
  sluice get pipeline podinfo -n apps -o yaml

  # What changes
  sluice get pipelines -A -w")]
pub(crate) struct Pipelines {
    /// Only this one
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(name_completion::pipelines))]
    name: Option<String>,
}

/// The fields of a Pipeline that its line shows.
#[derive(Clone, Debug, Default, Deserialize, kube::Resource)]
#[resource(inherit = Pipeline)]
#[serde(default)]
pub(crate) struct ListedPipeline {
    #[serde(deserialize_with = "lean_metadata")]
    metadata: ObjectMeta,
    spec: Spec,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    suspend: bool,
    app_ref: Option<AppRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<FluxCondition>,
    summary: Option<Summary>,
}

impl Listing for Pipelines {
    type Item = ListedPipeline;
    const OPTIONAL: &'static [&'static str] = &["SUSPENDED", "APPLICATION", "AGE"];
    const CELLS: &'static [&'static str] =
        &["Application", "Environments", "Ready", "Promoting", "Status", "Suspended"];

    fn from_cells(metadata: ObjectMeta, cells: Vec<String>) -> Option<ListedPipeline> {
        let [name, environments, ready, promoting, message, suspended] = fields(cells);
        let known = !ready.is_empty();
        let condition = ready_condition(ready, message);
        Some(ListedPipeline {
            metadata,
            spec: Spec { suspend: suspended == "true", app_ref: Some(AppRef { name, ..AppRef::default() }) },
            status: Some(Status {
                conditions: known.then_some(condition).into_iter().collect(),
                summary: Some(Summary { environments, promoting }),
            }),
        })
    }

    fn unreadable(metadata: ObjectMeta, message: String) -> ListedPipeline {
        let status = Status { conditions: vec![ready_condition("Unknown".into(), message)], summary: None };
        ListedPipeline { metadata, spec: Spec::default(), status: Some(status) }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn plural(&self) -> &'static str {
        "pipelines"
    }

    fn columns(&self, shape: Shape) -> Vec<&'static str> {
        let mut columns = vec!["NAME", "APPLICATION", "ENVIRONMENTS", "READY", "PROMOTING", "AGE"];
        if shape.namespaces {
            columns.insert(0, "NAMESPACE");
        }
        if shape.wide {
            columns.extend(["SUSPENDED", "MESSAGE"]);
        }
        columns
    }

    fn rows(&self, seen: &ListedPipeline, shape: Shape, now: Timestamp) -> Vec<Row> {
        let status = seen.status.clone().unwrap_or_default();
        let summary = status.summary.unwrap_or_default();
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        let application = seen.spec.app_ref.as_ref().map(|a| a.name.as_str()).unwrap_or_default();
        let born = seen.metadata.creation_timestamp.as_ref();
        let mut row = vec![
            Cell::new(seen.name_any()),
            Cell::new(application),
            Cell::new(summary.environments),
            readiness(ready),
            promoting(seen.spec.suspend, summary.promoting),
            Cell::age(born.map(|t| t.0), now),
        ];
        if shape.namespaces {
            row.insert(0, Cell::new(seen.namespace().unwrap_or_default()));
        }
        if shape.wide {
            row.push(suspension(seen.spec.suspend));
            row.push(Cell::new(ready.map_or(NOT_OBSERVED, |c| c.message.as_str())));
        }
        vec![row]
    }
}

fn ready_condition(status: String, message: String) -> FluxCondition {
    FluxCondition { type_: "Ready".into(), status, message, ..FluxCondition::default() }
}

fn readiness(ready: Option<&FluxCondition>) -> Cell {
    match ready.map(|c| c.status.as_str()) {
        Some("True") => Cell::new("True").tone(Tone::Good),
        Some("False") => Cell::new("False").tone(Tone::Bad),
        Some(other) => Cell::new(other).tone(Tone::Held),
        None => Cell::new("Unknown").tone(Tone::Held),
    }
}

/// Returns what is promoted, and whether that is suspended.
fn promoting(suspended: bool, promotions: String) -> Cell {
    match (suspended, promotions.as_str()) {
        (false, _) => Cell::new(promotions).tone(Tone::Busy),
        (true, "") => Cell::new("suspended").tone(Tone::Held),
        (true, waiting) => Cell::new(format!("suspended: {waiting}")).tone(Tone::Held),
    }
}

fn suspension(suspended: bool) -> Cell {
    match suspended {
        true => Cell::new("True").tone(Tone::Held),
        false => Cell::new("False"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::text;
    use serde_json::json;

    fn shown(shape: Shape) -> String {
        let pipelines = [
            json!({
                "metadata": {"name": "podinfo", "namespace": "apps", "creationTimestamp": "2026-11-20T12:00:00Z",
                    "managedFields": [{"manager": "sluice", "fieldsV1": {"f:status": {}}}]},
                "spec": {"appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
                    "environments": [{"name": "dev", "targets": [{"namespace": "podinfo"}]}]},
                "status": {
                    "conditions": [{"type": "Ready", "status": "False", "reason": "TargetUnreadable",
                        "message": "prod/us: cannot be\nreached", "lastTransitionTime": "2026-11-20T12:00:00Z"}],
                    "summary": {"environments": "dev 6.1.8, prod 6.1.6", "promoting": "prod 6.1.8 Proposed"}},
            }),
            json!({
                "metadata": {"name": "held", "namespace": "apps", "creationTimestamp": "2026-11-20T12:00:00Z"},
                "spec": {"suspend": true, "environments": []},
                "status": {"summary": {"environments": "dev:2", "promoting": "2→prod Pending"}},
            }),
            json!({
                "metadata": {"name": "new", "namespace": "shop", "creationTimestamp": "2026-11-21T11:59:50Z"},
                "spec": {"suspend": true, "environments": []},
            }),
        ];
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let listing = Pipelines::default();
        let rows: Vec<Row> = pipelines
            .into_iter()
            .flat_map(|p| listing.rows(&serde_json::from_value(p).unwrap(), shape, now))
            .collect();
        text(listing.columns(shape), &rows)
    }

    #[test]
    fn a_line_shows_running_and_promoted_revisions() {
        insta::assert_snapshot!(shown(Shape::default()), @"
        NAME      APPLICATION   ENVIRONMENTS            READY     PROMOTING                   AGE
        podinfo   podinfo       dev 6.1.8, prod 6.1.6   False     prod 6.1.8 Proposed         24h
        held      -             dev:2                   Unknown   suspended: 2→prod Pending   24h
        new       -             -                       Unknown   suspended                   10s
        ");
        insta::assert_snapshot!(shown(Shape { wide: true, namespaces: true }), @"
        NAMESPACE   NAME      APPLICATION   ENVIRONMENTS            READY     PROMOTING                   AGE   SUSPENDED   MESSAGE
        apps        podinfo   podinfo       dev 6.1.8, prod 6.1.6   False     prod 6.1.8 Proposed         24h   False       prod/us: cannot be reached
        apps        held      -             dev:2                   Unknown   suspended: 2→prod Pending   24h   True        not looked at yet: is sluice controller running?
        shop        new       -             -                       Unknown   suspended                   10s   True        not looked at yet: is sluice controller running?
        ");
    }
}
