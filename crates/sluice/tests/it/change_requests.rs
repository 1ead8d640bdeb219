//! The owner changes the pipeline while a change request is open. Two are never open for one environment, and none
//! is left open.

use anyhow::{Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};
use sluice_testkit::fault_injection::{Fault, FaultPlan, FaultProxy};
use sluice_testkit::{ForgeRepo, eventually, shared_gitea};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

fn pipeline(namespace: &str, strategy: &str) -> String {
    format!(
        r#"
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {{name: podinfo, namespace: {namespace}}}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}
  environments:
  - {{name: dev, targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: dev}}}}]}}
  - {{name: prod, targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: prod}}}}]}}
  promotion: {{strategy: {strategy}}}
"#
    )
}

fn pull_request(repo: &ForgeRepo) -> String {
    format!("{{pull-request: {{type: gitea, url: {:?}, secretRef: {{name: forge}}}}}}", repo.url())
}

async fn states(repo: &ForgeRepo) -> Result<Vec<String>> {
    Ok(repo.pulls("all").await?.into_iter().map(|p| p.state).collect())
}

#[test]
fn a_changed_strategy_replaces_the_open_change_request() -> Result<()> {
    run(async {
        let place = TestNamespace::new("changes").await?;
        let n = place.namespace.as_str();
        let gitea = shared_gitea().await?;
        let file = |version: &str| format!("version: {version} # {{\"$promotion\": \"{n}:podinfo:prod\"}}\n");
        let first = gitea.create_repo(&format!("{n}-first"), &[("prod.yaml", &file("6.1.5"))]).await?;
        let second = gitea.create_repo(&format!("{n}-second"), &[("prod.yaml", &file("6.1.5"))]).await?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "podinfo", "6.1.5").await?;
        }
        place.apply(&pipeline(n, &pull_request(&first))).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("podinfo", "all runs 6.1.5", |p| revision(p, "prod") == "6.1.5").await?;
        releases::runs(place.leaf("dev"), n, "podinfo", "6.1.6", true).await?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Proposed"]).await?;
        ensure!(states(&first).await? == ["open"]);

        place.apply(&pipeline(n, &pull_request(&second))).await?;
        let moved = || async {
            let open = second.pulls("open").await?;
            // The new change request is opened after the old one is closed.
            ensure!(open.is_empty() || states(&first).await? == ["closed"], "two are open");
            ensure!(open.len() == 1, "none is open yet");
            Ok(())
        };
        eventually(SOON, moved).await.map_err(|e| e.context(controller.tail()))?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Proposed"]).await?;

        // There is no second one after a change of the branch.
        let branch = pull_request(&second)
            .replace("secretRef", "branch: 'deploy/{namespace}/{pipeline}/{environment}', secretRef");
        place.apply(&pipeline(n, &branch)).await?;
        let renamed = || async {
            let open = second.pulls("open").await?;
            ensure!(open.len() < 2, "two are open");
            ensure!(open.iter().any(|p| p.head.branch.starts_with("deploy/")), "none is open yet");
            Ok(())
        };
        eventually(SOON, renamed).await.map_err(|e| e.context(controller.tail()))?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Proposed"]).await?;

        // A change back: a change request that Sluice has closed does not count as rejected.
        place.apply(&pipeline(n, &pull_request(&first))).await?;
        let back = || async {
            ensure!(second.pulls("open").await?.is_empty(), "the second is still open");
            ensure!(first.pulls("open").await?.len() == 1, "none is open yet");
            Ok(())
        };
        eventually(SOON, back).await.map_err(|e| e.context(controller.tail()))?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Proposed"]).await?;

        let commit =
            format!("{{commit: {{url: {:?}, branch: main, secretRef: {{name: forge}}}}}}", second.url());
        place.apply(&pipeline(n, &commit)).await?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Delivered"]).await?;
        ensure!(first.pulls("open").await?.is_empty() && second.read("main", "prod.yaml")? == file("6.1.6"));
        Ok(())
    })
}

