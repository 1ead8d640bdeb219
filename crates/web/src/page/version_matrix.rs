//! Which charts and images run on which clusters: as a matrix, or every object that runs one of them.

use maud::{Markup, html};
use serde::Deserialize;
use sluice_core::access::Caller;
use sluice_view::fleet::cluster_environments::ClusterEnvironments;
use sluice_view::fleet::matrix::{Matrix, MatrixColumn, MatrixVersion, matrix};
use sluice_view::fleet::versions::{RunningVersion, UnreadCluster};

use super::frame::{Page, Section};
use super::links;
use super::links::escaped;
use super::shape::{Shape, icon};
use super::words;
use crate::find::visible_environments;
use crate::fleet_versions::{AllRows, VersionKind};
use crate::hub::Hub;
use crate::problem::Problem;
use crate::state::Api;
use crate::versions_query::{VersionsQuery, matches};
use crate::visible_fleet::Visible;

/// The most rows of a matrix: a page of more is not looked at, but searched.
const MAX_ROWS: usize = 100;
/// The most objects of a list.
const MAX_OBJECTS: usize = 1000;

/// Which versions a page shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MatrixQuery {
    /// A text that the name contains.
    pub q: String,
    /// Only this name, with each object that runs it.
    pub name: String,
    /// Only this cluster.
    pub cluster: String,
    /// Only what differs from most others; anything but an empty text counts.
    pub outliers: String,
}

impl MatrixQuery {
    /// Whether a page shows the matrix, and not a list of objects.
    fn is_for_matrix(&self) -> bool {
        self.name.is_empty() && self.cluster.is_empty()
    }
}

/// What a page shows of the rows.
enum Shown {
    Matrix(Matrix),
    Objects(Vec<RunningVersion>, usize),
}

pub(super) async fn page<H: Hub>(
    api: &Api<H>,
    caller: &Caller,
    kind: VersionKind,
    query: &MatrixQuery,
) -> Result<Page, Problem> {
    let (title, section, path) = match kind {
        VersionKind::Charts => ("Charts", Section::Charts, "/charts"),
        VersionKind::Images => ("Images", Section::Images, "/images"),
    };
    let visible = Visible::to(&api.hub, caller, &api.fleet, kind.kinds()).await?;
    let environments = match query.is_for_matrix() {
        true => visible_environments(api, caller).await?,
        false => ClusterEnvironments::default(),
    };
    let wanted = query.clone();
    let shown = move |all: &AllRows| (chosen(&all.items, &wanted, &environments), all.unread.clone());
    let (shown, unread) = api.rows.compute(&api.fleet, kind, visible, shown).await?;
    let content = html! {
        h1 { (title) }
        (filters(path, query))
        (missing(&unread))
        @match &shown {
            Shown::Matrix(matrix) => (table(path, query, matrix)),
            Shown::Objects(objects, further) => (list(objects, *further)),
        }
    };
    Ok(Page::one(title, section, &content))
}

fn chosen(items: &[RunningVersion], wanted: &MatrixQuery, environments: &ClusterEnvironments) -> Shown {
    let wanted_rows = VersionsQuery {
        name: wanted.q.clone(),
        cluster: wanted.cluster.clone(),
        outliers: !wanted.outliers.is_empty(),
        ..VersionsQuery::default()
    };
    let found = items.iter().filter(|row| matches(row, &wanted_rows));
    if wanted.is_for_matrix() {
        return Shown::Matrix(matrix(found, MAX_ROWS, environments));
    }
    let mut objects: Vec<RunningVersion> =
        found.filter(|row| wanted.name.is_empty() || row.name == wanted.name).cloned().collect();
    objects.sort_by_key(|row| !row.outlier);
    let further = objects.len().saturating_sub(MAX_OBJECTS);
    objects.truncate(MAX_OBJECTS);
    Shown::Objects(objects, further)
}

fn filters(path: &str, query: &MatrixQuery) -> Markup {
    html! {
        form.filters method="get" action=(path) role="search" {
            input type="search" name="q" value=(query.q) placeholder="Part of a name" aria-label="Filter";
            @if !query.name.is_empty() { input type="hidden" name="name" value=(query.name); }
            @if !query.cluster.is_empty() { input type="hidden" name="cluster" value=(query.cluster); }
            label.check {
                input type="checkbox" name="outliers" value="yes" checked[!query.outliers.is_empty()];
                "Only what differs from most"
            }
            button { "Filter" }
            @if !query.name.is_empty() || !query.cluster.is_empty() {
                a.chip href=(path) { "× " (query.name) @if !query.name.is_empty() && !query.cluster.is_empty() { " on " } (query.cluster) }
            }
        }
    }
}

