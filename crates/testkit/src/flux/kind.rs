//! The kinds that the stand-in reconciles, in the versions of current Flux.

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
    // Explicit, so that the plural does not depend on kube's guess.
    resource.plural = match kind {
        "GitRepository" => "gitrepositories".into(),
        "OCIRepository" => "ocirepositories".into(),
        "HelmRepository" => "helmrepositories".into(),
        other => format!("{}s", other.to_lowercase()),
    };
    resource
}
