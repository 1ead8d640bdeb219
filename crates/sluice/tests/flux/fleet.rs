//! Three leaf clusters with the stand-in for Flux, all reading one branch of one repository on
//! Gitea: a folder for each environment.

use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject};
use sluice_testkit::{ForgeRepo, eventually, shared_gitea};
use sluice_testkit::{Options, StandIn};

use crate::place::{Place, SOON};

static STAND_INS: OnceLock<Result<Vec<StandIn>, String>> = OnceLock::new();

/// The environments, each on the leaf cluster of its name.
pub const ENVIRONMENTS: [&str; 3] = ["dev", "staging", "prod"];

/// How an application is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A HelmRelease that a Kustomization brings.
    Helm,
    /// A Kustomization with a Deployment.
    Kustomize,
}

/// A test's fleet.
pub struct Fleet {
    pub place: Place,
    pub repo: ForgeRepo,
    shape: Shape,
}

impl Fleet {
    /// A repository with these applications at a version in every environment, and Flux on it.
    pub async fn new(name: &str, shape: Shape, applications: &[&str], version: &str) -> Result<Fleet> {
        let place = Place::new(name).await?;
        let started = STAND_INS.get_or_init(|| {
            let leaves = ENVIRONMENTS.iter().map(|e| place.leaf(e).kubeconfig());
            let all: Result<Vec<StandIn>> = leaves.map(|k| StandIn::start(&k, Options::default())).collect();
            all.map_err(|e| format!("{e:#}"))
        });
        started.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
        let gitea = shared_gitea().await?;
        let mut fleet = Fleet {
            repo: gitea.create_repo(&place.namespace, &[("README.md", "fleet\n")]).await?,
            place,
            shape,
        };
        fleet.fill(applications, version)?;
        let user = [("username", "x"), ("password", gitea.token()), ("token", gitea.token())];
        fleet.place.secret("forge", &user).await?;
        for environment in ENVIRONMENTS {
            fleet.install(environment, applications, gitea.token()).await?;
        }
        Ok(fleet)
    }

    fn fill(&mut self, applications: &[&str], version: &str) -> Result<()> {
        let mut files = Vec::new();
        for application in applications {
            for environment in ENVIRONMENTS {
                files.push((
                    self.path(environment, application),
                    self.text(environment, application, version),
                ));
            }
        }
        let borrowed: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        self.repo.commit("main", "all there is", &borrowed)?;
        Ok(())
    }

    /// The file of an application in an environment.
    pub fn path(&self, environment: &str, application: &str) -> String {
        match self.shape {
            Shape::Helm => format!("{environment}/{application}.yaml"),
            Shape::Kustomize => format!("{environment}/{application}/deployment.yaml"),
        }
    }

    /// Its text, with the marker for its environment.
    pub fn text(&self, environment: &str, application: &str, version: &str) -> String {
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

    async fn install(&self, environment: &str, applications: &[&str], token: &str) -> Result<()> {
        let n = &self.place.namespace;
        let mut yaml = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: git, namespace: {n}}}\nstringData: {{username: x, password: {token}}}\n---\n\
             apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: fleet, namespace: {n}}}\n\
             spec: {{interval: 1m, url: {:?}, ref: {{branch: main}}, secretRef: {{name: git}}}}\n",
            self.repo.url()
        );
        let mut kustomization = |name: &str, path: &str| {
            yaml += &format!(
                "---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: {n}}}\n\
                 spec: {{interval: 1m, prune: true, path: ./{path}, sourceRef: {{kind: GitRepository, name: fleet}}}}\n"
            );
        };
        match self.shape {
            Shape::Helm => kustomization("fleet", environment),
            Shape::Kustomize => {
                applications.iter().for_each(|a| kustomization(a, &format!("{environment}/{a}")));
            }
        }
        let applied = self.place.leaf(environment).apply_yaml(&yaml).await;
        applied.map(|_| ()).with_context(|| format!("cannot install Flux's objects in {environment}"))
    }

    /// A pipeline for an application through the environments.
    pub async fn pipeline(&self, application: &str, strategy: &str) -> Result<()> {
        let n = &self.place.namespace;
        let (group, kind) = match self.shape {
            Shape::Helm => ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            Shape::Kustomize => ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        };
        let environments: String = ENVIRONMENTS
            .iter()
            .map(|e| {
                format!("  - name: {e}\n    targets: [{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: {e}}}}}]\n")
            })
            .collect();
        let yaml = format!(
            "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: {application}, namespace: {n}}}\nspec:\n  \
             appRef: {{apiVersion: {group}, kind: {kind}, name: {application}}}\n  environments:\n{environments}  promotion: {{strategy: {strategy}}}\n"
        );
        self.place.apply(&yaml).await
    }

    /// The strategy that opens pull requests on Gitea.
    pub fn pull_requests(&self) -> String {
        format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", self.repo.url())
    }

    /// The strategy that commits to the branch that all environments read.
    pub fn commits(&self) -> String {
        format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", self.repo.url())
    }

    /// A new version of an application comes to dev, as by CI.
    pub fn release(&self, application: &str, version: &str) -> Result<()> {
        let text = self.text("dev", application, version);
        self.repo.commit(
            "main",
            &format!("dev: {application} {version}"),
            &[(&self.path("dev", application), &text)],
        )?;
        Ok(())
    }

    /// Merges every open pull request there is; never finds two for one environment of a pipeline.
    pub async fn merge_all(&self) -> Result<usize> {
        let open = self.repo.pulls("open").await?;
        let mut heads: Vec<&str> = open.iter().map(|p| p.head.branch.as_str()).collect();
        heads.sort_unstable();
        ensure!(heads.windows(2).all(|w| w[0] != w[1]), "two open pull requests for one thing: {heads:?}");
        for pull in &open {
            // It may have been superseded this very moment; the next round merges it then.
            let _ = self.repo.merge(pull.number).await;
        }
        Ok(open.len())
    }

    /// Waits until Flux has brought the newest commit to every environment.
    pub async fn until_reconciled(&self, kustomization: &str) -> Result<()> {
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
                let head = self.repo.head("main")?;
                let object = api.get(kustomization).await?;
                let applied = object.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
                ensure!(applied.ends_with(&head), "{environment} has applied {applied}, not {head}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}
