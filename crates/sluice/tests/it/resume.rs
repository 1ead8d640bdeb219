//! A failed promotion continues without a person when its cause is fixed, and a commit that a forced push removed
//! is made again once, also just before the timeout, in another branch, or by another change request.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_testkit::{ForgeRepo, eventually, shared_gitea};

use crate::crash::{marked, pipeline};
use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

/// Moves a branch to another commit, as a forced push does, or creates it.
fn force(repo: &ForgeRepo, branch: &str, commit: &str) -> Result<()> {
    let args = ["update-ref", &format!("refs/heads/{branch}"), commit];
    let status = Command::new("git").arg("--git-dir").arg(repo.folder()).args(args).status()?;
    ensure!(status.success(), "git update-ref");
    Ok(())
}

#[test]
fn a_promotion_continues_after_its_cause_is_fixed_and_a_lost_commit_is_made_again() -> Result<()> {
    run(async {
        let place = TestNamespace::new("resume").await?;
        let n = place.namespace.as_str();
        let repo = shared_gitea().await?.create_repo(n, &[("app.yaml", "version: 1.0.0\n")]).await?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "app", "1.0.0").await?;
        }
        let commit =
            format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", repo.url());
        place.apply(&pipeline(n, "app", &commit)).await?;
        let controller = Controller::start(&place.shared.hub, n, &["--log-level=warn"])?;
        place.until("app", "all runs 1.0.0", |p| revision(p, "prod") == "1.0.0").await?;
        releases::runs(place.leaf("dev"), n, "app", "1.1.0", true).await?;

        let status = || async {
            let all = place.promotions().list(&Default::default()).await?.items;
            all.into_iter().next().and_then(|p| p.status).context("no status yet")
        };
        let failed = |tries: u32| async move {
            eventually(SOON, || async {
                let status = status().await?;
                ensure!(status.reason == "NoMarker" && status.attempts == tries, "{status:?}");
                status.next_attempt.context("no time of the next try")
            })
            .await
        };
        failed(1).await.map_err(|e| e.context(controller.tail()))?;
        eventually(SOON, || async {
            let log = controller.tail();
            ensure!(log.contains("WARN") && log.contains("NoMarker") && log.contains(n), "{log}");
            Ok(())
        })
        .await?;
        // Any change of the pipeline starts another try.
        let edited = pipeline(n, "app", &commit).replace("{strategy:", "{timeout: 1h, strategy:");
        place.apply(&edited).await?;
        let next_attempt = failed(2).await.map_err(|e| e.context(controller.tail()))?;
        let base = repo.commit("main", "mark", &[("app.yaml", &marked(n, "app", "1.0.0"))])?;
        // So does a change of the Secret.
        let token = shared_gitea().await?.token();
        place.secret("forge", &[("username", "y"), ("password", token), ("token", token)]).await?;
        place.until_promotions("app", "prod", &["1.1.0 Delivered"]).await?;
        let delivered = status().await?.times.get("Delivered").copied().context("no time of the delivery")?;
        ensure!(
            delivered < next_attempt,
            "{delivered} is not before {next_attempt}: the pause was not ended"
        );
        ensure!(repo.read("main", "app.yaml")? == marked(n, "app", "1.1.0"));

        // A person resets the branch, and commits on top of that.
        force(&repo, "main", &base)?;
        repo.commit("main", "other", &[("other.yaml", "a: 1\n")])?;
        eventually(SOON, || async {
            ensure!(repo.read("main", "app.yaml")? == marked(n, "app", "1.1.0"), "not made again yet");
            Ok(())
        })
        .await
        .map_err(|e| e.context(controller.tail()))?;
        place.until_promotions("app", "prod", &["1.1.0 Delivered"]).await?;
        ensure!(status().await?.round == 1);
        // The first commit of the repository, the marker, the person's commit, and the repeated one.
        ensure!(repo.log("main")?.len() == 4, "{:?}", repo.log("main")?);
        releases::runs(place.leaf("prod"), n, "app", "1.1.0", true).await?;
        place.until_promotions("app", "prod", &["1.1.0 Succeeded"]).await
    })
}

