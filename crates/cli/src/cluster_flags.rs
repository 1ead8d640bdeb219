//! The flags that choose the cluster, the user and the namespace, and the flag that finds the controller.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCompleter;

use crate::connection::{Connection, ConnectionOptions};
use crate::exit::Outcome;
use crate::name_completion::{contexts, namespaces};
use sluice_core::dns_name::is_label;

/// The cluster, the user and the namespace of a command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// Kubeconfig file; default is KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default is its current one
    #[arg(long, value_name = "NAME", global = true, add = ArgValueCompleter::new(contexts))]
    pub context: Option<String>,
    /// Namespace; default is that of the context
    #[arg(short, long, value_name = "NAME", global = true, value_parser = namespace, add = ArgValueCompleter::new(namespaces))]
    pub namespace: Option<String>,
    /// Act as this user
    #[arg(long = "as", value_name = "USER", global = true)]
    pub impersonate: Option<String>,
}

/// The namespace of the manifests in `deploy/`.
pub const CONTROLLER_NAMESPACE: &str = "sluice-system";

/// The namespace that the controller runs in.
#[derive(Args, Clone, Debug)]
pub struct ControllerFlags {
    /// The namespace of the controller
    #[arg(long, value_name = "NAME", env = "SLUICE_SYSTEM_NAMESPACE", default_value = CONTROLLER_NAMESPACE, value_parser = namespace)]
    pub system_namespace: String,
}

impl ClusterFlags {
    /// Returns a connection to the cluster. `read_timeout` limits the time between two parts of an answer; watches have
    /// no limit.
    pub(crate) fn open(&self, read_timeout: Option<Duration>) -> Outcome<Connection> {
        Connection::open(self.options(), read_timeout)
    }

    pub(crate) fn options(&self) -> ConnectionOptions {
        let ClusterFlags { kubeconfig, context, namespace, impersonate } = self.clone();
        ConnectionOptions { kubeconfig, context, namespace, impersonate }
    }
}

/// Checks the name of a namespace. Other characters could change the path of the request.
fn namespace(text: &str) -> Result<String, String> {
    match is_label(text) {
        true => Ok(text.into()),
        false => Err("a namespace's name is made of lower-case letters, digits and '-'".into()),
    }
}
