//! The kinds that the stand-in works on, in the versions that current Flux writes.

use kube::core::{ApiResource, GroupVersionKind};

pub(crate) fn kustomization() -> ApiResource {
    kind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization")
}

pub(crate) fn helm_release() -> ApiResource {
    kind("helm.toolkit.fluxcd.io", "v2", "HelmRelease")
}

/// A kind of source: GitRepository, OCIRepository, HelmRepository.
pub(crate) fn source(name: &str) -> ApiResource {
    kind("source.toolkit.fluxcd.io", "v1", name)
}

pub(crate) fn deployment() -> ApiResource {
    kind("apps", "v1", "Deployment")
}

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    // The plural of Repository is guessed right; that of HelmRelease too. Say it all the same.
    resource.plural = match kind {
        "GitRepository" => "gitrepositories".into(),
        "OCIRepository" => "ocirepositories".into(),
        "HelmRepository" => "helmrepositories".into(),
        other => format!("{}s", other.to_lowercase()),
    };
    resource
}
