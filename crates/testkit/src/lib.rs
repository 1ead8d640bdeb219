//! Real servers for tests and the demo: kube-apiserver and etcd, git over HTTP and SSH, Gitea, Dex, and stand-ins for Flux
//! and for a kubelet. Tests write to the servers that users have, not to imitations. Every server ends with the process
//! that started it, also if that process is killed.

pub mod api_description;
mod apply;
mod background_server;
mod browser;
mod call_recorder;
mod captured_log;
mod certificates;
mod cluster;
mod control_plane;
mod crds;
mod dex;
mod eventually;
mod fake_cluster;
pub mod fault_injection;
mod flux;
mod git;
mod gitea;
pub mod json_schema;
mod kubeconfig;
mod kubelet;
mod plane_state;
mod process_guard;
mod process_tree;
mod restartable;
mod scratch;
mod servers;
mod shared;
mod tls_server;

pub use apply::{apply, parse_yaml};
pub use background_server::send_at_once;
pub use browser::{Browser, Look};
pub use call_recorder::CallRecorder;
pub use captured_log::CapturedLog;
pub use cluster::Cluster;
pub use control_plane::ControlPlane;
pub use crds::{install as install_crds, read_flux as flux_crds};
pub use dex::{Dex, DexClient};
pub use eventually::{WAIT_TIMEOUT, eventually};
pub use fake_cluster::FakeCluster;
pub use flux::{FluxFailure, FluxOptions, FluxStandIn};
pub use git::{FileChange, GitServer, Landing, LoggedCommit, Repo, Requests, SshServer, Tap};
pub use gitea::{ForgeRepo, Gitea, GiteaPull};
pub use kubeconfig::connect;
pub use kubelet::KubeletStandIn;
pub use process_guard::ProcessGuard;
pub use process_tree::TreeMemory;
pub use scratch::Scratch;
pub use servers::{controlplane_folder, crds_folder, forge_folder, issuer_folder};
pub use shared::{Leaves, Shared, shared, shared_flux, shared_gitea};