#[test]
fn the_change_request_of_a_removed_environment_is_closed() -> Result<()> {
    run(async {
        let place = TestNamespace::new("changes").await?;
        let n = place.namespace.as_str();
        let gitea = shared_gitea().await?;
        let file = format!("version: 6.1.5 # {{\"$promotion\": \"{n}:podinfo:prod\"}}\n");
        let repo = gitea.create_repo(n, &[("prod.yaml", &file)]).await?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "podinfo", "6.1.5").await?;
        }
        // The environment has its own strategy, which is removed with it.
        let own = pipeline(n, "{notification: {}}")
            .replace("prod}}]}", &format!("prod}}}}], promotion: {{strategy: {}}}}}", pull_request(&repo)));
        place.apply(&own).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("podinfo", "all runs 6.1.5", |p| revision(p, "prod") == "6.1.5").await?;
        releases::runs(place.leaf("dev"), n, "podinfo", "6.1.6", true).await?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Proposed"]).await?;
        let without: Vec<&str> = own.lines().filter(|line| !line.contains("name: prod,")).collect();
        place.apply(&without.join("\n")).await?;
        let closed = || async {
            ensure!(states(&repo).await? == ["closed"], "the pull request is still open");
            Ok(())
        };
        eventually(SOON, closed).await.map_err(|e| e.context(controller.tail()))?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Cancelled"]).await
    })
}

/// Waits until the message of a promotion has a part.
async fn until_message(place: &TestNamespace, part: &str) -> Result<()> {
    eventually(SOON, || async {
        let all = place.promotions().list(&ListParams::default()).await?;
        let messages: Vec<String> = all.into_iter().filter_map(|p| p.status.map(|s| s.message)).collect();
        ensure!(messages.iter().any(|message| message.contains(part)), "{messages:?}");
        Ok(())
    })
    .await
}

#[test]
fn sluice_merges_a_green_change_request_but_not_while_the_pipeline_is_suspended() -> Result<()> {
    run(async {
        let place = TestNamespace::new("merging").await?;
        let n = place.namespace.as_str();
        let gitea = shared_gitea().await?;
        let file = |version: &str| format!("version: {version} # {{\"$promotion\": \"{n}:podinfo:prod\"}}\n");
        let repo = gitea.create_repo(n, &[("prod.yaml", &file("6.1.5"))]).await?;
        let rule = json!({"rule_name": "main", "enable_status_check": true, "status_check_contexts": ["ci/build"],
            "enable_push": true, "block_on_outdated_branch": true});
        repo.api("POST", "branch_protections", rule).await?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "podinfo", "6.1.5").await?;
        }
        let more =
            "labels: [promotion], reviewers: [nobody-here], merge: WhenGreen, deleteBranch: true, secretRef";
        let yaml = pipeline(n, &pull_request(&repo).replace("secretRef", more));
        place.apply(&yaml).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("podinfo", "all runs 6.1.5", |p| revision(p, "prod") == "6.1.5").await?;
        releases::runs(place.leaf("dev"), n, "podinfo", "6.1.6", true).await?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Proposed"]).await?;
        until_message(&place, "waits for checks: ci/build pending")
            .await
            .map_err(|e| e.context(controller.tail()))?;
        until_message(&place, "nobody-here was not asked to review it").await?;
        let pull = repo.pulls("open").await?.remove(0);
        ensure!(pull.labels.iter().any(|l| l.name == "promotion"), "the pull request has no label");

        // The pipeline is suspended before the check succeeds.
        place.apply(&yaml.replace("spec:\n", "spec:\n  suspend: true\n")).await?;
        place
            .until("podinfo", "suspended", |p| {
                let observed = p.status.as_ref().map(|status| status.observed_generation);
                p.spec.suspend && observed == p.metadata.generation
            })
            .await?;
        let green = json!({"state": "success", "context": "ci/build"});
        repo.api("POST", &format!("statuses/{}", pull.head.sha), green.clone()).await?;
        until_message(&place, "to be merged").await.map_err(|e| e.context(controller.tail()))?;
        ensure!(states(&repo).await? == ["open"], "a suspended pipeline has merged");
        // Meanwhile its base changes, and it is merged only on top of the new base.
        let elsewhere = repo.commit("main", "elsewhere", &[("other.yaml", "a: b\n")])?;
        repo.until_behind(pull.number).await?;
        place.apply(&yaml).await?;
        let new_head = eventually(SOON, || async {
            let now = repo.pull(pull.number).await?;
            ensure!(now.head.sha != pull.head.sha, "the head has not changed");
            Ok(now.head.sha)
        });
        let new_head = new_head.await.map_err(|e| e.context(controller.tail()))?;
        ensure!(repo.log(&pull.head.branch)?[1].sha == elsewhere, "the head is not on top of the base");
        repo.api("POST", &format!("statuses/{new_head}"), green).await?;
        place.until_promotions("podinfo", "prod", &["6.1.6 Delivered"]).await?;
        ensure!(repo.read("main", "prod.yaml")? == file("6.1.6"));
        let gone = || async {
            let left = repo.branches()?;
            ensure!(left == ["main"], "{left:?}");
            Ok(())
        };
        eventually(SOON, gone).await
    })
}

