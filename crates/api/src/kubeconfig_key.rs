//! The keys of a Secret that may have the kubeconfig of a cluster, and their order. Users write these names, so they
//! belong to the API.

/// The keys of a Secret that may have a kubeconfig, in the order in which they are tried:
/// Cluster API and Flux write `value`, some users `value.yaml`, Weave's code `kubeconfig`.
pub const KUBECONFIG_KEYS: [&str; 3] = ["value", "value.yaml", "kubeconfig"];

/// The most bytes of a kubeconfig. The controller keeps it for each cluster, and hundreds of clusters may name one Secret.
pub const MAX_KUBECONFIG_BYTES: usize = 64 << 10;

/// Returns the kubeconfig of a Secret: the first value of [`KUBECONFIG_KEYS`] that is not empty. `value` returns the value of a
/// key.
pub fn kubeconfig_value<'a>(value: impl Fn(&str) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
    KUBECONFIG_KEYS.into_iter().filter_map(value).find(|value| !value.trim_ascii().is_empty())
}
