//! Teams with a repository each, and three leaf clusters with the stand-in for Flux, which reads all repositories.
//! Each repository has one branch, with a folder for each environment.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::json;
use sluice_testkit::fault_injection::ChaosForge;
use sluice_testkit::{FluxOptions, FluxStandIn, ForgeRepo, GitServer, Gitea, Repo, eventually, shared_gitea};
use tokio::task::JoinSet;

use crate::history::Deliveries;
use crate::place::{SOON, TestNamespace};

/// The environments, each on the leaf cluster of its name.
pub const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];

/// How Flux deploys an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// With a HelmRelease, which the team's Kustomization applies.
    Helm,
    /// With its own Kustomization, which applies a Deployment.
    Kustomize,
}

/// The strategy of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Pull requests, which people merge.
    PullRequest,
    /// Pull requests, which people review and Sluice merges. Only with the forge of the chaos tests.
    Merging,
    /// Commits to the branch.
    Commit,
}

/// The teams and clusters of a test.
pub struct Fleet {
    pub place: TestNamespace,
    pub teams: Vec<Team>,
    shape: Shape,
    /// The forge of all repositories, instead of Gitea and a plain git server.
    chaos_forge: Option<Arc<ChaosForge>>,
    /// They end with the test, so that they do not act on its objects during the following tests.
    _flux: Vec<FluxStandIn>,
}

/// A team: its applications, each with a pipeline of the same name, in one repository.
#[derive(Clone)]
pub struct Team {
    name: String,
    pub applications: Vec<String>,
    pub repo: Repo,
    /// The URL of the repository for Sluice.
    url: String,
    by: By,
    forge: Option<ForgeRepo>,
}

impl Fleet {
    /// Starts the stand-ins for Flux on three clusters, which poll the repositories in this interval.
    pub async fn new(name: &str, shape: Shape, git_poll: Duration) -> Result<Fleet> {
        Fleet::at(TestNamespace::new(name).await?, shape, git_poll, None)
    }

    /// The same in an existing namespace, with all repositories at one forge.
    pub fn at(
        place: TestNamespace,
        shape: Shape,
        git_poll: Duration,
        chaos_forge: Option<Arc<ChaosForge>>,
    ) -> Result<Fleet> {
        let namespace = Some(place.namespace.clone());
        let options = FluxOptions { git_poll, namespace, ..FluxOptions::default() };
        let leaves = ENVIRONMENTS.iter().map(|e| place.leaf(e).kubeconfig());
        let flux = leaves.map(|k| FluxStandIn::start(&k, options.clone())).collect::<Result<_>>()?;
        Ok(Fleet { place, shape, teams: Vec::new(), chaos_forge, _flux: flux })
    }

    /// Creates a team whose applications run at a version in every environment, with their pipelines.
    pub async fn team(&mut self, name: &str, by: By, applications: &[String], version: &str) -> Result<()> {
        let repository = format!("{}-{name}", self.place.namespace);
        let readme = [("README.md", "fleet\n")];
        let plain = (GitServer::FLUX, GitServer::FLUX_PASSWORD);
        let (repo, url, forge, flux) = match (by, &self.chaos_forge) {
            (_, Some(chaos_forge)) => {
                let (user, password) = (GitServer::USER, GitServer::PASSWORD);
                let user = [("username", user), ("password", password), ("token", ChaosForge::TOKEN)];
                self.place.secret(name, &user).await?;
                let hosted = chaos_forge.create_repo(&repository, &readme)?;
                if by == By::Merging {
                    chaos_forge.leave_merging_to_sluice(&hosted);
                }
                (hosted.repo, hosted.url, None, plain)
            }
            (By::PullRequest | By::Merging, None) => {
                let gitea = shared_gitea().await?;
                let user = [("username", "x"), ("password", gitea.token()), ("token", gitea.token())];
                self.place.secret(name, &user).await?;
                let forge = gitea.create_repo(&repository, &readme).await?;
                let repo: Repo = (*forge).clone();
                (repo.clone(), repo.url().to_owned(), Some(forge), (Gitea::USER, gitea.token()))
            }
            (By::Commit, None) => {
                let user = [("username", GitServer::USER), ("password", GitServer::PASSWORD)];
                self.place.secret(name, &user).await?;
                let repo = self.place.shared.git.create_repo(&repository, &readme)?;
                (repo.clone(), repo.url().to_owned(), None, plain)
            }
        };
        let team = Team { name: name.into(), applications: applications.to_vec(), repo, url, by, forge };
        team.commit("add all files", &self.files(&team, &ENVIRONMENTS, version)).await?;
        for environment in ENVIRONMENTS {
            let applied = self.place.leaf(environment).apply_yaml(&self.flux(&team, environment, flux)).await;
            applied.with_context(|| format!("cannot install Flux's objects in {environment}"))?;
        }
        self.place.apply(&self.pipelines(&team)).await?;
        self.teams.push(team);
        Ok(())
    }