#[test]
fn each_target_has_its_own_change_request() -> Result<()> {
    run(async {
        let place = TestNamespace::new("targets").await?;
        let n = place.namespace.as_str();
        let file = |target: &str, version: &str| {
            format!(
                "version: {version} # {{\"$promotion\": \"{n}:podinfo:prod\", \"target\": \"{target}\"}}\n"
            )
        };
        let (eu, us) = (file("eu", "6.1.5"), file("us", "6.1.5"));
        let repo = shared_gitea().await?.create_repo(n, &[("eu.yaml", &eu), ("us.yaml", &us)]).await?;
        place.forge_secret().await?;
        for environment in ["dev", "staging", "prod"] {
            releases::create_running(place.leaf(environment), n, "podinfo", "6.1.5").await?;
        }
        let target = |name: &str, cluster: &str| {
            format!("{{name: {name}, namespace: {n}, clusterRef: {{kind: GitopsCluster, name: {cluster}}}}}")
        };
        let (one, all) = (target("us", "prod"), [target("eu", "staging"), target("us", "prod")].join(", "));
        let by = pull_request(&repo).replace("secretRef", "per: Target, secretRef");
        let pipeline = pipeline(n, &by).replace(&one.replace("name: us, ", ""), &all);
        place.apply(&pipeline).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        place.until("podinfo", "all runs 6.1.5", |p| revision(p, "prod") == "6.1.5").await?;
        releases::runs(place.leaf("dev"), n, "podinfo", "6.1.6", true).await?;
        let tail = |error: anyhow::Error| error.context(controller.tail());
        place.until_promotions("podinfo", "prod/eu", &["6.1.6 Proposed"]).await.map_err(tail)?;
        place.until_promotions("podinfo", "prod/us", &["6.1.6 Proposed"]).await.map_err(tail)?;

        let open = repo.pulls("open").await?;
        let eu = open.iter().find(|p| p.head.branch.ends_with("/prod@eu"));
        let eu = eu.ok_or_else(|| anyhow::anyhow!("none of {open:?} is for eu"))?;
        ensure!(open.len() == 2 && eu.title.contains("prod (eu)"), "{open:?}");
        repo.merge(eu.number).await?;
        releases::runs(place.leaf("staging"), n, "podinfo", "6.1.6", true).await?;
        place.until_promotions("podinfo", "prod/eu", &["6.1.6 Succeeded"]).await.map_err(tail)?;
        place.until_promotions("podinfo", "prod/us", &["6.1.6 Proposed"]).await.map_err(tail)?;
        ensure!(repo.read("main", "eu.yaml")? == file("eu", "6.1.6"), "eu was not set");
        ensure!(repo.read("main", "us.yaml")? == us, "us was set with the change request of eu");
        let only_us_waits = |p: &sluice_api::Pipeline| {
            let status = p.status.clone().unwrap_or_default();
            let targets = status.environments.get("prod").map(|e| e.targets.clone()).unwrap_or_default();
            let of = |name: &str| targets.iter().find(|t| t.name == name).map(|t| t.promotion.is_some());
            (of("eu"), of("us")) == (Some(false), Some(true))
        };
        place.until("podinfo", "us has an active promotion, and eu has none", only_us_waits).await?;
        Ok(())
    })
}

