//! `sluice get promotions`: one line for each promotion, the newest last.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::Deserialize;
use sluice_api::Promotion;
use sluice_api::promotion::{Approval, KeyApproval, Phase, changes, place};
use sluice_core::revision::shortened;

use super::fetch::lean_metadata;
use super::filter::PromotionFilter;
use super::flags::Shape;
use super::listing::{Listing, fields};
use crate::name_completion;
use crate::object_argument;
use crate::table::{Cell, Row, Tone};

/// Show promotions, the newest last
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  # In the current namespace, in all of them
  sluice get promotions
  sluice get promotions -A

  # Those of one pipeline, with links, reasons and who approved
  sluice get promotions --pipeline podinfo -n apps -o wide

  # All details of one
  sluice get promotion podinfo-prod-6-1-8 -n apps -o yaml")]
pub(crate) struct Promotions {
    /// Only this one
    #[arg(value_parser = object_argument::promotion, add = ArgValueCompleter::new(name_completion::promotions))]
    name: Option<String>,
    /// Only those of this pipeline
    #[arg(long, value_name = "NAME", value_parser = object_argument::pipeline, add = ArgValueCompleter::new(name_completion::pipelines))]
    pipeline: Option<String>,
    /// Only those into this environment, or ENVIRONMENT/TARGET
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(name_completion::environments))]
    environment: Option<String>,
}

/// The fields of a Promotion that its line shows.
#[derive(Clone, Debug, Default, Deserialize, kube::Resource)]
#[resource(inherit = Promotion)]
#[serde(default)]
pub(crate) struct ListedPromotion {
    #[serde(deserialize_with = "lean_metadata")]
    metadata: ObjectMeta,
    spec: Spec,
    status: Option<Status>,
}

impl Spec {
    fn changes(&self, wanted: &str) -> bool {
        changes((&self.environment, self.target.as_deref()), wanted)
    }

    fn place(&self) -> String {
        place(&self.environment, self.target.as_deref())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    pipeline: String,
    environment: String,
    target: Option<String>,
    revision: String,
    approval: Option<Approval>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    message: String,
    attempts: u32,
    key_approval: Option<KeyApproval>,
    change_request: Option<ListedChangeRequest>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ListedChangeRequest {
    url: String,
}

impl Listing for Promotions {
    type Item = ListedPromotion;
    const OPTIONAL: &'static [&'static str] = &["ATTEMPTS", "APPROVED BY", "LINK", "AGE", "PIPELINE"];
    const CELLS: &'static [&'static str] = &[
        "Pipeline",
        "Environment",
        "Target",
        "Revision",
        "Phase",
        "Attempts",
        "Approved By",
        "Approval Key",
        "Approval Secret",
        "Message",
        "Link",
    ];

    fn from_cells(metadata: ObjectMeta, cells: Vec<String>) -> Option<ListedPromotion> {
        let [pipeline, environment, target, revision, phase, attempts, by, key, secret, message, url] =
            fields(cells);
        let target = Some(target).filter(|target| !target.is_empty());
        let approval =
            Some(Approval { by, ..Approval::default() }).filter(|approval| !approval.by.is_empty());
        let key_approval =
            Some(KeyApproval { key, secret, ..KeyApproval::default() }).filter(|by| !by.key.is_empty());
        let (attempts, change_request) =
            (attempts.parse().unwrap_or_default(), Some(ListedChangeRequest { url }));
        Some(ListedPromotion {
            metadata,
            spec: Spec { pipeline, environment, target, revision, approval },
            status: Some(Status { phase, message, attempts, key_approval, change_request }),
        })
    }

    fn unreadable(metadata: ObjectMeta, message: String) -> ListedPromotion {
        let status = Status { phase: "Unknown".into(), message, ..Status::default() };
        ListedPromotion { metadata, spec: Spec::default(), status: Some(status) }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn plural(&self) -> &'static str {
        "promotions"
    }

