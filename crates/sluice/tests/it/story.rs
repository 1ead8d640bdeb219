//! The main use, end to end.

use anyhow::{Result, ensure};
use sluice_testkit::{eventually, shared_gitea};

use crate::place::{SOON, TestNamespace, revision};
use crate::process::Controller;
use crate::{releases, run};

/// dev → staging → prod over three leaf clusters, promoted by pull requests on Gitea.
fn pipeline(namespace: &str, url: &str) -> String {
    format!(
        r#"
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {{name: podinfo, namespace: {namespace}}}
spec:
  appRef: {{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}}
  environments:
  - name: dev
    targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: dev}}}}]
  - name: staging
    targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: staging}}}}]
  - name: prod
    targets: [{{namespace: {namespace}, clusterRef: {{kind: GitopsCluster, name: prod}}}}]
  promotion:
    strategy:
      pull-request: {{type: gitea, url: "{url}", secretRef: {{name: forge}}}}
"#
    )
}

#[test]
fn a_revision_is_promoted_through_all_environments_by_pull_requests_and_each_step_is_recorded() -> Result<()>
{
    run(async {
        let place = TestNamespace::new("story").await?;
        let namespace = place.namespace.as_str();
        let gitea = shared_gitea().await?;
        let file = |environment: &str, version: &str| {
            format!("version: {version} # {{\"$promotion\": \"{namespace}:podinfo:{environment}\"}}\n")
        };
        let (staging, prod) = (file("staging", "6.1.5"), file("prod", "6.1.5"));
        let repo = gitea.create_repo(namespace, &[("staging.yaml", &staging), ("prod.yaml", &prod)]).await?;
        place.forge_secret().await?;
        for environment in ["dev", "staging", "prod"] {
            releases::create_running(place.leaf(environment), namespace, "podinfo", "6.1.5").await?;
        }
        place.apply(&pipeline(namespace, repo.url())).await?;
        let controller = Controller::start(&place.shared.hub, namespace, &[])?;
        let at_rest = |p: &sluice_api::Pipeline| revision(p, "prod") == "6.1.5";
        place.until("podinfo", "all runs 6.1.5", at_rest).await.map_err(|e| e.context(controller.tail()))?;

        releases::runs(place.leaf("dev"), namespace, "podinfo", "6.1.6", true).await?;
        for environment in ["staging", "prod"] {
            place
                .until_promotions("podinfo", environment, &["6.1.6 Proposed"])
                .await
                .map_err(|e| e.context(controller.tail()))?;
            let open = repo.pulls("open").await?;
            ensure!(open.len() == 1, "one open pull request, not {open:?}");
            repo.merge(open[0].number).await?;
            ensure!(repo.read("main", &format!("{environment}.yaml"))? == file(environment, "6.1.6"));
            place.until_promotions("podinfo", environment, &["6.1.6 Delivered"]).await?;
            releases::runs(place.leaf(environment), namespace, "podinfo", "6.1.6", true).await?;
            place.until_promotions("podinfo", environment, &["6.1.6 Succeeded"]).await?;
        }
        place.until("podinfo", "prod runs 6.1.6", |p| revision(p, "prod") == "6.1.6").await?;
        eventually(SOON, || async {
            ensure!(repo.pulls("open").await?.is_empty());
            Ok(())
        })
        .await?;
        Ok(())
    })
}
