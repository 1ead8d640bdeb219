//! How fast the stand-in is. The defaults are those of tests; a demo takes its time.

use std::time::Duration;

/// The stand-in's clockwork.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often a git repository is asked for its branch. Several sources of one repository
    /// share the question.
    pub git_poll: Duration,
    /// How long an object shows that it is progressing before its outcome shows.
    pub progressing: Duration,
    /// How long a Deployment rolls out until it is available.
    pub rollout: Duration,
    /// How long health is waited for when the object names no `timeout`.
    pub health_timeout: Duration,
    /// Whether objects get Flux's finalizer, and what they made is removed with them. Switch it
    /// off where objects are deleted after the stand-in has stopped.
    pub finalizers: bool,
    /// The one namespace whose objects it looks after; all of them when there is none.
    pub namespace: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            git_poll: Duration::from_millis(200),
            progressing: Duration::from_millis(100),
            rollout: Duration::from_millis(100),
            health_timeout: Duration::from_secs(300),
            finalizers: true,
            namespace: None,
        }
    }
}