fn missing(unread: &[UnreadCluster]) -> Markup {
    html! {
        @if !unread.is_empty() {
            details.note {
                summary { (icon(Shape::Unknown, "not complete")) " Not complete: " (unread_parts(unread.len())) " cannot be read" }
                ul { @for one in unread { li { b { (if one.cluster.is_empty() { "hub" } else { &one.cluster }) } ": " (one.why) } } }
            }
        }
    }
}

/// Returns how many parts of the fleet cannot be read: each is a whole cluster, or a kind of objects on one.
fn unread_parts(count: usize) -> String {
    if count == 1 {
        "1 cluster or kind of objects".into()
    } else {
        format!("{count} clusters or kinds of objects")
    }
}

fn table(path: &str, query: &MatrixQuery, matrix: &Matrix) -> Markup {
    let outliers = if query.outliers.is_empty() { "" } else { "&outliers=yes" };
    html! {
        @if matrix.rows.is_empty() {
            p.empty { "Nothing runs that you may see, or nothing matches." }
        } @else {
            div.scrolls tabindex="0" role="region" aria-label="Versions by cluster" {
                table.matrix {
                    thead {
                        (environments_row(&matrix.columns))
                        tr {
                            th scope="col" { "Name" }
                            @for MatrixColumn { cluster, .. } in &matrix.columns {
                                th scope="col" {
                                    @let cluster = if cluster.is_empty() { "hub" } else { cluster };
                                    a href={ (path) "?cluster=" (escaped(cluster)) (outliers) } title=(cluster) { (cluster) }
                                }
                            }
                        }
                    }
                    tbody {
                        @for row in &matrix.rows {
                            tr {
                                th scope="row" { a href={ (path) "?name=" (escaped(&row.name)) } { (row.name) } }
                                @for cell in &row.cells {
                                    td {
                                        @for version in &cell.versions { (one_version(version)) }
                                        @if cell.further > 0 { span.quieter { "and " (cell.further) " more" } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if matrix.further > 0 { p.small.quieter { (matrix.further) " more names are not shown: filter to find them" } }
        }
    }
}

/// Returns the row above the clusters with the environments that they have, unless none has any.
fn environments_row(columns: &[MatrixColumn]) -> Markup {
    let groups = columns.chunk_by(|one, other| one.environments == other.environments);
    html! {
        @if columns.iter().any(|column| !column.environments.is_empty()) {
            tr.environments {
                td {}
                @for group in groups {
                    @match group {
                        [first, ..] if !first.environments.is_empty() => th scope="colgroup" colspan=(group.len()) { (first.environments) },
                        _ => td colspan=(group.len()) {},
                    }
                }
            }
        }
    }
}

fn one_version(version: &MatrixVersion) -> Markup {
    html! {
        span.version.outlier[version.outlier] title=[version.outlier.then_some("differs from most")] {
            @if version.outlier { span.mark aria-label="differs from most" { "≠ " } }
            (words::revision(&version.version))
            @if version.count > 1 { span.quieter { " ×" (version.count) } }
        }
    }
}

fn list(objects: &[RunningVersion], further: usize) -> Markup {
    html! {
        @if objects.is_empty() { p.empty { "Nothing runs that you may see, or nothing matches." } } @else {
            div.scrolls tabindex="0" role="region" aria-label="Objects" {
                table {
                    thead { tr {
                        @for title in ["Name", "Version", "Cluster", "Namespace", "Object", "Health", "Made by"] { th scope="col" { (title) } }
                    } }
                    tbody { @for row in objects { (object(row)) } }
                }
            }
            @if further > 0 { p.small.quieter { (further) " more objects are not shown: filter to find them" } }
        }
    }
}

fn object(row: &RunningVersion) -> Markup {
    let (kind, name) = row.object.split_once('/').unwrap_or_default();
    let trace = links::trace(&row.cluster, kind, &row.namespace, name);
    html! {
        tr {
            td { (row.name) }
            td.outlier[row.outlier] { @if row.outlier { span.mark aria-label="differs from most" { "≠ " } } (words::revision(&row.version)) }
            td { (if row.cluster.is_empty() { "hub" } else { &row.cluster }) }
            td { (row.namespace) }
            td { a href=(trace) title="Where does it come from?" { (row.object) } }
            td { (super::shape::badge(Shape::of_health(row.health), &row.health.to_string())) }
            td.quiet { (row.made_by) }
        }
    }
}
