//! What is asked about an installation: by `sluice check`, and by the API.

use sluice_api::Pipeline;
use sluice_view::check::clocks::ClockOf;

/// What is asked about an installation, and by whom.
#[derive(Clone, Debug)]
pub struct InstallationQuestion<'a> {
    /// The checked namespace; `None` for all.
    pub namespace: Option<&'a str>,
    /// The readable pipelines of the checked namespaces.
    pub pipelines: &'a [Pipeline],
    /// Whether these are all of these namespaces.
    pub are_all_pipelines: bool,
    /// The namespace of the controller.
    pub controller_namespace: String,
    /// The version of this program.
    pub version: &'a str,
    /// Whether a controller asks.
    pub is_controller: bool,
    /// Whose clock this machine's is.
    pub clock_of: ClockOf,
    /// The caller's name, if it is known.
    pub user: Option<String>,
    /// Whether the caller reaches the controller through the API server of the hub.
    pub is_through_hub: bool,
    /// Why the controller's API cannot identify the caller, and what to do; `None` if it can.
    pub unidentified: Option<(String, String)>,
    /// Whether the number of requests must not depend on the number of objects, and be at most
    /// [`MAX_INSTALLATION_REQUESTS`](sluice_view::check::MAX_INSTALLATION_REQUESTS). Then the Secrets of Flux's Providers are not
    /// read, and Providers only in the checked namespaces.
    pub is_bounded: bool,
}
