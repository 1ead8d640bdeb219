//! Which version of what runs on which cluster, as a table: a row for each name, a column for each cluster.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::chart_version::newest_first;

use super::cluster_environments::{ClusterEnvironments, NamedEnvironments};
use super::versions::RunningVersion;

/// The most versions that one cell shows. A hostile cluster may run thousands of one name.
const MAX_VERSIONS: usize = 5;

/// Which versions run where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The clusters, those with the environments that revisions reach first before others.
    pub columns: Vec<MatrixColumn>,
    /// One row for each name.
    pub rows: Vec<MatrixRow>,
    /// How many rows there are beyond those in `rows`.
    pub further: usize,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixColumn {
    /// The cluster; empty for the hub.
    pub cluster: String,
    /// The environments that pipelines have there; empty if there are none.
    pub environments: String,
}

/// Where the versions of one chart or image run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixRow {
    /// The name of the chart or image.
    pub name: String,
    /// For each cluster, in the order of the clusters, what runs there.
    pub cells: Vec<MatrixCell>,
}

/// The versions of one name on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixCell {
    /// The versions, those with outliers first, and otherwise the newest first.
    pub versions: Vec<MatrixVersion>,
    /// How many versions there are beyond these.
    pub further: usize,
}

/// A version on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixVersion {
    /// The version.
    pub version: String,
    /// How many objects run it.
    pub count: usize,
    /// Whether one of them is an outlier.
    pub outlier: bool,
}

/// The versions of one name on one cluster: how many objects run each, and whether one of them is an outlier.
type Cell<'a> = BTreeMap<&'a str, (usize, bool)>;
/// The cells of one name, by cluster.
type Cells<'a> = BTreeMap<&'a str, Cell<'a>>;

