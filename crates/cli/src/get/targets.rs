//! `sluice get targets`: one line for each workload of each target.

use clap::Args;
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;
use sluice_api::pipeline::Health;
use sluice_core::revision::shortened;

use super::flags::Shape;
use super::listing::Listing;
use super::target_lines::{ListedTargets, TargetLine, lines};
use crate::age;
use crate::name_completion;
use crate::object_argument;
use crate::table::{Cell, Row};

/// Show what runs on each target of a pipeline
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  # Which version of podinfo runs where, and is it healthy?
  sluice get targets podinfo -n apps

  # With all images and whole revisions; for machines
  sluice get targets podinfo -n apps -o wide
  sluice get targets podinfo -n apps -o json

  # The targets of all pipelines of all namespaces
  sluice get targets -A")]
pub(crate) struct Targets {
    /// Only those of this pipeline
    #[arg(value_name = "PIPELINE", value_parser = object_argument::pipeline, add = ArgValueCompleter::new(name_completion::pipelines))]
    pipeline: Option<String>,
}

impl Listing for Targets {
    type Item = ListedTargets;
    const NAMES_OBJECTS: bool = false;
    const OPTIONAL: &'static [&'static str] =
        &["IMAGES", "REVISION", "NAMESPACE", "SINCE", "CLUSTER", "WORKLOAD"];

    fn unreadable(metadata: ObjectMeta, error: String) -> ListedTargets {
        ListedTargets::unreadable(metadata, error)
    }

    fn name(&self) -> Option<&str> {
        self.pipeline.as_deref()
    }

    fn plural(&self) -> &'static str {
        "pipelines"
    }

    fn columns(&self, shape: Shape) -> Vec<&'static str> {
        let mut columns =
            vec!["ENVIRONMENT", "TARGET", "CLUSTER", "NAMESPACE", "WORKLOAD", "VERSION", "HEALTH", "SINCE"];
        if shape.namespaces || self.pipeline.is_none() {
            columns.insert(0, "PIPELINE");
        }
        if shape.wide {
            columns.extend(["REVISION", "IMAGES"]);
        }
        columns.push("ERROR");
        columns
    }

    fn rows(&self, seen: &ListedTargets, shape: Shape, now: Timestamp) -> Vec<Row> {
        let lines = lines(seen).into_iter();
        lines.map(|line| self.row(line, seen.metadata.namespace.as_deref(), shape, now)).collect()
    }

    fn documents(&self, _: Value, seen: &ListedTargets) -> Vec<Value> {
        lines(seen).into_iter().filter_map(|line| serde_json::to_value(line).ok()).collect()
    }

    fn names(&self, seen: &ListedTargets) -> Vec<String> {
        let mut names: Vec<_> =
            lines(seen).iter().map(|l| format!("{}/{}", l.environment, l.target)).collect();
        names.dedup();
        names
    }

    fn warning(&self, seen: &[ListedTargets]) -> Option<String> {
        let mut bad = Vec::new();
        for line in seen.iter().flat_map(lines) {
            if matches!(line.health, Health::Failed | Health::Unknown) {
                bad.push(format!("{}/{} {}", line.environment, line.target, line.health));
            }
        }
        bad.dedup();
        let look = match bad.len() {
            0 => None,
            1..=5 => Some(format!("look at {}", bad.join(", "))),
            n => Some(format!("{n} targets are Failed or Unknown")),
        };
        let of_one =
            |pipeline: &ListedTargets| Some(format!("{}: {}", pipeline.name_any(), pipeline.summarized()?));
        let all: Vec<String> = look.into_iter().chain(seen.iter().filter_map(of_one)).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Targets {
    fn row(&self, line: TargetLine, home: Option<&str>, shape: Shape, now: Timestamp) -> Row {
        let health = health(&line, now);
        let version = if shape.wide { line.version } else { shortened(&line.version) };
        let mut row = vec![
            Cell::new(line.environment),
            Cell::new(line.target),
            Cell::new(line.cluster),
            Cell::new(line.namespace),
            Cell::new(line.workload),
            Cell::new(version),
            Cell::new(health).tone(line.health.into()),
            Cell::age(line.since.as_deref().copied(), now),
        ];
        if shape.namespaces {
            row.insert(0, Cell::new(format!("{}/{}", home.unwrap_or_default(), line.pipeline)));
        } else if self.pipeline.is_none() {
            row.insert(0, Cell::new(line.pipeline));
        }
        if shape.wide {
            row.push(Cell::new(line.revision));
            row.push(Cell::new(line.images.join(",")));
        }
        row.push(Cell::new(line.error));
        row
    }
}

/// Returns the health; for a target with `observe: Push`, also the age of its last report.
fn health(line: &TargetLine, now: Timestamp) -> String {
    let health = line.health.to_string();
    match line.reported {
        Some(time) => format!("{health}, reported {} ago", age::since(*time, now)),
        None => health,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fetch::item_from;
    use super::*;
    use crate::table::text;
    use serde_json::json;

    fn fixture() -> ListedTargets {
        let workload = |kind: &str, name: &str, version: &str, health: &str| {
            json!({"kind": kind, "name": name, "version": version, "health": health,
                "images": [format!("ghcr.io/stefanprodan/podinfo:{version}")]})
        };
        serde_json::from_value(json!({
            "metadata": {"name": "podinfo", "namespace": "apps"},
            "spec": {"environments": [
                {"name": "staging", "targets": [
                    {"namespace": "podinfo", "name": "us", "clusterRef": {"kind": "GitopsCluster", "name": "dev-us"}},
                    {"namespace": "podinfo", "name": "eu", "clusterRef": {"kind": "GitopsCluster", "name": "dev-eu", "namespace": "fleet"}}]},
                {"name": "prod", "targets": [{"namespace": "podinfo"}, {"namespace": "canary"}]},
                {"name": "dr", "targets": [{"namespace": "podinfo", "name": "dr"}]},
                {"name": "edge", "targets": [{"namespace": "podinfo", "observe": "Push",
                    "clusterRef": {"kind": "GitopsCluster", "name": "edge"}}]},
            ]},
            "status": {"environments": {
                "edge": {"targets": [{"name": "edge-podinfo", "namespace": "podinfo", "health": "Ready",
                    "since": "2026-11-20T12:00:00Z", "reported": "2026-11-21T11:48:00Z", "ready": true, "revision": "6.1.8",
                    "workloads": [workload("HelmRelease", "podinfo", "6.1.8", "Ready")]}]},
                "dr": {"targets": [{"name": "dr", "namespace": "podinfo", "health": "Unknown",
                    "since": "2026-11-21T11:59:15Z", "error": "cluster dr cannot be reached: connection refused",
                    "workloads": [workload("HelmRelease", "podinfo", "6.1.6", "Ready")]}]},
                "prod": {"targets": [{"name": "podinfo", "namespace": "podinfo", "health": "Failed",
                    "since": "2026-11-21T11:00:00Z", "error": "HelmRelease/podinfo: install retries exhausted",
                    "workloads": [
                        {"kind": "HelmRelease", "name": "podinfo", "version": "6.1.8", "health": "Failed", "message": "install retries exhausted"},
                        workload("Deployment", "podinfo", "6.1.6", "Ready")]}]},
                "staging": {"targets": [
                    {"name": "us", "namespace": "podinfo", "health": "Ready", "since": "2026-11-21T11:55:00Z", "ready": true,
                     "revision": "6.1.8", "workloads": [
                        workload("HelmRelease", "podinfo", "6.1.8", "Ready"),
                        workload("Deployment", "podinfo", "6.1.8", "Ready")]},
                    {"name": "eu", "namespace": "podinfo", "health": "Progressing", "since": "2026-11-21T11:59:58Z",
                     "revision": "main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f", "workloads": [
                        workload("Kustomization", "podinfo", "main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f", "Progressing")]}]},
            }},
        }))
        .unwrap()
    }

    fn shown(listing: &Targets, shape: Shape) -> String {
        let rows = listing.rows(&fixture(), shape, "2026-11-21T12:00:00Z".parse().unwrap());
        text(listing.columns(shape), &rows)
    }

    #[test]
    fn every_workload_of_every_target_is_a_line_in_the_order_of_the_spec() {
        let one = Targets { pipeline: Some("podinfo".into()) };
        insta::assert_snapshot!(shown(&one, Shape::default()), @"
        ENVIRONMENT   TARGET         CLUSTER        NAMESPACE   WORKLOAD                VERSION              HEALTH                    SINCE   ERROR
        staging       us             dev-us         podinfo     HelmRelease/podinfo     6.1.8                Ready                     5m
        staging       us             dev-us         podinfo     Deployment/podinfo      6.1.8                Ready                     5m
        staging       eu             fleet/dev-eu   podinfo     Kustomization/podinfo   main@sha1:1eabc9a4   Progressing               2s
        prod          podinfo        -              podinfo     HelmRelease/podinfo     6.1.8                Failed                    60m     install retries exhausted
        prod          podinfo        -              podinfo     Deployment/podinfo      6.1.6                Ready                     60m
        prod          canary         -              canary      -                       -                    Unknown                   -       not looked at yet: is sluice controller running?
        dr            dr             -              podinfo     HelmRelease/podinfo     6.1.6                Unknown                   45s     cluster dr cannot be reached: connection refused
        edge          edge-podinfo   edge           podinfo     HelmRelease/podinfo     6.1.8                Ready, reported 12m ago   24h
        ");
        insta::assert_snapshot!(shown(&Targets::default(), Shape { wide: true, namespaces: true }), @"
        PIPELINE       ENVIRONMENT   TARGET         CLUSTER        NAMESPACE   WORKLOAD                VERSION                                              HEALTH                    SINCE   REVISION                                             IMAGES                                                                            ERROR
        apps/podinfo   staging       us             dev-us         podinfo     HelmRelease/podinfo     6.1.8                                                Ready                     5m      6.1.8                                                ghcr.io/stefanprodan/podinfo:6.1.8
        apps/podinfo   staging       us             dev-us         podinfo     Deployment/podinfo      6.1.8                                                Ready                     5m      6.1.8                                                ghcr.io/stefanprodan/podinfo:6.1.8
        apps/podinfo   staging       eu             fleet/dev-eu   podinfo     Kustomization/podinfo   main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f   Progressing               2s      main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f   ghcr.io/stefanprodan/podinfo:main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f
        apps/podinfo   prod          podinfo        -              podinfo     HelmRelease/podinfo     6.1.8                                                Failed                    60m     -                                                    -                                                                                 install retries exhausted
        apps/podinfo   prod          podinfo        -              podinfo     Deployment/podinfo      6.1.6                                                Ready                     60m     -                                                    ghcr.io/stefanprodan/podinfo:6.1.6
        apps/podinfo   prod          canary         -              canary      -                       -                                                    Unknown                   -       -                                                    -                                                                                 not looked at yet: is sluice controller running?
        apps/podinfo   dr            dr             -              podinfo     HelmRelease/podinfo     6.1.6                                                Unknown                   45s     -                                                    ghcr.io/stefanprodan/podinfo:6.1.6                                                cluster dr cannot be reached: connection refused
        apps/podinfo   edge          edge-podinfo   edge           podinfo     HelmRelease/podinfo     6.1.8                                                Ready, reported 12m ago   24h     6.1.8                                                ghcr.io/stefanprodan/podinfo:6.1.8
        ");
    }

    #[test]
    fn unhealthy_targets_are_named_in_a_warning() {
        let warning = Targets::default().warning(&[fixture()]);
        insta::assert_snapshot!(warning.unwrap(), @"look at prod/podinfo Failed, prod/canary Unknown, dr/dr Unknown");
    }

    #[test]
    fn names_are_environments_with_targets() {
        assert_eq!(
            Targets::default().names(&fixture()),
            ["staging/us", "staging/eu", "prod/podinfo", "prod/canary", "dr/dr", "edge/edge-podinfo"]
        );
    }

    #[test]
    fn a_status_of_the_predecessor_is_shown_by_index() {
        let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
        let seen: ListedTargets = serde_json::from_str(text).unwrap();
        let one = Targets { pipeline: Some("podinfo".into()) };
        let rows = one.rows(&seen, Shape::default(), "2026-11-21T12:00:00Z".parse().unwrap());
        let shown = text_of(&one, &rows);
        let lines: Vec<Vec<&str>> =
            shown.lines().skip(1).map(|l| l.split_whitespace().take(7).collect()).collect();
        assert_eq!(lines[0], ["dev", "dev-podinfo", "dev", "podinfo", "-", "6.1.8", "Ready"], "{shown}");
        assert_eq!(lines[1][..4], ["dev", "podinfo-02-dev", "-", "podinfo-02-dev"], "{shown}");
        assert!(shown.contains("Unknown") && shown.contains("\"podinfo\" not found"), "{shown}");
        assert_eq!(lines[2], ["prod", "prod-podinfo", "prod", "podinfo", "-", "6.1.6", "Ready"], "{shown}");
    }

    #[test]
    fn the_rest_of_a_status_is_shown_beside_an_unreadable_part() {
        let text = include_str!("../../../api/tests/data/predecessor-level-mode.json");
        let odd: Value =
            serde_json::from_str(&text.replace(r#""ready": true"#, r#""ready": "yes""#)).unwrap();
        let seen = item_from::<Targets>(&odd).unwrap();
        let lines = lines(&seen);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| !line.error.contains("cannot be read:")));
    }

    #[test]
    fn an_unreadable_pipeline_is_a_line_with_its_error() {
        let broken = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "broken", "namespace": "apps"}, "spec": {"environments": 7}});
        let seen = item_from::<Targets>(&broken).unwrap();
        let rows = Targets::default().rows(&seen, Shape::default(), "2026-11-21T12:00:00Z".parse().unwrap());
        let shown = text_of(&Targets::default(), &rows);
        assert!(shown.contains("broken") && shown.contains("cannot be read: invalid type"), "{shown}");
        assert!(Targets::default().warning(&[seen]).is_some());
    }

    fn text_of(listing: &Targets, rows: &[Row]) -> String {
        text(listing.columns(Shape::default()), rows)
    }
}
