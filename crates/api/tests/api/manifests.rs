//! Pipelines of users: those of Weave's RFCs, and those of the predecessor. Each is accepted unchanged, or refused with a
//! message that says what to write.

use crate::hub::validate_yaml;

async fn applies(yaml: &str) {
    if let Err(error) = validate_yaml(yaml).await {
        panic!("{error}\n{yaml}");
    }
}

async fn refused(yaml: &str, sentence: &str) {
    let error = validate_yaml(yaml).await.expect_err(yaml);
    assert!(error.contains(sentence), "{error}");
    // The message that says what to write is the only one.
    assert_eq!(error.matches("Invalid value").count(), 1, "{error}");
}

/// RFC-0001, story 1, in today's group.
const TWO_CLUSTERS: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata:
  name: podinfo
  namespace: default
spec:
  environments:
    - name: dev
      targets:
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: dev
    - name: prod
      targets:
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: prod
";

/// RFC-0001, story 4, in today's group.
const TWO_TARGETS: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata:
  name: podinfo
  namespace: default
spec:
  environments:
    - name: dev
      targets:
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: dev-us
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: dev-eu
    - name: prod
      targets:
        - namespace: podinfo
          clusterRef:
            kind: GitopsCluster
            name: prod
";

#[tokio::test]
async fn pipelines_without_promotion_are_accepted() {
    applies(TWO_CLUSTERS).await;
    applies(TWO_TARGETS).await;
}

/// RFC-0003: its four scenarios differ in the promotion and in the environments.
fn scenario(promotion: &str, environments: &[(&str, &[&str])]) -> String {
    let mut yaml = format!(
        "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata:
  name: search
  namespace: search
spec:
  appRef:
    kind: HelmRelease
    name: search-helmrelease
    apiVersion: helm.toolkit.fluxcd.io/v2beta1
  promotion:
{promotion}
  environments:
"
    );
    for (environment, clusters) in environments {
        yaml += &format!("    - name: {environment}\n      targets:\n");
        for cluster in *clusters {
            yaml += &format!(
                "        - namespace: search
          clusterRef:
            kind: GitopsCluster
            name: {cluster}
            namespace: flux-system
"
            );
        }
    }
    yaml
}

const PULL_REQUEST: &str = "    pullRequest:
      url: https://github.com/organisation/gitops-configuration-monorepo.git
      branch: main";

#[tokio::test]
async fn the_rfcs_pull_requests_are_refused_with_the_current_form() {
    let one: &[(&str, &[&str])] = &[("dev", &["dev"]), ("prod", &["prod"])];
    let several: &[(&str, &[&str])] = &[("dev", &["dev"]), ("test", &["qa", "perf"])];
    let on_to_prod: &[(&str, &[&str])] = &[("dev", &["dev"]), ("test", &["qa", "perf"]), ("prod", &["prod"])];
    for environments in [one, several, on_to_prod] {
        let sentence = "promotion.pullRequest is an older form: write promotion: {strategy: {pull-request: {type: \
                        github, url: ..., baseBranch: main, secretRef: {name: ...}}}}";
        refused(&scenario(PULL_REQUEST, environments), sentence).await;
        let todays = "    strategy:
      pull-request:
        type: github
        url: https://github.com/organisation/gitops-configuration-monorepo.git
        baseBranch: main
        secretRef:
          name: forge";
        applies(&scenario(todays, environments)).await;
    }
}

#[tokio::test]
async fn the_rfcs_webhook_is_refused_with_the_current_form() {
    let environments: &[(&str, &[&str])] = &[("dev", &["dev"])];
    let webhook = "    webhook:
      url: https://my-jenkins.prod/webhooks/XoLZfgK
      secretRef: my-jenkins-promotion-secret";
    let sentence = "promotion.webhook is an older form: write promotion: {strategy: {webhook: {url: ..., secretRef: \
                    {name: ...}}}}";
    refused(&scenario(webhook, environments), sentence).await;
    let todays = "    strategy:
      webhook:
        url: https://my-jenkins.prod/webhooks/XoLZfgK
        secretRef:
          name: my-jenkins-promotion-secret";
    applies(&scenario(todays, environments)).await;
}

/// Returns a Pipeline of the predecessor's documents with `promotion` at both levels.
fn predecessors(promotion: &str, of_prod: &str) -> String {
    format!(
        "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata:
  name: podinfo-02
  namespace: flux-system
spec:
  appRef:
    apiVersion: helm.toolkit.fluxcd.io/v2beta1
    kind: HelmRelease
    name: podinfo
  environments:
    - name: dev
      targets:
        - namespace: podinfo-02-dev
          clusterRef:
            apiVersion: gitops.weave.works/v1alpha1
            kind: GitopsCluster
            name: dev
            namespace: flux-system
    - name: test
      targets:
        - namespace: podinfo-02-qa
        - namespace: podinfo-02-perf
    - name: prod
{of_prod}
      targets:
        - namespace: podinfo-02-prod
{promotion}
"
    )
}

fn pull_request(forge: &str, url: &str) -> String {
    format!(
        "  promotion:
    strategy:
      pull-request:
        type: {forge}
        url: {url}
        baseBranch: main
        secretRef:
          name: promotion-credentials"
    )
}

#[tokio::test]
async fn the_predecessors_pull_requests_are_accepted_for_each_forge() {
    for (forge, url) in [
        ("github", "https://github.com/my-org/my-app-repo.git"),
        ("gitlab", "https://gitlab.com/my-org/my-group/my-app-repo.git"),
        ("bitbucket-server", "https://bitbucket.example/scm/org/my-app-repo.git"),
    ] {
        applies(&predecessors(&pull_request(forge, url), "")).await;
    }
}

#[tokio::test]
async fn the_predecessors_other_promotions_are_accepted() {
    applies(&predecessors("", "")).await;
    applies(&predecessors("  promotion:\n    strategy:\n      notification: {}", "")).await;
    let with_key = "  promotion:
    manual: true
    strategy:
      notification: {}
      secretRef:
        name: hmac";
    applies(&predecessors(with_key, "")).await;
    let manual = "  promotion:\n    manual: true\n    strategy:\n      notification: {}";
    let of_prod = "      promotion:
        manual: true
        strategy:
          pull-request:
            type: github
            url: https://github.com/my-org/my-app-repo.git
            baseBranch: main
            secretRef:
              name: promotion-credentials";
    applies(&predecessors(manual, of_prod)).await;
    applies(&predecessors("", of_prod)).await;
}

/// The form before the field `strategy` existed.
#[tokio::test]
async fn the_predecessors_oldest_form_is_refused_with_the_current_one() {
    let sentence = "the strategy has a level of its own: write promotion: {strategy: {pull-request: {...}}} or \
                    promotion: {strategy: {notification: {}}}";
    let pull_request = "  promotion:
    pull-request:
      type: github
      url: https://github.com/my-org/my-app-repo.git
      baseBranch: main
      secretRef:
        name: promotion-credentials";
    refused(&predecessors(pull_request, ""), sentence).await;
    refused(&predecessors("  promotion:\n    notification: {}", ""), sentence).await;
}
