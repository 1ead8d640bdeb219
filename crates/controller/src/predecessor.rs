//! Pipelines that Weave's pipeline-controller handled before: what Sluice does differently is logged once, when the
//! replica that acts for the Pipeline first reconciles it. Its status shows the predecessor's conditions until Sluice
//! writes its own. See docs/coming-from-weave.md.

use std::collections::BTreeSet;

use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, PipelineStatus, PromotionPolicy, PullRequestStrategy};

use crate::translate;

/// Returns what the predecessor did for this Pipeline and Sluice does not, as one sentence. `None` if the status
/// is not the predecessor's, or nothing is different.
pub(crate) fn differences(pipeline: &Pipeline, status: &PipelineStatus) -> Option<String> {
    // Messages that only pipeline-controller writes (at its last commit, 2ca1d66).
    let is_of_predecessor = status.conditions.iter().any(|condition| {
        let message = condition.message.as_str();
        ["All clusters checked", "One or more targets was not reachable or not present"].contains(&message)
            || message.starts_with("Target cluster '")
    });
    let spec = &pipeline.spec;
    let policies: Vec<&PromotionPolicy> = spec.environments.iter().filter_map(|e| spec.policy(e)).collect();
    let strategies = || policies.iter().filter_map(|policy| policy.strategy.as_ref());
    let mut differences = Vec::new();
    let model = translate::pipeline(pipeline);
    differences.extend(model.name_problem().map(|(_, problem)| problem));
    let refused: BTreeSet<String> =
        model.environments.into_iter().filter_map(|environment| environment.policy?.refused).collect();
    differences.extend(refused);
    if strategies().any(|s| s.secret_ref.is_none() && !s.allow_unsigned) {
        differences.push("calls without a signature are refused: name a Secret in strategy.secretRef".into());
    }
    let requests: Vec<_> = strategies().filter_map(|strategy| strategy.pull_request.as_ref()).collect();
    differences.extend(request_differences(&requests));
    // Pipelines of the predecessor have no `after`: each environment comes after the one before it.
    let starts_with_one = |pair: &[Environment]| {
        let [before, next] = pair else { return false };
        before.targets.len() > 1 && spec.policy(next).is_some_and(|policy| policy.min_ready_targets.is_none())
    };
    if spec.environments.windows(2).any(starts_with_one) {
        differences.push(
            "one healthy target of several is enough: to require all, as with --enable-level-triggered, set \
             minReadyTargets: 100%"
                .into(),
        );
    }
    if policies.iter().any(|policy| policy.manual) {
        differences
            .push("approvals without a signed body are refused: add approval-key to the Secret".into());
    }
    (is_of_predecessor && !differences.is_empty()).then(|| differences.join("; "))
}