    /// Commits a new version of all applications for dev to each repository, as a CI system does.
    pub async fn release(&self, version: &str) -> Result<()> {
        let mut all = JoinSet::new();
        for team in &self.teams {
            let files = self.files(team, &["dev"], version);
            let (team, message) = (team.clone(), format!("dev: {version}"));
            all.spawn(async move { team.commit(&message, &files).await });
        }
        while let Some(committed) = all.join_next().await {
            committed??;
        }
        Ok(())
    }

    /// Returns the path and the text of each application's file in these environments.
    fn files(&self, team: &Team, environments: &[&str], version: &str) -> Vec<(String, String)> {
        let all = team.applications.iter().flat_map(|a| environments.iter().map(move |e| (a, e)));
        all.map(|(a, e)| (self.path(e, a), self.text(e, a, version))).collect()
    }

    fn path(&self, environment: &str, application: &str) -> String {
        match self.shape {
            Shape::Helm => format!("{environment}/{application}.yaml"),
            Shape::Kustomize => format!("{environment}/{application}/deployment.yaml"),
        }
    }

    /// Returns the text of a file, with the marker for its environment.
    fn text(&self, environment: &str, application: &str, version: &str) -> String {
        let n = &self.place.namespace;
        let marker = format!("# {{\"$promotion\": \"{n}:{application}:{environment}\"}}");
        match self.shape {
            Shape::Helm => format!(
                "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n    name: {application}\n    namespace: {n}\n\
                 spec:\n    interval: 10m\n    chart:\n        spec:\n            chart: podinfo\n            version: {version} {marker}\n            \
                 sourceRef: {{kind: HelmRepository, name: podinfo}}\n"
            ),
            Shape::Kustomize => format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {application}, namespace: {n}}}\nspec:\n  selector: {{matchLabels: {{app: {application}}}}}\n  \
                 template:\n    metadata: {{labels: {{app: {application}}}}}\n    spec:\n      containers:\n      - name: app\n        \
                 image: ghcr.io/stefanprodan/podinfo:{version} {marker}\n"
            ),
        }
    }

    /// Returns Flux's objects for a team in an environment.
    fn flux(&self, team: &Team, environment: &str, (user, password): (&str, &str)) -> String {
        let (n, name) = (&self.place.namespace, &team.name);
        let mut yaml = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {n}}}\nstringData: {{username: {user}, password: {password:?}}}\n---\n\
             apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: {name}, namespace: {n}}}\n\
             spec: {{interval: 1m, url: {:?}, ref: {{branch: main}}, secretRef: {{name: {name}}}}}\n",
            team.repo.url()
        );
        let mut kustomization = |own: &str, path: &str| {
            yaml += &format!(
                "---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {own}, namespace: {n}}}\n\
                 spec: {{interval: 1m, prune: true, path: ./{path}, sourceRef: {{kind: GitRepository, name: {name}}}}}\n"
            );
        };
        match self.shape {
            Shape::Helm => kustomization(name, environment),
            Shape::Kustomize => {
                team.applications.iter().for_each(|a| kustomization(a, &format!("{environment}/{a}")));
            }
        }
        yaml
    }

    /// Returns a pipeline for each application of a team, through all environments.
    fn pipelines(&self, team: &Team) -> String {
        let n = &self.place.namespace;
        let (group, kind) = match self.shape {
            Shape::Helm => ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            Shape::Kustomize => ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        };
        let (url, secret) = (&team.url, &team.name);
        let forge = if self.chaos_forge.is_some() { "github" } else { "gitea" };
        let strategy = match team.by {
            By::PullRequest | By::Merging => {
                let merge = if team.by == By::Merging { "WhenGreen" } else { "Never" };
                format!(
                    "pull-request: {{type: {forge}, url: {url:?}, merge: {merge}, secretRef: {{name: {secret}}}}}"
                )
            }
            By::Commit => format!("commit: {{url: {url:?}, branch: main, secretRef: {{name: {secret}}}}}"),
        };
        let target = |e| format!("{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: {e}}}}}");
        let environments = ENVIRONMENTS.map(|e| format!("  - {{name: {e}, targets: [{}]}}\n", target(e)));
        let environments = environments.concat();
        let pipelines = team.applications.iter().map(|application| {
            format!(
                "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: {application}, namespace: {n}}}\nspec:\n  \
                 appRef: {{apiVersion: {group}, kind: {kind}, name: {application}}}\n  promotion: {{strategy: {{{strategy}}}}}\n  \
                 environments:\n{environments}---\n"
            )
        });
        pipelines.collect()
    }

    /// Merges every open pull request that can be merged now. Fails if two are open for one environment of
    /// a pipeline.
    pub async fn merge_all(&self) -> Result<()> {
        if let Some(chaos_forge) = self.chaos_forge.clone() {
            tokio::task::spawn_blocking(move || chaos_forge.merge_all()).await?;
        }
        let mut all = JoinSet::new();
        for forge in self.teams.iter().filter_map(|team| team.forge.clone()) {
            all.spawn(merge_open(forge));
        }
        while let Some(merged) = all.join_next().await {
            merged??;
        }
        Ok(())
    }

    /// Returns the number of open pull requests.
    pub async fn open_pulls(&self) -> Result<usize> {
        let mut open = self.chaos_forge.as_ref().map_or(0, |chaos_forge| chaos_forge.open_requests());
        for forge in self.teams.iter().filter_map(|team| team.forge.as_ref()) {
            open += forge.pulls("open").await?.len();
        }
        Ok(open)
    }

    /// Waits until Flux has applied the newest commit of a team in every environment.
    pub async fn until_reconciled(&self, team: &Team, kustomization: &str) -> Result<()> {
        let resource = ApiResource {
            group: "kustomize.toolkit.fluxcd.io".into(),
            version: "v1".into(),
            api_version: "kustomize.toolkit.fluxcd.io/v1".into(),
            kind: "Kustomization".into(),
            plural: "kustomizations".into(),
        };
        for environment in ENVIRONMENTS {
            let client = self.place.leaf(environment).client().await?;
            let api: Api<DynamicObject> = Api::namespaced_with(client, &self.place.namespace, &resource);
            eventually(SOON, || async {
                let head = team.repo.head("main")?;
                let object = api.get(kustomization).await?;
                let applied = object.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
                ensure!(applied.ends_with(&head), "{environment} has applied {applied}, not {head}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Returns what Sluice has delivered, from the history of every repository. Fails if a history breaks a rule
    /// of [`Deliveries::read`], or if an application is not at this version in an environment.
    pub fn deliveries(&self, version: &str) -> Result<Deliveries> {
        let mut deliveries = Deliveries::default();
        for team in &self.teams {
            deliveries.read(&team.repo)?;
            for (path, text) in self.files(team, &ENVIRONMENTS, version) {
                ensure!(team.repo.read("main", &path)? == text, "{path} of {} has another text", team.name);
            }
        }
        Ok(deliveries)
    }
}

impl Team {
    /// Commits files to the branch. Tries again if Sluice pushes at the same time.
    async fn commit(&self, message: &str, files: &[(String, String)]) -> Result<()> {
        eventually(SOON, || async {
            let (team, message, files) = (self.clone(), message.to_string(), files.to_vec());
            // In a blocking task, since the call waits for git.
            tokio::task::spawn_blocking(move || team.commit_once(&message, &files)).await?
        })
        .await
    }

    fn commit_once(&self, message: &str, files: &[(String, String)]) -> Result<()> {
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        match &self.forge {
            Some(forge) => forge.commit("main", message, &files).map(drop),
            None => self.repo.commit("main", message, &files).map(drop),
        }
    }
}

async fn merge_open(forge: ForgeRepo) -> Result<()> {
    // The next round tries again.
    let Ok(open) = forge.pulls("open").await else { return Ok(()) };
    let mut heads: Vec<&str> = open.iter().map(|p| p.head.branch.as_str()).collect();
    heads.sort_unstable();
    ensure!(heads.windows(2).all(|w| w[0] != w[1]), "two open pull requests for one environment: {heads:?}");
    for pull in open.iter().filter(|pull| pull.mergeable) {
        // The merge before may have changed the base, and Gitea checks this one again. Then the next round merges
        // it.
        let _ = forge.api("POST", &format!("pulls/{}/merge", pull.number), json!({"Do": "merge"})).await;
    }
    Ok(())
}