/// Returns the table of these rows: at most `limit` rows, those with outliers first.
pub fn matrix<'a>(
    running: impl Iterator<Item = &'a RunningVersion>,
    limit: usize,
    environments: &ClusterEnvironments,
) -> Matrix {
    let mut names: BTreeMap<&str, Cells<'_>> = BTreeMap::new();
    let mut clusters: BTreeSet<&str> = BTreeSet::new();
    for row in running {
        clusters.insert(&row.cluster);
        let on = names.entry(&row.name).or_default().entry(&row.cluster).or_default();
        let (count, outlier) = on.entry(&row.version).or_default();
        *count += 1;
        *outlier |= row.outlier;
    }
    let has_outlier = |on: &Cells<'_>| on.values().flatten().any(|(_, (_, outlier))| *outlier);
    let mut found: Vec<(&str, Cells<'_>)> = names.into_iter().collect();
    // By name otherwise, because the sort is stable.
    found.sort_by_cached_key(|(_, on)| !has_outlier(on));
    let further = found.len().saturating_sub(limit);
    // Before rows are made: a hostile cluster may have thousands of names, and each row has a cell for each cluster.
    found.truncate(limit);
    let mut columns: Vec<(NamedEnvironments, &str)> =
        clusters.into_iter().map(|cluster| (environments.on(cluster), cluster)).collect();
    columns.sort();
    Matrix {
        rows: found.iter().map(|(name, on)| row(name, on, &columns)).collect(),
        columns: columns.into_iter().map(|(on, cluster)| column(on, cluster)).collect(),
        further,
    }
}

fn column(on: NamedEnvironments, cluster: &str) -> MatrixColumn {
    MatrixColumn { cluster: cluster.into(), environments: on.names }
}

fn row(name: &str, on: &Cells<'_>, columns: &[(NamedEnvironments, &str)]) -> MatrixRow {
    MatrixRow { name: name.into(), cells: columns.iter().map(|(_, cluster)| cell(on.get(cluster))).collect() }
}

fn cell(on: Option<&Cell<'_>>) -> MatrixCell {
    let mut versions: Vec<(&str, usize, bool)> =
        on.into_iter().flatten().map(|(version, (count, outlier))| (*version, *count, *outlier)).collect();
    versions.sort_by(|(a, _, one), (b, _, other)| other.cmp(one).then_with(|| newest_first(a, b)));
    let further = versions.len().saturating_sub(MAX_VERSIONS);
    versions.truncate(MAX_VERSIONS);
    let version = |(version, count, outlier): (&str, usize, bool)| MatrixVersion {
        version: version.into(),
        count,
        outlier,
    };
    MatrixCell { versions: versions.into_iter().map(version).collect(), further }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(name: &str, cluster: &str, version: &str, outlier: bool) -> RunningVersion {
        let (name, cluster, version) = (name.into(), cluster.into(), version.into());
        RunningVersion { name, cluster, version, outlier, ..RunningVersion::default() }
    }

    #[test]
    fn the_table_has_the_rows_with_outliers_first_and_a_cell_for_each_cluster() {
        let rows = [
            running("a", "", "1", false),
            running("a", "", "1", false),
            running("b", "", "1", false),
            running("c", "eu", "2", true),
            running("c", "", "1", false),
        ];
        let environments = ClusterEnvironments::default();
        let table = matrix(rows.iter(), 2, &environments);
        let names: Vec<&str> = table.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names, table.further), (vec!["c", "a"], 1));
        let clusters: Vec<&str> = table.columns.iter().map(|column| column.cluster.as_str()).collect();
        assert_eq!(clusters, ["", "eu"]);
        let version =
            |version: &str, count, outlier| MatrixVersion { version: version.into(), count, outlier };
        assert_eq!(table.rows[0].cells[1].versions, [version("2", 1, true)]);
        assert_eq!(table.rows[1].cells[0].versions, [version("1", 2, false)]);
        assert_eq!(table.rows[1].cells[1], MatrixCell::default());
    }

    #[test]
    fn a_cell_shows_few_versions_and_the_outliers_among_them_first() {
        let rows: Vec<_> = (0..9).map(|n| running("a", "eu", &n.to_string(), n == 8)).collect();
        let table = matrix(rows.iter(), 10, &ClusterEnvironments::default());
        let cell = &table.rows[0].cells[0];
        assert_eq!((cell.versions.len(), cell.further), (MAX_VERSIONS, 9 - MAX_VERSIONS));
        assert_eq!((cell.versions[0].version.as_str(), cell.versions[1].version.as_str()), ("8", "7"));
    }

    #[test]
    fn the_newest_version_of_a_cell_comes_first() {
        let rows = ["1.9.0", "1.10.0", "1.10.0-rc.1"].map(|version| running("a", "eu", version, false));
        let table = matrix(rows.iter(), 10, &ClusterEnvironments::default());
        let shown: Vec<&str> =
            table.rows[0].cells[0].versions.iter().map(|version| version.version.as_str()).collect();
        assert_eq!(shown, ["1.10.0", "1.10.0-rc.1", "1.9.0"]);
    }

    #[test]
    fn clusters_are_ordered_by_the_environments_that_revisions_reach_first() {
        let target = |cluster: &str| serde_json::json!([{"namespace": "apps", "clusterRef": {"kind": "GitopsCluster", "name": cluster}}]);
        let pipeline = serde_json::from_value(serde_json::json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "podinfo", "namespace": "fleet"},
            "spec": {"environments": [{"name": "dev", "targets": target("z")}, {"name": "prod", "targets": target("b")}]}}))
        .unwrap();
        let rows = ["fleet/a", "fleet/b", "fleet/z"].map(|cluster| running("a", cluster, cluster, false));
        let table = matrix(rows.iter(), 10, &ClusterEnvironments::of([&pipeline]));
        let columns: Vec<(&str, &str)> = table
            .columns
            .iter()
            .map(|column| (column.cluster.as_str(), column.environments.as_str()))
            .collect();
        assert_eq!(columns, [("fleet/z", "dev"), ("fleet/b", "prod"), ("fleet/a", "")]);
        assert_eq!(table.rows[0].cells[1].versions[0].version, "fleet/b");
    }
}