/// Waits until these commit statuses were reported on the head of the base, in this order.
async fn reported(repo: &ForgeRepo, context: &str, states: &[&str]) -> Result<()> {
    let commit = repo.head("main")?;
    eventually(SOON, || async {
        let all = repo.api("GET", &format!("statuses/{commit}?sort=leastindex"), Value::Null).await?;
        let mut of_it: Vec<&Value> = all.as_array().into_iter().flatten().collect();
        of_it.retain(|status| status["context"] == context);
        let reported: Vec<&str> = of_it.iter().rev().filter_map(|status| status["status"].as_str()).collect();
        ensure!(reported == states, "{all}");
        Ok(())
    })
    .await
}

#[test]
fn commit_statuses_are_reported_and_a_forge_that_refuses_them_stops_no_promotion() -> Result<()> {
    run(async {
        let place = TestNamespace::new("statuses").await?;
        let n = place.namespace.as_str();
        let gitea = shared_gitea().await?;
        let file = format!("version: 6.1.5 # {{\"$promotion\": \"{n}:podinfo:prod\"}}\n");
        let repo = gitea.create_repo(n, &[("prod.yaml", &file)]).await?;
        let fault_proxy = FaultProxy::in_front_of_url(gitea.url())?;
        place.forge_secret().await?;
        for environment in ["dev", "prod"] {
            releases::create_running(place.leaf(environment), n, "podinfo", "6.1.5").await?;
        }
        let by = pull_request(&repo).replace("secretRef", "commitStatuses: true, secretRef");
        // The web addresses of change requests have Gitea's own address.
        place.apply(&pipeline(n, &by.replace(gitea.url(), &fault_proxy.url()))).await?;
        let controller = Controller::start(&place.shared.hub, n, &[])?;
        let tail = |error: anyhow::Error| error.context(controller.tail());
        place.until("podinfo", "all runs 6.1.5", |p| revision(p, "prod") == "6.1.5").await?;
        let context = format!("sluice/{n}/podinfo/prod");

        let merge = async |version: &str, before: &[&str]| -> Result<()> {
            releases::runs(place.leaf("dev"), n, "podinfo", version, true).await?;
            place
                .until_promotions("podinfo", "prod", &[before, &[&format!("{version} Proposed")]].concat())
                .await?;
            fault_proxy.set_plan(match before {
                [] => FaultPlan::Quiet,
                // The first commit status.
                _ => FaultPlan::Change { call: 1, fault: Fault::Refused(403) },
            });
            repo.merge(repo.pulls("open").await?[0].number).await?;
            place
                .until_promotions("podinfo", "prod", &[before, &[&format!("{version} Delivered")]].concat())
                .await
        };
        merge("6.1.6", &[]).await.map_err(tail)?;
        reported(&repo, &context, &["pending"]).await.map_err(tail)?;
        releases::runs(place.leaf("prod"), n, "podinfo", "6.1.6", true).await?;
        reported(&repo, &context, &["pending", "success"]).await.map_err(tail)?;

        merge("6.1.7", &["6.1.6 Succeeded"]).await.map_err(tail)?;
        let refused = || async {
            let log = std::fs::read_to_string(controller.log())?;
            let line =
                log.lines().find(|line| line.contains("a commit status was not sent and is not retried"));
            let line =
                line.ok_or_else(|| anyhow::anyhow!("no status was refused: {:?}", fault_proxy.calls()))?;
            let parts = ["podinfo-prod", "may not write commit statuses", "write:repository"];
            ensure!(parts.iter().all(|part| line.contains(part)), "{line}");
            Ok(())
        };
        eventually(SOON, refused).await.map_err(tail)?;
        releases::runs(place.leaf("prod"), n, "podinfo", "6.1.7", true).await?;
        let expected = ["6.1.6 Succeeded", "6.1.7 Succeeded"];
        place.until_promotions("podinfo", "prod", &expected).await.map_err(tail)?;
        reported(&repo, &context, &["success"]).await.map_err(tail)
    })
}
