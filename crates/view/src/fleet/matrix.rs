//! Which version of what runs on which cluster, as a table: a row for each name, a column for each cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::versions::RunningVersion;

/// Which versions run where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The clusters, the hub (an empty name) first.
    pub clusters: Vec<String>,
    /// One row for each name.
    pub rows: Vec<MatrixRow>,
    /// How many rows there are beyond those in `rows`.
    pub further: usize,
}

/// Where the versions of one chart or image run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixRow {
    /// The name of the chart or image.
    pub name: String,
    /// For each cluster, in the order of the clusters, its versions.
    pub cells: Vec<Vec<MatrixVersion>>,
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
pub fn matrix<'a>(running: impl Iterator<Item = &'a RunningVersion>, limit: usize) -> Matrix {
    let mut names: BTreeMap<&str, Cells<'_>> = BTreeMap::new();
    let mut clusters: BTreeSet<&str> = BTreeSet::new();
    for row in running {
        clusters.insert(&row.cluster);
        let on = names.entry(&row.name).or_default().entry(&row.cluster).or_default();
        let (count, outlier) = on.entry(&row.version).or_default();
        *count += 1;
        *outlier |= row.outlier;
    }
    let mut rows: Vec<(bool, MatrixRow)> =
        names.into_iter().map(|(name, on)| row(name, &on, &clusters)).collect();
    rows.sort_by(|(a, first), (b, second)| b.cmp(a).then_with(|| first.name.cmp(&second.name)));
    let further = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Matrix {
        clusters: clusters.into_iter().map(String::from).collect(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        further,
    }
}

/// Returns a row, and whether it has an outlier.
fn row(name: &str, on: &Cells<'_>, clusters: &BTreeSet<&str>) -> (bool, MatrixRow) {
    let version = |(version, (count, outlier)): (&&str, &(usize, bool))| MatrixVersion {
        version: (*version).to_string(),
        count: *count,
        outlier: *outlier,
    };
    let cells: Vec<Vec<MatrixVersion>> =
        clusters.iter().map(|cluster| on.get(cluster).into_iter().flatten().map(version).collect()).collect();
    let has_outlier = cells.iter().flatten().any(|cell| cell.outlier);
    (has_outlier, MatrixRow { name: name.into(), cells })
}
