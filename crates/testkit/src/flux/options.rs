//! The settings of the stand-in for Flux: its speed, and which objects it reconciles. The defaults are for tests; the demo
//! is slower.

use std::time::Duration;

/// The settings of the stand-in.
#[derive(Debug, Clone)]
pub struct FluxOptions {
    /// The interval for reading the branches of a git repository. Several sources share one request.
    pub git_poll: Duration,
    /// How long an object is `Progressing` before its outcome is written.
    pub progressing: Duration,
    /// How long a Deployment takes to become available.
    pub rollout: Duration,
    /// The timeout of health checks for objects without `timeout`.
    pub health_timeout: Duration,
    /// Whether objects get Flux's finalizer, so that their applied objects are deleted with them. Switch it off if
    /// objects are deleted after the stand-in has stopped.
    pub finalizers: bool,
    /// The namespace of the objects to reconcile; `None` for all namespaces.
    pub namespace: Option<String>,
}

impl Default for FluxOptions {
    fn default() -> Self {
        FluxOptions {
            git_poll: Duration::from_millis(200),
            progressing: Duration::from_millis(100),
            rollout: Duration::from_millis(100),
            health_timeout: Duration::from_secs(300),
            finalizers: true,
            namespace: None,
        }
    }
}
