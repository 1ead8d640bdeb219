//! The first ten rows of the table of `core/tests/decide/table.rs`, with real clusters.
//! A is 1.0.0, B is 1.1.0, C is 1.2.0.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::promotion::Phase;
use sluice_testkit::{ForgeRepo, shared_gitea};

use crate::place::{TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

const A: &str = "1.0.0";
const B: &str = "1.1.0";
const C: &str = "1.2.0";

struct RowsFixture {
    place: TestNamespace,
    repo: ForgeRepo,
    controller: Controller,
}

impl RowsFixture {
    /// Creates dev → staging → prod at A, with further settings of the `promotion` of staging and prod.
    async fn new(staging: &str, prod: &str) -> Result<RowsFixture> {
        let place = TestNamespace::new("fixture").await?;
        let n = place.namespace.clone();
        let gitea = shared_gitea().await?;
        let file = |e: &str| format!("version: {A} # {{\"$promotion\": \"{n}:app:{e}\"}}\n");
        let repo = gitea
            .create_repo(&n, &[("staging.yaml", &file("staging")), ("prod.yaml", &file("prod"))])
            .await?;
        place.forge_secret().await?;
        for leaf in ["dev", "staging", "prod"] {
            releases::create_running(place.leaf(leaf), &n, "app", A).await?;
        }
        let strategy = format!(
            "strategy: {{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}",
            repo.url()
        );
        let environment = |name: &str, settings: &str| {
            format!(
                "  - name: {name}\n    targets: [{{namespace: {n}, clusterRef: {{kind: GitopsCluster, name: {name}}}}}]\n    \
                 promotion: {{{settings}{strategy}}}\n"
            )
        };
        let yaml = format!(
            "apiVersion: pipelines.weave.works/v1alpha1\nkind: Pipeline\nmetadata: {{name: app, namespace: {n}}}\nspec:\n  \
             appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: app}}\n  environments:\n{}{}{}",
            environment("dev", ""),
            environment("staging", staging),
            environment("prod", prod)
        );
        place.apply(&yaml).await?;
        let controller = Controller::start(&place.shared.hub, &n, &[])?;
        let at_rest =
            |p: &sluice_api::Pipeline| ["dev", "staging", "prod"].iter().all(|e| revision(p, e) == A);
        place.until("app", "all run A", at_rest).await.with_context(|| controller.tail())?;
        Ok(RowsFixture { place, repo, controller })
    }

    async fn runs(&self, environment: &str, version: &str, healthy: bool) -> Result<()> {
        releases::runs(self.place.leaf(environment), &self.place.namespace, "app", version, healthy).await
    }

    async fn until_promotions(&self, environment: &str, wanted: &[&str]) -> Result<()> {
        let found = self.place.until_promotions("app", environment, wanted).await;
        found.with_context(|| self.controller.tail())
    }

    /// Merges the only open pull request, and returns its number.
    async fn merge(&self) -> Result<u64> {
        let open = self.repo.pulls("open").await?;
        ensure!(open.len() == 1, "not one open pull request: {open:?}");
        self.repo.merge(open[0].number).await?;
        Ok(open[0].number)
    }

    async fn approve(&self, version: &str) -> Result<()> {
        let all = self.place.promotions().list(&Default::default()).await?;
        let waiting = all.iter().find(|p| p.spec.environment == "prod" && p.spec.revision == version);
        let patch = json!({ "spec": { "approval": { "by": "admin", "revision": version } } });
        let name = waiting.context("nothing to approve")?.name_any();
        self.place.promotions().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }
}

#[test]
fn rows_one_to_four_and_six_a_revision_is_promoted_and_a_newer_one_supersedes_it() -> Result<()> {
    run(async {
        let fixture = RowsFixture::new("", "").await?;
        fixture.runs("dev", B, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Proposed"]).await?;
        fixture.until_promotions("prod", &[]).await?;
        // Events without a change of the revision.
        for i in 0..20 {
            let again = json!({ "again": format!("{i}") });
            releases::create(fixture.place.leaf("dev"), &fixture.place.namespace, "app", again).await?;
        }
        let first = fixture.repo.pulls("open").await?;
        fixture.runs("dev", C, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Superseded", "1.2.0 Proposed"]).await?;
        let second = fixture.repo.pulls("all").await?;
        ensure!(second.len() == 1 && second[0].number == first[0].number, "{second:?}");
        fixture.merge().await?;
        fixture.until_promotions("staging", &["1.1.0 Superseded", "1.2.0 Delivered"]).await?;
        fixture.until_promotions("prod", &[]).await?;
        fixture.runs("staging", C, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Superseded", "1.2.0 Succeeded"]).await?;
        fixture.until_promotions("prod", &["1.2.0 Proposed"]).await
    })
}

#[test]
fn row_five_a_promotion_fails_after_its_timeout_and_succeeds_when_the_target_is_healthy_again() -> Result<()>
{
    run(async {
        let fixture = RowsFixture::new("timeout: 3s, ", "").await?;
        fixture.runs("dev", B, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Proposed"]).await?;
        fixture.runs("staging", B, false).await?;
        fixture.merge().await?;
        fixture.until_promotions("staging", &["1.1.0 Failed"]).await?;
        let all = fixture.place.promotions().list(&Default::default()).await?;
        let message = all.items[0].status.clone().unwrap_or_default().message;
        ensure!(message.contains("Helm upgrade of podinfo@1.1.0"), "{message}");
        fixture.until_promotions("prod", &[]).await?;
        fixture.runs("staging", B, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Succeeded"]).await?;
        fixture.until_promotions("prod", &["1.1.0 Proposed"]).await
    })
}

#[test]
fn rows_seven_and_ten_a_delivered_promotion_is_superseded_and_an_older_revision_is_held() -> Result<()> {
    run(async {
        let fixture = RowsFixture::new("", "").await?;
        fixture.runs("dev", B, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Proposed"]).await?;
        fixture.merge().await?;
        fixture.until_promotions("staging", &["1.1.0 Delivered"]).await?;
        fixture.runs("dev", C, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Delivered", "1.2.0 Proposed"]).await?;
        fixture.merge().await?;
        fixture.until_promotions("staging", &["1.1.0 Superseded", "1.2.0 Delivered"]).await?;
        fixture.runs("staging", C, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Superseded", "1.2.0 Succeeded"]).await?;
        fixture.runs("dev", A, true).await?;
        fixture
            .until_promotions("staging", &["1.1.0 Superseded", "1.2.0 Succeeded", "1.0.0 Pending"])
            .await?;
        let held = |p: &sluice_api::Pipeline| {
            let status = p.status.clone().unwrap_or_default();
            status.environments["staging"].message.contains("1.0.0 is held: it is older than 1.2.0")
        };
        fixture.place.until("app", "the status of staging says why A is held", held).await?;
        Ok(())
    })
}

#[test]
fn rows_eight_and_nine_an_approval_is_for_one_revision_and_a_failed_newer_one_replaces_no_candidate()
-> Result<()> {
    run(async {
        let fixture = RowsFixture::new("", "manual: true, ").await?;
        fixture.runs("dev", B, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Proposed"]).await?;
        fixture.merge().await?;
        fixture.runs("staging", B, true).await?;
        fixture.until_promotions("prod", &["1.1.0 Pending"]).await?;
        let waits = |version: &'static str| {
            move |p: &sluice_api::Pipeline| {
                let status = p.status.clone().unwrap_or_default();
                status.environments["prod"].waiting_approval.revision == version
            }
        };
        fixture.place.until("app", "prod's B waits for approval", waits(B)).await?;
        // C fails in staging, so B is still prod's candidate.
        fixture.runs("dev", C, true).await?;
        fixture.until_promotions("staging", &["1.1.0 Succeeded", "1.2.0 Proposed"]).await?;
        fixture.merge().await?;
        fixture.runs("staging", C, false).await?;
        fixture.until_promotions("staging", &["1.1.0 Succeeded", "1.2.0 Delivered"]).await?;
        fixture.until_promotions("prod", &["1.1.0 Pending"]).await?;
        // C becomes healthy and supersedes B, and an approval of B does not approve C.
        fixture.runs("staging", C, true).await?;
        fixture.until_promotions("prod", &["1.1.0 Superseded", "1.2.0 Pending"]).await?;
        fixture.approve(B).await?;
        fixture.place.until("app", "prod's C waits for approval", waits(C)).await?;
        ensure!(fixture.repo.pulls("open").await?.is_empty());
        fixture.approve(C).await?;
        fixture.until_promotions("prod", &["1.1.0 Superseded", "1.2.0 Proposed"]).await?;
        let all = fixture.place.promotions().list(&Default::default()).await?;
        let last = all.iter().find(|p| p.phase() == Phase::Proposed);
        ensure!(last.and_then(|p| p.spec.approval.clone()).is_some_and(|a| a.by == "admin"));
        Ok(())
    })
}
