//! The servers around Sluice: the API servers, the git server with a repository, and the stand-in for Flux on each leaf
//! cluster.

use crate::manifests::{self, NAMESPACE};
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};
use sluice_testkit::{
    Cluster, ControlPlane, FluxOptions, FluxStandIn, GitServer, Repo, Scratch, WAIT_TIMEOUT, eventually,
    flux_crds, install_crds,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The names of the leaf clusters.
const LEAVES: [&str; 2] = ["dev", "live"];

/// The servers of the demo. Fields are dropped in this order.
pub struct DemoFleet {
    _flux: Vec<FluxStandIn>,
    _git: GitServer,
    /// The repository that Flux reads and Sluice changes.
    pub repo: Repo,
    /// The cluster with the Pipeline.
    pub hub: Cluster,
    leaves: Vec<Cluster>,
    scratch: Scratch,
    /// Whether the file of prod has no marker.
    pub has_fault: bool,
}

impl DemoFleet {
    /// Starts all servers, and makes them known to each other. With the fault, the file of prod has no marker.
    pub async fn start(has_fault: bool) -> Result<DemoFleet> {
        output::action("starting a hub and two leaf clusters, dev and live: real API servers, without nodes");
        let plane = ControlPlane::start().await?;
        let (hub, dev, live) =
            tokio::try_join!(hub(&plane), leaf(&plane, LEAVES[0]), leaf(&plane, LEAVES[1]))?;
        output::done("the API servers answer");
        let git = GitServer::start()?;
        let files = manifests::repository(has_fault);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let repo = git.create_repo("fleet", &files)?;
        output::done(&format!("a git server serves the repository {}", repo.url()));
        let leaves = vec![dev, live];
        let mut flux = Vec::new();
        for cluster in &leaves {
            flux.push(stand_in(cluster.kubeconfig()).await?);
        }
        output::done("a STAND-IN FOR FLUX runs on each leaf cluster: it reads the repository and writes the");
        output::more("status that Flux would write; no pods run");
        let scratch = Scratch::new("demo")?;
        let fleet = DemoFleet { _flux: flux, _git: git, repo, hub, leaves, scratch, has_fault };
        fleet.connect().await?;
        Ok(fleet)
    }

    /// The folder of the demo, which is removed at the end.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The kubeconfig with a context for each cluster. The current context is the hub.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// The kubeconfig of the controller, with only the rights that `deploy/` grants.
    pub fn controller_kubeconfig(&self) -> PathBuf {
        self.folder().join("controller.kubeconfig")
    }

    /// A working copy of the repository, for a person.
    pub fn checkout(&self) -> PathBuf {
        self.folder().join("fleet")
    }

    /// The file with the token of the visitor.
    pub fn token(&self) -> PathBuf {
        self.folder().join("token")
    }

    /// Registers the leaf clusters on the hub and the repository on the leaf clusters, and writes the kubeconfigs.
    async fn connect(&self) -> Result<()> {
        let mut hub = manifests::git_secret(GitServer::USER, GitServer::PASSWORD)?;
        for cluster in &self.leaves {
            hub.push_str("---\n");
            hub.push_str(&manifests::cluster(cluster.name(), &cluster.user(manifests::USER, None)?)?);
            cluster.apply_yaml(&manifests::TARGET_RIGHTS.join("---\n")).await?;
            cluster.namespace("flux-system").await?;
            let name = cluster.name();
            let yaml = manifests::bootstrap(name, self.repo.url(), GitServer::USER, GitServer::PASSWORD)?;
            cluster.apply_yaml(&yaml).await?;
        }
        self.hub.namespace(NAMESPACE).await?;
        self.hub.apply_yaml(&manifests::HUB_RIGHTS.join("---\n")).await?;
        std::fs::write(self.controller_kubeconfig(), self.hub.user(manifests::USER, None)?)?;
        self.hub.apply_yaml(&hub).await?;
        self.hub.apply_yaml(manifests::PEOPLE).await?;
        self.hub.apply_yaml(&manifests::visitor()).await?;
        let token = self.hub.service_account_token(NAMESPACE, manifests::VISITOR).await?;
        std::fs::write(self.token(), token)?;
        let all = std::iter::once(&self.hub).chain(&self.leaves);
        std::fs::write(self.kubeconfig(), joined_kubeconfig(all)?)?;
        self.clone_repository()
    }

    /// Waits until Flux has applied the repository in every environment.
    pub async fn settle(&self) -> Result<()> {
        for cluster in &self.leaves {
            let api: Api<DynamicObject> = Api::all_with(cluster.client().await?, &helm_release());
            let wanted = manifests::releases_on(cluster.name());
            eventually(WAIT_TIMEOUT, || async {
                let releases = api.list(&ListParams::default()).await?.items;
                let ready = releases.iter().filter(|r| is_ready(&r.data)).count();
                ensure!(ready == wanted, "{ready} of {wanted} HelmReleases on {} are Ready", cluster.name());
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Applies the Pipeline.
    pub async fn pipeline(&self) -> Result<()> {
        self.hub.apply_yaml(&manifests::pipeline(self.repo.url())).await?;
        Ok(())
    }

    fn clone_repository(&self) -> Result<()> {
        let checkout = self.checkout();
        git(self.folder(), &["clone", "--quiet", &self.repo.url_with_password(), "fleet"])?;
        git(&checkout, &["config", "user.name", "you"])?;
        git(&checkout, &["config", "user.email", "you@example.com"])
    }

    /// The command with which a person releases a version into dev.
    pub fn release_command(&self, version: &str) -> String {
        format!(
            "(cd {} && git pull -q && sed -i 's/version: .*/version: {version}/' {file} && \
             git commit -qam 'podinfo {version} into dev' && git push -q)",
            self.checkout().display(),
            file = manifests::DEV_FILE,
        )
    }

    /// Releases a version into dev by a commit, as a person does.
    pub fn release(&self, version: &str) -> Result<()> {
        self.commit(manifests::DEV_FILE, &format!("podinfo {version} into dev"), |_| version.into())
    }

    /// Repairs the fault by a commit, as a person does: adds the marker of prod.
    pub fn repair(&self) -> Result<()> {
        let marker = manifests::marker("prod");
        self.commit(manifests::PROD_FILE, "mark the version of prod", |version| format!("{version}{marker}"))
    }

    /// Pushes a commit that replaces the version in a file.
    fn commit(&self, file: &str, message: &str, edit: impl Fn(&str) -> String) -> Result<()> {
        let checkout = self.checkout();
        git(&checkout, &["pull", "--quiet"])?;
        let path = checkout.join(file);
        let text = std::fs::read_to_string(&path)?;
        let lines = text.lines().map(|line| match line.split_once("version: ") {
            Some((indent, version)) if line.starts_with(' ') => {
                format!("{indent}version: {}\n", edit(version))
            }
            _ => format!("{line}\n"),
        });
        std::fs::write(&path, lines.collect::<String>())?;
        git(&checkout, &["commit", "--quiet", "--all", "--message", message])?;
        git(&checkout, &["push", "--quiet"])
    }
}

async fn hub(plane: &ControlPlane) -> Result<Cluster> {
    let cluster = plane.cluster("hub").await?;
    // The hub needs only GitopsCluster of these kinds.
    let mut crds = flux_crds()?;
    crds.retain(|crd| crd.spec.names.kind == "GitopsCluster");
    install_crds(&cluster.client().await?, crds).await?;
    cluster.install_sluice_crds().await?;
    Ok(cluster)
}

async fn leaf(plane: &ControlPlane, name: &str) -> Result<Cluster> {
    let cluster = plane.cluster(name).await?;
    cluster.install_flux_crds().await?;
    Ok(cluster)
}

/// Starts a stand-in that is slower than in tests, so that a person can follow it, and faster than Flux.
async fn stand_in(kubeconfig: String) -> Result<FluxStandIn> {
    let options = FluxOptions {
        git_poll: Duration::from_secs(1),
        progressing: Duration::from_millis(700),
        rollout: Duration::from_millis(1500),
        ..FluxOptions::default()
    };
    // On another thread: it makes its own runtime, which is not allowed inside this one.
    tokio::task::spawn_blocking(move || FluxStandIn::start(&kubeconfig, options)).await?
}

fn helm_release() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("helm.toolkit.fluxcd.io", "v2", "HelmRelease"))
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    command.current_dir(folder).args(arguments);
    // Without the settings of the user, and without prompts.
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0");
    let output = command.output().context("cannot run git: install it")?;
    if !output.status.success() {
        bail!("git {} failed: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Returns one kubeconfig with the contexts of several clusters. The first is the current one.
fn joined_kubeconfig<'a>(clusters: impl Iterator<Item = &'a Cluster>) -> Result<String> {
    let mut whole = Map::new();
    for cluster in clusters {
        let one: Value = serde_saphyr::from_str(&cluster.kubeconfig()).context("not a kubeconfig")?;
        for (field, value) in one.as_object().into_iter().flatten() {
            match (whole.get_mut(field), value) {
                (Some(Value::Array(all)), Value::Array(more)) => all.extend(more.iter().cloned()),
                (Some(_), _) => {}
                (None, value) => drop(whole.insert(field.clone(), value.clone())),
            }
        }
    }
    let mut whole = Value::Object(whole);
    whole["contexts"][0]["context"]["namespace"] = json!(NAMESPACE);
    Ok(serde_json::to_string_pretty(&whole)?)
}