/// Returns what is different about the pull requests of these strategies.
fn request_differences(requests: &[&PullRequestStrategy]) -> Vec<String> {
    let mut differences = Vec::new();
    if requests.iter().any(|s| s.branch.is_none()) {
        differences.push(
            "open pull requests are not taken over: set branch: promotion-{namespace}-{pipeline}-{environment}".into(),
        );
    }
    if requests.iter().any(|s| s.title.is_none()) {
        differences.push(
            "pull requests have another title: if a rule reads titles, set title: 'Promote {namespace}/{pipeline} in \
             {environment} to {revision}'"
                .into(),
        );
    }
    if requests.iter().any(|s| s.body.is_none()) {
        differences.push(
            "Weave GitOps Enterprise does not find the pull requests: set body: \
             \"{namespace}/{pipeline}/{environment}\\n\\n{usual}\""
                .into(),
        );
    }
    differences
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The differences of a Pipeline whose condition has this message.
    fn differences_after(message: &str, promotion: Value) -> Option<String> {
        differences_with(message, &["dev"], promotion)
    }

    /// The same of a Pipeline with environments of these names. An environment has one target for each part of its name
    /// that a plus separates.
    fn differences_with(message: &str, environments: &[&str], promotion: Value) -> Option<String> {
        let target = |name: &str| json!({"namespace": name});
        let environment = |name: &&str| json!({"name": name.replace('+', "-"), "targets": name.split('+').map(target).collect::<Vec<_>>()});
        let environments: Vec<Value> = environments.iter().map(environment).collect();
        let pipeline = serde_json::from_value(json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
            "spec": {"environments": environments, "promotion": promotion},
        }));
        let status = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded",
            "message": message, "lastTransitionTime": "2023-11-20T10:00:00Z"}]});
        differences(&pipeline.unwrap(), &serde_json::from_value(status).unwrap())
    }

    #[test]
    fn differences_are_reported_for_a_pipeline_of_the_predecessor() {
        let forge = json!({"type": "github", "url": "https://h/a/b", "baseBranch": "main", "secretRef": {"name": "x"}});
        let all = json!({"manual": true, "strategy": {"pull-request": forge.clone()}});
        let text = differences_after("All clusters checked", all.clone()).unwrap();
        for word in ["strategy.secretRef", "promotion-{namespace}-{pipeline}-{environment}", "approval-key"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(differences_after("Target cluster 'GitopsCluster/a/b' not ready", all.clone()).is_some());
        assert_eq!(differences_after("all targets were read", all), None, "a status of Sluice");
        for (older, says) in [
            (json!({"pull-request": forge.clone()}), "promotion.pull-request is an older form"),
            (json!({"strategy": {}}), "promotion.strategy is empty"),
        ] {
            let text = differences_after("All clusters checked", older).unwrap();
            assert!(text.contains(says), "{text}");
        }
        let mut kept = json!({"strategy": {"notification": {}, "secretRef": {"name": "x"}}});
        assert_eq!(differences_after("All clusters checked", kept.clone()), None, "nothing is different");
        // The targets of the last environment start no promotion.
        assert_eq!(differences_with("All clusters checked", &["dev", "eu+us"], kept.clone()), None);
        kept["minReadyTargets"] = 1.into();
        assert_eq!(differences_with("All clusters checked", &["eu+us", "prod"], kept), None);
        let mut own = json!({"strategy": {"pull-request": forge, "secretRef": {"name": "x"}}});
        for (field, template) in [
            ("branch", "promotion-{namespace}-{pipeline}-{environment}"),
            ("title", "{revision}"),
            ("body", "{usual}"),
        ] {
            own["strategy"]["pull-request"][field] = template.into();
        }
        assert_eq!(differences_after("All clusters checked", own), None, "the team has decided");
    }

    /// A Pipeline with one difference: its environments and policy, words of the log line, and words of the page about it.
    type Difference = (&'static [&'static str], Value, &'static str, &'static str);

    fn differences_of_one() -> Vec<Difference> {
        let secret = json!({"name": "x"});
        let strategy = json!({"notification": {}, "secretRef": secret});
        let forge =
            json!({"type": "github", "url": "https://h/a/b", "baseBranch": "main", "secretRef": secret});
        let by_request = json!({"strategy": {"pull-request": forge, "secretRef": secret}});
        let branch = "promotion-{namespace}-{pipeline}-{environment}";
        let title = "title: 'Promote {namespace}/{pipeline} in {environment} to {revision}'";
        let body = r#"body: "{namespace}/{pipeline}/{environment}\n\n{usual}""#;
        let (dev, is_older) = (&["dev"], |field: &str| format!("promotion.{field} is an older form").leak());
        vec![
            (
                &["Dev_1"],
                json!({"strategy": strategy}),
                "lower-case letters, digits and '-'",
                "names are unique, and consist of lower-case letters, digits and -",
            ),
            (
                &["dev", "dev"],
                json!({"strategy": strategy}),
                "two environments are named",
                "several may have the same name",
            ),
            (
                dev,
                json!({"pull-request": forge}),
                is_older("pull-request"),
                "promotion.pull-request without strategy",
            ),
            (dev, json!({"pullRequest": forge}), is_older("pullRequest"), "pullRequest"),
            (dev, json!({"notification": {}}), is_older("notification"), "promotion.notification"),
            (dev, json!({"webhook": {}}), is_older("webhook"), "promotion.webhook"),
            (dev, json!({"strategy": {"secretRef": secret}}), "promotion.strategy is empty", "strategy: {}"),
            (
                dev,
                json!({"strategy": {"notification": {}}}),
                "strategy.secretRef",
                "without strategy.secretRef",
            ),
            (dev, by_request.clone(), branch, branch),
            (dev, by_request.clone(), title, title),
            (dev, by_request, body, body),
            (
                &["eu+us", "prod"],
                json!({"strategy": strategy}),
                "minReadyTargets: 100%",
                "minReadyTargets: 100%",
            ),
            (dev, json!({"manual": true, "strategy": strategy}), "add approval-key", "add approval-key"),
        ]
    }

    const PAGE: &str = include_str!("../../../docs/coming-from-weave.md");

    #[test]
    fn the_page_about_the_predecessor_has_each_difference() {
        let page = PAGE.replace('`', "");
        for (environments, promotion, reported, written) in differences_of_one() {
            let found = differences_with("All clusters checked", environments, promotion);
            let found = found.unwrap_or_else(|| panic!("no difference: {reported}"));
            assert!(found.contains(reported), "{found}");
            assert!(page.contains(written), "docs/coming-from-weave.md does not explain: {found}");
        }
    }

    #[test]
    fn each_row_of_the_page_is_reported_or_about_all_pipelines() {
        let page = PAGE.replace('`', "");
        // About all Pipelines, or about calls and files.
        let general =
            ["sha224", "an event promotes", "at a marker", "a marker that cannot", "reformats files"];
        let changes =
            page.split("## What you have to change").nth(1).and_then(|rest| rest.split("\n## ").next());
        let rows: Vec<&str> =
            changes.unwrap().lines().filter(|line| line.starts_with("| ")).skip(2).collect();
        assert!(rows.len() > 10, "{rows:?}");
        let differences = differences_of_one();
        for row in rows {
            let is_general = general.iter().any(|start| row[2..].starts_with(start));
            let is_reported = differences.iter().any(|(.., written)| row.contains(written));
            assert!(is_general || is_reported, "no Pipeline is reported for this row: {row}");
        }
    }
}