/// The only check of the branch is the last one before the timeout: the regular checks come too late.
#[test]
fn a_commit_is_made_again_at_the_timeout_or_in_the_right_branch() -> Result<()> {
    run(async {
        let place = TestNamespace::new("late").await?;
        let n = place.namespace.as_str();
        let file = |version: &str| marked(n, "app", version);
        let repo = shared_gitea().await?.create_repo(n, &[("app.yaml", &file("1.0.0"))]).await?;
        let base = repo.head("main")?;
        force(&repo, "wrong", &base)?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "app", "1.0.0").await?;
        }
        let commit_to = |branch: &str| {
            let to = format!("{{url: {:?}, branch: {branch}, secretRef: {{name: forge}}}}", repo.url());
            pipeline(n, "app", &format!("{{commit: {to}}}")).replace("{strategy:", "{timeout: 20s, strategy:")
        };
        place.apply(&commit_to("main")).await?;
        let controller = Controller::start(&place.shared.hub, n, &["--poll-interval=10m"])?;
        place.until("app", "all runs 1.0.0", |p| revision(p, "prod") == "1.0.0").await?;
        releases::runs(place.leaf("dev"), n, "app", "1.1.0", true).await?;
        place.until_promotions("app", "prod", &["1.1.0 Delivered"]).await?;
        force(&repo, "main", &base)?;
        eventually(SOON, || async {
            ensure!(repo.read("main", "app.yaml")? == file("1.1.0"), "not made again yet");
            Ok(())
        })
        .await
        .map_err(|e| e.context(controller.tail()))?;
        releases::runs(place.leaf("prod"), n, "app", "1.1.0", true).await?;
        place.until_promotions("app", "prod", &["1.1.0 Succeeded"]).await?;

        place.apply(&commit_to("wrong")).await?;
        releases::runs(place.leaf("dev"), n, "app", "1.2.0", true).await?;
        place.until_promotions("app", "prod", &["1.1.0 Succeeded", "1.2.0 Failed"]).await?;
        ensure!(repo.read("wrong", "app.yaml")? == file("1.2.0"));
        place.apply(&commit_to("main")).await?;
        place.until_promotions("app", "prod", &["1.1.0 Succeeded", "1.2.0 Delivered"]).await?;
        ensure!(repo.read("main", "app.yaml")? == file("1.2.0"));
        releases::runs(place.leaf("prod"), n, "app", "1.2.0", true).await?;
        place.until_promotions("app", "prod", &["1.1.0 Succeeded", "1.2.0 Succeeded"]).await
    })
}

#[test]
fn a_template_is_corrected_and_a_lost_merge_is_made_again() -> Result<()> {
    run(async {
        let place = TestNamespace::new("template").await?;
        let n = place.namespace.as_str();
        let file = |version: &str| marked(n, "app", version);
        let repo = shared_gitea().await?.create_repo(n, &[("app.yaml", &file("1.0.0"))]).await?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "app", "1.0.0").await?;
        }
        let with_title = |title: &str| {
            let settings =
                format!("type: gitea, url: {:?}, secretRef: {{name: forge}}, title: {title:?}", repo.url());
            pipeline(n, "app", &format!("{{pull-request: {{{settings}}}}}"))
        };
        place.apply(&with_title("Draft: {revision}")).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("app", "all runs 1.0.0", |p| revision(p, "prod") == "1.0.0").await?;
        let refused = |p: &sluice_api::Pipeline| {
            let conditions = p.status.clone().unwrap_or_default().conditions;
            let is_refused =
                |c: &Condition| c.reason == "StrategyRefused" && c.message.contains("draft: true");
            conditions.iter().any(is_refused)
        };
        place.until("app", "the title of a draft is refused", refused).await?;
        // Only the promotion shows that nothing is left of this title.
        place.apply(&with_title("{target}")).await?;
        releases::runs(place.leaf("dev"), n, "app", "1.1.0", true).await?;
        let status = || async {
            let all = place.promotions().list(&Default::default()).await?.items;
            all.into_iter().next().and_then(|p| p.status).context("no status yet")
        };
        let next_attempt = eventually(SOON, || async {
            let status = status().await?;
            ensure!(status.reason == "BadTemplate", "{status:?}");
            status.next_attempt.context("no time of the next try")
        });
        let next_attempt = next_attempt.await.map_err(|e| e.context(controller.tail()))?;
        place.apply(&with_title("{pipeline} {revision}")).await?;
        let until = async |phases: &[&str]| {
            let reached = place.until_promotions("app", "prod", phases).await;
            reached.map_err(|e| e.context(controller.tail()))
        };
        until(&["1.1.0 Proposed"]).await?;
        let proposed = status().await?.times.get("Proposed").copied().context("no time of the proposal")?;
        ensure!(proposed < next_attempt, "{proposed} is not before {next_attempt}: the pause was not ended");
        let only_open = async || {
            let open = repo.pulls("open").await?;
            ensure!(open.len() == 1, "{open:?}");
            Ok(open[0].clone())
        };
        let first = only_open().await?;
        ensure!(first.title == "app 1.1.0", "{first:?}");

        // A person resets the branch to the commit before the merge.
        let base = repo.head("main")?;
        repo.merge(first.number).await?;
        until(&["1.1.0 Delivered"]).await?;
        force(&repo, "main", &base)?;
        until(&["1.1.0 Proposed"]).await?;
        let second = only_open().await?;
        ensure!(second.number != first.number && status().await?.round == 1, "{second:?}");
        repo.merge(second.number).await?;
        until(&["1.1.0 Delivered"]).await?;
        ensure!(repo.read("main", "app.yaml")? == file("1.1.0"));
        releases::runs(place.leaf("prod"), n, "app", "1.1.0", true).await?;
        until(&["1.1.0 Succeeded"]).await?;
        ensure!(repo.pulls("all").await?.len() == 2);
        Ok(())
    })
}
