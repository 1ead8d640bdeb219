//! Paths of manifests in a repository: which files are searched and edited, and which paths a file may have that a person
//! proposes (plain names of YAML files, which no other program reads as its settings).

/// The longest path, in bytes.
pub const MAX_BYTES: usize = 250;
/// Names of files that other programs read, in lower case: kustomize, Helm, and the CI of forges whose file has no dot in
/// front ([Azure](https://learn.microsoft.com/azure/devops/pipelines/customize-pipeline),
/// [Bitbucket](https://support.atlassian.com/bitbucket-cloud/docs/configure-bitbucket-pipelinesyml/)).
const RESERVED_NAMES: [&str; 7] = [
    "kustomization.yaml",
    "kustomization.yml",
    "chart.yaml",
    "values.yaml",
    "azure-pipelines.yaml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
];

/// Returns true if a file is read as YAML, by the end of its name. A path in git may have bytes that are not UTF-8.
pub fn is_yaml(path: &[u8]) -> bool {
    path.ends_with(b".yaml") || path.ends_with(b".yml")
}

/// Returns what is wrong with a path that a person enters for a manifest, and what to write instead: it could leave the
/// repository, or name a file that another program reads. `None` if it can be used.
pub fn problem(path: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if path.is_empty() {
        return Some("write one such as apps/podinfo/pipeline.yaml");
    }
    if path.len() > MAX_BYTES {
        return Some("write at most 250 characters");
    }
    if !path.chars().all(is_plain) {
        return Some("write letters, digits, and the characters - _ . / only");
    }
    if path.split('/').any(str::is_empty) {
        return Some("write it from the top of the repository, without a slash at its begin or two in a row");
    }
    if path.split('/').any(|part| part.starts_with('.')) {
        return Some("no folder and no file may begin with a dot: programs read their settings there");
    }
    if path.split('/').any(|part| part.starts_with('-')) {
        return Some("no folder and no file may begin with -");
    }
    if !is_yaml(path.as_bytes()) {
        return Some("end it with .yaml or .yml");
    }
    RESERVED_NAMES.contains(&name.as_str()).then_some("another program reads a file of this name")
}
