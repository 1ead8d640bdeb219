//! The controller is killed before and after each step of a promotion, with its temporary files kept or removed.
//! No promotion is lost, and none is made twice.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_api::Promotion;
use sluice_api::promotion::PromotionStatus;
use sluice_testkit::fault_injection::{ApiServerProxy, WriteFault};
use sluice_testkit::{ForgeRepo, shared_gitea};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

/// The fault points before and after storing the intent, pushing, opening the pull request, and storing the
/// outcome.
const FAULT_POINTS: [&str; 8] = [
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

/// A controller whose writes to the hub are each refused once, as if another write was faster.
struct CrashFixture {
    place: TestNamespace,
    repo: ForgeRepo,
    controller: Controller,
    _conflicts: ApiServerProxy,
}

impl CrashFixture {
    async fn new() -> Result<CrashFixture> {
        let place = TestNamespace::new("crash").await?;
        let gitea = shared_gitea().await?;
        let repo = gitea.create_repo(&place.namespace, &[("README.md", "fleet\n")]).await?;
        place.forge_secret().await?;
        let conflicts = ApiServerProxy::in_front_of(&place.shared.hub, &[WriteFault::Conflict])?;
        let controller = Controller::start_at(conflicts.kubeconfig_path(), &place.namespace, &[], &[])?;
        Ok(CrashFixture { place, repo, controller, _conflicts: conflicts })
    }

    /// Returns the strategy that commits to the repository.
    fn by_commit(&self) -> String {
        format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", self.repo.url())
    }

    /// Returns the strategy that opens pull requests at the repository.
    fn by_request(&self) -> String {
        format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", self.repo.url())
    }

    /// Creates an application at 1.0.0 in both environments, with a pipeline.
    async fn application(&mut self, name: &str, strategy: &str) -> Result<()> {
        let n = self.place.namespace.clone();
        self.repo.commit("main", "add", &[(&format!("{name}.yaml"), &marked(&n, name, "1.0.0"))])?;
        for leaf in ["dev", "prod"] {
            releases::create_running(self.place.leaf(leaf), &n, name, "1.0.0").await?;
        }
        self.place.apply(&pipeline(&n, name, strategy)).await?;
        let at_rest =
            |p: &sluice_api::Pipeline| revision(p, "prod") == "1.0.0" && revision(p, "dev") == "1.0.0";
        self.place.until(name, "all runs 1.0.0", at_rest).await?;
        Ok(())
    }

    /// Sets dev to 1.1.0, and waits until the controller has killed itself at a fault point.
    async fn die_at(&mut self, name: &str, point: &str) -> Result<()> {
        self.controller.restart_to_die_at(point)?;
        releases::runs(self.place.leaf("dev"), &self.place.namespace, name, "1.1.0", true).await?;
        self.controller.dies(SOON).await.with_context(|| point.to_string())
    }

    /// Returns the promotion of an application that has had only one.
    async fn only_promotion(&self, name: &str) -> Result<Promotion> {
        let all = self.place.promotions().list(&ListParams::default()).await?;
        all.into_iter().find(|promotion| promotion.spec.pipeline == name).context("no promotion")
    }

    /// Ensures that a status names a commit of the branch, and when and where it was delivered.
    fn ensure_names_its_delivery(&self, status: &PromotionStatus) -> Result<()> {
        let log = self.repo.log("main")?;
        let is_named = |id: &String| log.iter().any(|commit| commit.sha == *id);
        ensure!(status.commit.as_ref().is_some_and(is_named), "{status:?}");
        ensure!(status.times.contains_key("Delivered") && status.delivered_to.is_some(), "{status:?}");
        Ok(())
    }

    /// Returns the number of the only pull request for prod, which must be open.
    async fn only_pull(&self, name: &str) -> Result<u64> {
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
        let mut fixture = CrashFixture::new().await?;
        let strategy = fixture.by_request();
        for (i, point) in FAULT_POINTS.iter().enumerate() {
            for keep in [true, false] {
                let name = format!("app-{i}-{keep}");
                fixture.application(&name, &strategy).await?;
                fixture.die_at(&name, point).await?;
                fixture.controller.restart(keep)?;
                let proposed = fixture.place.until_promotions(&name, "prod", &["1.1.0 Proposed"]).await;
                proposed.with_context(|| format!("{name} {point}: {}", fixture.controller.tail()))?;
                let number = fixture.only_pull(&name).await.with_context(|| point.to_string())?;
                fixture.repo.merge(number).await?;
                fixture.place.until_promotions(&name, "prod", &["1.1.0 Delivered"]).await?;
                let n = &fixture.place.namespace;
                ensure!(fixture.repo.read("main", &format!("{name}.yaml"))? == marked(n, &name, "1.1.0"));
                releases::runs(fixture.place.leaf("prod"), n, &name, "1.1.0", true).await?;
                fixture.place.until_promotions(&name, "prod", &["1.1.0 Succeeded"]).await?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_commit_is_made_once_wherever_the_controller_dies() -> Result<()> {
    run(async {
        let mut fixture = CrashFixture::new().await?;
        let strategy = fixture.by_commit();
        for (i, point) in FAULT_POINTS.iter().filter(|p| !p.ends_with("-open")).enumerate() {
            for keep in [true, false] {
                let name = format!("app-{i}-{keep}");
                fixture.application(&name, &strategy).await?;
                fixture.die_at(&name, point).await?;
                fixture.controller.restart(keep)?;
                let delivered = fixture.place.until_promotions(&name, "prod", &["1.1.0 Delivered"]).await;
                delivered.with_context(|| format!("{name} {point}: {}", fixture.controller.tail()))?;
                let log = fixture.repo.log("main")?;
                let commits = log.iter().filter(|c| c.subject.contains(&name)).count();
                ensure!(commits == 1, "{point}: {commits} commits of {log:?}");
                let n = &fixture.place.namespace;
                releases::runs(fixture.place.leaf("prod"), n, &name, "1.1.0", true).await?;
                fixture.place.until_promotions(&name, "prod", &["1.1.0 Succeeded"]).await?;
            }
        }
        Ok(())
    })
}

/// Flux applies what was pushed before another controller has started.
#[test]
fn a_promotion_whose_targets_run_the_revision_after_a_crash_names_its_delivery() -> Result<()> {
    run(async {
        let mut fixture = CrashFixture::new().await?;
        let strategy = fixture.by_commit();
        for (i, point) in ["after-push", "before-outcome"].into_iter().enumerate() {
            let name = format!("app-{i}");
            fixture.application(&name, &strategy).await?;
            fixture.die_at(&name, point).await?;
            let n = fixture.place.namespace.clone();
            releases::runs(fixture.place.leaf("prod"), &n, &name, "1.1.0", true).await?;
            fixture.controller.restart(i == 0)?;
            let succeeded = fixture.place.until_promotions(&name, "prod", &["1.1.0 Succeeded"]).await;
            succeeded.with_context(|| format!("{point}: {}", fixture.controller.tail()))?;
            let delivery = fixture.only_promotion(&name).await?.status.context("no status")?;
            fixture.ensure_names_its_delivery(&delivery).with_context(|| point)?;
        }
        Ok(())
    })
}

/// The commit stays in git, so the rejection came too late. A promotion that was not delivered is rejected.
#[test]
fn a_rejection_after_a_crash_does_not_hide_a_delivery() -> Result<()> {
    run(async {
        let mut fixture = CrashFixture::new().await?;
        let strategy = fixture.by_commit();
        for (point, phase) in [("after-push", "1.1.0 Delivered"), ("before-push", "1.1.0 Rejected")] {
            fixture.application(point, &strategy).await?;
            fixture.die_at(point, point).await?;
            let promotion = fixture.only_promotion(point).await?.name_any();
            let why = json!({"spec": {"rejection": {"by": "admin", "revision": "1.1.0", "reason": "no"}}});
            let rejected = Patch::Merge(&why);
            fixture.place.promotions().patch(&promotion, &PatchParams::default(), &rejected).await?;
            fixture.controller.restart(false)?;
            let ended = fixture.place.until_promotions(point, "prod", &[phase]).await;
            ended.with_context(|| format!("{point}: {}", fixture.controller.tail()))?;
            if point == "after-push" {
                let status = fixture.only_promotion(point).await?.status.context("no status")?;
                fixture.ensure_names_its_delivery(&status)?;
            }
        }
        Ok(())
    })
}

/// The commit of the earlier revision is in git, below that of the newer one.
#[test]
fn a_newer_revision_after_a_crash_does_not_hide_a_delivery() -> Result<()> {
    run(async {
        let mut fixture = CrashFixture::new().await?;
        let strategy = fixture.by_commit();
        fixture.application("newer", &strategy).await?;
        fixture.die_at("newer", "after-push").await?;
        releases::runs(fixture.place.leaf("dev"), &fixture.place.namespace, "newer", "1.2.0", true).await?;
        fixture.controller.restart(false)?;
        let ended =
            fixture.place.until_promotions("newer", "prod", &["1.1.0 Superseded", "1.2.0 Delivered"]).await;
        ended.with_context(|| fixture.controller.tail())?;
        let first = fixture.place.promotions().list(&ListParams::default()).await?.items.into_iter();
        let first =
            first.filter(|promotion| promotion.spec.pipeline == "newer").find(|p| p.spec.revision == "1.1.0");
        let status = first.and_then(|promotion| promotion.status).context("no status")?;
        fixture.ensure_names_its_delivery(&status)
    })
}

#[test]
fn a_revision_that_comes_while_the_controller_is_down_supersedes_the_interrupted_promotion() -> Result<()> {
    run(async {
        let mut fixture = CrashFixture::new().await?;
        let strategy = fixture.by_request();
        for (i, point) in ["after-intent", "after-push", "after-open"].into_iter().enumerate() {
            let name = format!("app-{i}");
            fixture.application(&name, &strategy).await?;
            fixture.die_at(&name, point).await?;
            releases::runs(fixture.place.leaf("dev"), &fixture.place.namespace, &name, "1.2.0", true).await?;
            fixture.controller.restart(i % 2 == 0)?;
            let expected = ["1.1.0 Superseded", "1.2.0 Proposed"];
            let superseded = fixture.place.until_promotions(&name, "prod", &expected).await;
            superseded.with_context(|| format!("{point}: {}", fixture.controller.tail()))?;
            let number = fixture.only_pull(&name).await.with_context(|| point.to_string())?;
            fixture.repo.merge(number).await?;
            fixture.place.until_promotions(&name, "prod", &["1.1.0 Superseded", "1.2.0 Delivered"]).await?;
            let n = &fixture.place.namespace;
            ensure!(fixture.repo.read("main", &format!("{name}.yaml"))? == marked(n, &name, "1.2.0"));
        }
        Ok(())
    })
}
