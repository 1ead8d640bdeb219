//! The controller killed at each step boundary of a promotion, with its temporary files kept and
//! with them wiped: the promotion is neither lost nor made twice.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluice_testkit::fault_injection::{ConflictInjector, WriteFault};
use sluice_testkit::{ForgeRepo, shared_gitea};

use crate::place::{Place, SOON, revision};
use crate::process::Controller;
use crate::{releases, run};

/// Before and after storing the intent, pushing, opening, and storing the outcome.
const POINTS: [&str; 8] = [
    "before-intent",
    "after-intent",
    "before-push",
    "after-push",
    "before-open",
    "after-open",
    "before-outcome",
    "after-outcome",
];

pub fn marked(namespace: &str, pipeline: &str, version: &str) -> String {
    format!("version: {version} # {{\"$promotion\": \"{namespace}:{pipeline}:prod\"}}\n")
}

pub fn pipeline(namespace: &str, name: &str, strategy: &str) -> String {
    format!(
        r#"
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: {name}}}
  environments:
  - {{name: dev, targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: dev}}}}]}}
  - {{name: prod, targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: prod}}}}]}}
  promotion: {{strategy: {strategy}}}
"#
    )
}

/// Each write of its controller to the hub is refused once, as though somebody had been faster.
struct Scene {
    place: Place,
    repo: ForgeRepo,
    controller: Controller,
    _conflicts: ConflictInjector,
}

impl Scene {
    async fn new() -> Result<Scene> {
        let place = Place::new("crash").await?;
        let gitea = shared_gitea().await?;
        let repo = gitea.create_repo(&place.namespace, &[("README.md", "fleet\n")]).await?;
        place.forge_secret().await?;
        let conflicts = ConflictInjector::in_front_of(&place.shared.hub, &[WriteFault::Conflict])?;
        let controller = Controller::start_at(conflicts.kubeconfig_path(), &place.namespace, &[], &[])?;
        Ok(Scene { place, repo, controller, _conflicts: conflicts })
    }

    /// An application at 1.0.0 in both environments, and a pipeline for it.
    async fn application(&mut self, name: &str, strategy: &str) -> Result<()> {
        let n = self.place.namespace.clone();
        self.repo.commit("main", "add", &[(&format!("{name}.yaml"), &marked(&n, name, "1.0.0"))])?;
        for leaf in ["dev", "prod"] {
            releases::create(self.place.leaf(leaf), &n, name, json!({})).await?;
            releases::runs(self.place.leaf(leaf), &n, name, "1.0.0", true).await?;
        }
        self.place.apply(&pipeline(&n, name, strategy)).await?;
        let at_rest =
            |p: &sluice_api::Pipeline| revision(p, "prod") == "1.0.0" && revision(p, "dev") == "1.0.0";
        self.place.until(name, "all runs 1.0.0", at_rest).await?;
        Ok(())
    }

    /// Lets dev run 1.1.0; the controller dies at the point.
    async fn dies_at(&mut self, name: &str, point: &str) -> Result<()> {
        self.controller.restart_to_die_at(point)?;
        releases::runs(self.place.leaf("dev"), &self.place.namespace, name, "1.1.0", true).await?;
        self.controller.dies(SOON).await.with_context(|| point.to_string())
    }

    /// The one pull request that there ever was for prod, which is open.
    async fn one_pull(&self, name: &str) -> Result<u64> {
        let branch = format!("sluice/{}/{name}/prod", self.place.namespace);
        let all = self.repo.pulls("all").await?;
        let ours: Vec<_> = all.iter().filter(|p| p.head.branch == branch).collect();
        ensure!(ours.len() == 1 && ours[0].state == "open", "{ours:?}");
        Ok(ours[0].number)
    }
}

#[test]
fn a_pull_request_is_opened_once_wherever_the_controller_dies() -> Result<()> {
    run(async {
        let mut scene = Scene::new().await?;
        let strategy = format!(
            "{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}",
            scene.repo.url()
        );
        for (i, point) in POINTS.iter().enumerate() {
            for keep in [true, false] {
                let name = format!("app-{i}-{keep}");
                scene.application(&name, &strategy).await?;
                scene.dies_at(&name, point).await?;
                scene.controller.restart(keep)?;
                let proposed = scene.place.until_story(&name, "prod", &["1.1.0 Proposed"]).await;
                proposed.with_context(|| format!("{name} {point}: {}", scene.controller.tail()))?;
                let number = scene.one_pull(&name).await.with_context(|| point.to_string())?;
                scene.repo.merge(number).await?;
                scene.place.until_story(&name, "prod", &["1.1.0 Delivered"]).await?;
                let n = &scene.place.namespace;
                ensure!(scene.repo.read("main", &format!("{name}.yaml"))? == marked(n, &name, "1.1.0"));
                releases::runs(scene.place.leaf("prod"), n, &name, "1.1.0", true).await?;
                scene.place.until_story(&name, "prod", &["1.1.0 Succeeded"]).await?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_commit_is_made_once_wherever_the_controller_dies() -> Result<()> {
    run(async {
        let mut scene = Scene::new().await?;
        let strategy =
            format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", scene.repo.url());
        for (i, point) in POINTS.iter().filter(|p| !p.ends_with("-open")).enumerate() {
            for keep in [true, false] {
                let name = format!("app-{i}-{keep}");
                scene.application(&name, &strategy).await?;
                scene.dies_at(&name, point).await?;
                scene.controller.restart(keep)?;
                let delivered = scene.place.until_story(&name, "prod", &["1.1.0 Delivered"]).await;
                delivered.with_context(|| format!("{name} {point}: {}", scene.controller.tail()))?;
                let log = scene.repo.log("main")?;
                let ours = log.iter().filter(|c| c.subject.contains(&name)).count();
                ensure!(ours == 1, "{point}: {ours} commits of {log:?}");
                let n = &scene.place.namespace;
                releases::runs(scene.place.leaf("prod"), n, &name, "1.1.0", true).await?;
                scene.place.until_story(&name, "prod", &["1.1.0 Succeeded"]).await?;
            }
        }
        Ok(())
    })
}

#[test]
fn what_comes_while_the_controller_is_dead_takes_the_place_of_what_it_died_of() -> Result<()> {
    run(async {
        let mut scene = Scene::new().await?;
        let strategy = format!(
            "{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}",
            scene.repo.url()
        );
        for (i, point) in ["after-intent", "after-push", "after-open"].into_iter().enumerate() {
            let name = format!("app-{i}");
            scene.application(&name, &strategy).await?;
            scene.dies_at(&name, point).await?;
            releases::runs(scene.place.leaf("dev"), &scene.place.namespace, &name, "1.2.0", true).await?;
            scene.controller.restart(i % 2 == 0)?;
            let story = ["1.1.0 Superseded", "1.2.0 Proposed"];
            let taken = scene.place.until_story(&name, "prod", &story).await;
            taken.with_context(|| format!("{point}: {}", scene.controller.tail()))?;
            let number = scene.one_pull(&name).await.with_context(|| point.to_string())?;
            scene.repo.merge(number).await?;
            scene.place.until_story(&name, "prod", &["1.1.0 Superseded", "1.2.0 Delivered"]).await?;
            let n = &scene.place.namespace;
            ensure!(scene.repo.read("main", &format!("{name}.yaml"))? == marked(n, &name, "1.2.0"));
        }
        Ok(())
    })
}
