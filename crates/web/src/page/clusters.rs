//! The clusters, those that cannot be read first.

use maud::{Markup, html};
use sluice_core::access::Caller;
use sluice_view::fleet::observed_clusters::{ClusterReadability, ObservedClusterRow, cluster_state};

use super::frame::{Page, Section};
use super::links::escaped;
use super::shape::{Shape, badge};
use crate::find::visible_environments;
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::visible_fleet::visible_clusters;

pub(super) async fn page<H: Hub>(api: &Api<H>, caller: &Caller) -> Result<Page, Problem> {
    let visible = visible_clusters(&api.hub, caller, &api.fleet).await?;
    let environments = visible_environments(api, caller).await?;
    let mut rows: Vec<ObservedClusterRow> =
        visible.iter().filter_map(|key| api.fleet.read(key, |cluster| cluster_state(key, cluster))).collect();
    rows.sort_by_key(|row| (shape(row) == Shape::Ready, row.name.clone()));
    let count = |state| rows.iter().filter(|row| row.state == state).count();
    let (lost, partial) = (count(ClusterReadability::Lost), count(ClusterReadability::Partial));
    let content = html! {
        h1 { "Clusters" }
        @if rows.is_empty() {
            div.empty {
                p { "There is no cluster that you may see, besides the hub." }
                p.quiet {
                    "A GitopsCluster names the Secret with the kubeconfig of a cluster. You see the clusters whose GitopsCluster you may get."
                }
            }
        } @else {
            p.quiet {
                (rows.len()) " clusters"
                @if lost > 0 { ", " (lost) " cannot be read" }
                @if partial > 0 { ", " (partial) " only in part" }
            }
            div.scrolls.clusters tabindex="0" role="region" aria-label="Clusters" {
                table {
                    thead { tr {
                        th scope="col" { "Cluster" }
                        th scope="col" { "State" }
                        th scope="col" { "Why" }
                        th scope="col" { "Environments" }
                        th.number scope="col" { "Objects" }
                    } }
                    tbody { @for row in &rows { (cluster(row, &environments.on(&row.name).names)) } }
                }
            }
        }
    };
    Ok(Page::one("Clusters", Section::Clusters, &content))
}

fn cluster(row: &ObservedClusterRow, environments: &str) -> Markup {
    html! {
        tr {
            th scope="row" { a href={ "/charts?cluster=" (escaped(&row.name)) } { (row.name) } }
            td { (badge(shape(row), row.state.word())) }
            td.reason { (row.message) }
            td { (environments) }
            td.number { (row.objects) }
        }
    }
}

fn shape(row: &ObservedClusterRow) -> Shape {
    match row.state {
        ClusterReadability::Up => Shape::Ready,
        ClusterReadability::Partial => Shape::Unknown,
        ClusterReadability::Connecting => Shape::Progress,
        ClusterReadability::Lost => Shape::Failed,
    }
}