    fn filter(&self) -> Option<PromotionFilter<'_>> {
        (self.pipeline.is_some() || self.environment.is_some()).then_some(PromotionFilter {
            pipeline: self.pipeline.as_deref(),
            environment: self.environment.as_deref(),
        })
    }

    fn wants(&self, seen: &ListedPromotion) -> bool {
        // An unreadable promotion may belong to any pipeline.
        let is_unreadable = seen.spec.pipeline.is_empty();
        is_unreadable
            || self.pipeline.as_ref().is_none_or(|p| *p == seen.spec.pipeline)
                && self.environment.as_ref().is_none_or(|wanted| seen.spec.changes(wanted))
    }

    fn sort(&self, seen: &mut Vec<ListedPromotion>) {
        seen.sort_by_cached_key(|s| (s.metadata.creation_timestamp.clone(), s.namespace(), s.name_any()));
    }

    fn columns(&self, shape: Shape) -> Vec<&'static str> {
        let mut columns = vec!["NAME", "PIPELINE", "ENVIRONMENT", "REVISION", "PHASE", "AGE"];
        if shape.namespaces {
            columns.insert(0, "NAMESPACE");
        }
        if shape.wide {
            columns.extend(["ATTEMPTS", "APPROVED BY", "LINK", "MESSAGE"]);
        }
        columns
    }

    fn rows(&self, seen: &ListedPromotion, shape: Shape, now: Timestamp) -> Vec<Row> {
        let ListedPromotion { metadata, spec, status } = seen;
        let status = status.clone().unwrap_or_default();
        let born = metadata.creation_timestamp.as_ref();
        let mut row = vec![
            Cell::new(seen.name_any()),
            Cell::new(&spec.pipeline),
            Cell::new(spec.place()),
            Cell::new(if shape.wide { spec.revision.clone() } else { shortened(&spec.revision) }),
            phase(&status.phase),
            Cell::age(born.map(|t| t.0), now),
        ];
        if shape.namespaces {
            row.insert(0, Cell::new(seen.namespace().unwrap_or_default()));
        }
        if shape.wide {
            row.push(Cell::new(status.attempts.to_string()));
            let by_person = spec.approval.as_ref().map(|approval| approval.by.clone());
            let by = by_person.or_else(|| status.key_approval.as_ref().map(KeyApproval::by));
            row.push(Cell::new(by.unwrap_or_default()));
            row.push(Cell::new(status.change_request.unwrap_or_default().url));
            row.push(Cell::new(status.message));
        }
        vec![row]
    }
}

/// Returns the cell of a phase. A phase that only a newer controller has is shown without a tone.
fn phase(word: &str) -> Cell {
    let known: Option<Phase> = serde_json::from_value(word.into()).ok();
    let tone = match known {
        Some(Phase::Succeeded) => Tone::Good,
        Some(Phase::Promoting | Phase::Proposed | Phase::Delivered) => Tone::Busy,
        Some(Phase::Pending) => Tone::Held,
        Some(Phase::Failed | Phase::Rejected) => Tone::Bad,
        Some(Phase::Superseded | Phase::Cancelled) | None => Tone::Plain,
    };
    Cell::new(if word.is_empty() { "Pending" } else { word }).tone(tone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::text;
    use serde_json::{Value, json};

    fn promotion(name: &str, environment: &str, created: &str, status: Value) -> ListedPromotion {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "apps", "creationTimestamp": created},
            "spec": {"pipeline": "podinfo", "environment": environment, "revision": "6.1.8", "facets": {},
                "approval": (environment == "prod").then(|| json!({"by": "jane", "at": "2026-11-21T11:00:00Z"}))},
            "status": status,
        }))
        .unwrap()
    }

    fn shown(listing: &Promotions, shape: Shape) -> String {
        let mut seen = vec![
            promotion(
                "podinfo-prod-1",
                "prod",
                "2026-11-21T11:00:00Z",
                json!({"phase": "Proposed", "attempts": 1,
                "message": "waits for the merge", "changeRequest": {"number": 7, "url": "https://git/pr/7",
                "state": "open", "branch": "b", "headCommit": "c"}}),
            ),
            promotion(
                "podinfo-staging-1",
                "staging",
                "2026-11-21T10:00:00Z",
                json!({"phase": "Succeeded", "keyApproval": {"secret": "hook",
                "key": "3fa2b1", "signedAt": "2026-11-21T10:00:01Z", "at": "2026-11-21T10:00:01Z"}}),
            ),
        ];
        seen.retain(|s| listing.wants(s));
        listing.sort(&mut seen);
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let rows: Vec<Row> = seen.iter().flat_map(|s| listing.rows(s, shape, now)).collect();
        text(listing.columns(shape), &rows)
    }

    #[test]
    fn the_newest_is_last() {
        let all = Promotions::default();
        insta::assert_snapshot!(shown(&all, Shape::default()), @"
        NAME                PIPELINE   ENVIRONMENT   REVISION   PHASE       AGE
        podinfo-staging-1   podinfo    staging       6.1.8      Succeeded   120m
        podinfo-prod-1      podinfo    prod          6.1.8      Proposed    60m
        ");
        insta::assert_snapshot!(shown(&all, Shape { wide: true, namespaces: true }), @"
        NAMESPACE   NAME                PIPELINE   ENVIRONMENT   REVISION   PHASE       AGE    ATTEMPTS   APPROVED BY                 LINK               MESSAGE
        apps        podinfo-staging-1   podinfo    staging       6.1.8      Succeeded   120m   0          key 3fa2b1 of Secret hook
        apps        podinfo-prod-1      podinfo    prod          6.1.8      Proposed    60m    1          jane                        https://git/pr/7   waits for the merge
        ");
    }

    #[test]
    fn promotions_are_filtered_by_pipeline_and_environment() {
        let only = |pipeline: &str, environment: &str| Promotions {
            pipeline: Some(pipeline.into()),
            environment: Some(environment.into()),
            ..Promotions::default()
        };
        let lines = |listing| shown(&listing, Shape::default()).lines().count();
        assert_eq!(lines(only("podinfo", "prod")), 2);
        assert_eq!(lines(only("podinfo", "prod/eu")), 2, "all targets are promoted into together");
        assert_eq!(lines(only("podinfo", "pro/d")), 1);
        assert_eq!(lines(only("other", "prod")), 1);
    }
}
