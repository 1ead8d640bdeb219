//! The real servers that tests and the demo run against: kube-apiserver and etcd, git over HTTP
//! and SSH, Gitea, and a stand-in for Flux. Nothing here imitates an API: what is written is judged
//! by the server that users have. Whatever is started ends with the process that started it, also
//! when that process is killed.

mod apply;
mod certificates;
mod cluster;
mod control_plane;
mod crds;
mod eventually;
mod fake_cluster;
pub mod fire;
mod flux;
mod git;
mod gitea;
mod kubeconfig;
mod leash;
mod listening;
mod scratch;
mod servers;
mod shared;

pub use apply::{apply, parse_yaml};
pub use cluster::Cluster;
pub use control_plane::ControlPlane;
pub use crds::{install as install_crds, read_flux as flux_crds};
pub use eventually::eventually;
pub use fake_cluster::FakeCluster;
pub use flux::{Failure, Options, StandIn};
pub use git::{Change, Commit, GitServer, Landing, Repo, Requests, SshServer, Tap};
pub use gitea::{ForgeRepo, Gitea, Pull};
pub use kubeconfig::connect;
pub use leash::Leash;
pub use scratch::Scratch;
pub use servers::{controlplane_folder, crds_folder, forge_folder};
pub use shared::{PATIENCE, Shared, shared, shared_flux, shared_gitea};
