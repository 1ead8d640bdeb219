//! Everything around Sluice: the API servers, the git server with its repository, and the stand-in
//! for Flux on each leaf cluster.

use crate::manifests::{self, NAMESPACE};
use crate::say;
use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};
use sluice_testkit::{
    Cluster, ControlPlane, GitServer, Options, PATIENCE, Repo, Scratch, StandIn, eventually, flux_crds,
    install_crds,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The names of the leaf clusters.
const LEAVES: [&str; 2] = ["dev", "live"];

/// What Sluice works on. The order matters: fields are dropped from the first to the last.
pub struct Fleet {
    _flux: Vec<StandIn>,
    _git: GitServer,
    /// The repository that Flux reads and Sluice commits to.
    pub repo: Repo,
    /// The cluster that holds the Pipeline.
    pub hub: Cluster,
    leaves: Vec<Cluster>,
    scratch: Scratch,
}

impl Fleet {
    /// Starts everything and brings every environment to the first version.
    pub async fn start() -> Result<Fleet> {
        say::action("starting a hub and two leaf clusters, dev and live: real API servers, without nodes");
        let plane = ControlPlane::start().await?;
        let (hub, dev, live) =
            tokio::try_join!(hub(&plane), leaf(&plane, LEAVES[0]), leaf(&plane, LEAVES[1]))?;
        say::done("the API servers answer");
        let git = GitServer::start()?;
        let files = manifests::repository();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let repo = git.create_repo("fleet", &files)?;
        say::done(&format!("a git server serves the repository {}", repo.url()));
        let leaves = vec![dev, live];
        let mut flux = Vec::new();
        for cluster in &leaves {
            flux.push(stand_in(cluster.kubeconfig()).await?);
        }
        say::done("on each leaf cluster runs a STAND-IN FOR FLUX: it reads the repository and writes the");
        say::more("status that Flux would write; no pods run");
        let scratch = Scratch::new("demo")?;
        let fleet = Fleet { _flux: flux, _git: git, repo, hub, leaves, scratch };
        fleet.introduce().await?;
        Ok(fleet)
    }

    /// A folder that goes with everything else.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The kubeconfig with a context for each cluster; the hub's is the current one.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// The kubeconfig of the controller, with the rights that `deploy/` grants and no others.
    pub fn controller_kubeconfig(&self) -> PathBuf {
        self.folder().join("controller.kubeconfig")
    }

    /// A working copy of the repository, for a person.
    pub fn checkout(&self) -> PathBuf {
        self.folder().join("fleet")
    }

    /// Tells the hub of the leaves and the leaves of the repository.
    async fn introduce(&self) -> Result<()> {
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
        let all = std::iter::once(&self.hub).chain(&self.leaves);
        std::fs::write(self.kubeconfig(), joined(all)?)?;
        self.clone_repository()
    }

    /// Waits until Flux has brought every environment to what the repository says.
    pub async fn settle(&self) -> Result<()> {
        for cluster in &self.leaves {
            let api: Api<DynamicObject> = Api::all_with(cluster.client().await?, &helm_release());
            let wanted = manifests::releases_on(cluster.name());
            eventually(PATIENCE, || async {
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

    /// What a person types to release a version into dev.
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
        let checkout = self.checkout();
        let file = checkout.join(manifests::DEV_FILE);
        let text = std::fs::read_to_string(&file)?;
        let lines = text.lines().map(|line| match line.split_once("version: ") {
            Some((indent, _)) if line.starts_with(' ') => format!("{indent}version: {version}\n"),
            _ => format!("{line}\n"),
        });
        std::fs::write(&file, lines.collect::<String>())?;
        git(&checkout, &["commit", "--quiet", "--all", "--message", &format!("podinfo {version} into dev")])?;
        git(&checkout, &["push", "--quiet"])
    }
}

async fn hub(plane: &ControlPlane) -> Result<Cluster> {
    let cluster = plane.cluster("hub").await?;
    // Of the kinds that tests use the hub needs only the one that names clusters.
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

/// Slower than in tests, so that one can see what happens; still faster than Flux.
async fn stand_in(kubeconfig: String) -> Result<StandIn> {
    let options = Options {
        git_poll: Duration::from_secs(1),
        progressing: Duration::from_millis(700),
        rollout: Duration::from_millis(1500),
        ..Options::default()
    };
    // It makes a runtime of its own, which is not allowed inside ours.
    tokio::task::spawn_blocking(move || StandIn::start(&kubeconfig, options)).await?
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
    // Nobody's own settings, and no question that nobody answers.
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

/// One kubeconfig with the contexts of several; the first is the current one.
fn joined<'a>(clusters: impl Iterator<Item = &'a Cluster>) -> Result<String> {
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
