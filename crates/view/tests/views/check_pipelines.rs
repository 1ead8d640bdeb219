//! The findings of `sluice check` about pipelines and their promotions.

use serde_json::json;
use sluice_api::{Pipeline, Promotion};
use sluice_view::check::Reading;
use sluice_view::check::pipelines::{self, Pipelines};

use crate::check::troubles;
use crate::fixture::{pipeline, promotion, runs};

#[test]
fn a_pipeline_without_a_fresh_status_is_found() {
    let good = pipeline(json!({"dev": runs("dev", "6.1.8", "Ready")}));
    let condition = |pipeline: &mut Pipeline, type_: &str, status: &str, reason: &str, message: &str| {
        let mut condition = good.status.as_ref().unwrap().conditions[0].clone();
        (condition.type_, condition.status) = (type_.into(), status.into());
        (condition.reason, condition.message) = (reason.into(), message.into());
        let conditions = &mut pipeline.status.as_mut().unwrap().conditions;
        conditions.retain(|old| old.type_ != condition.type_);
        conditions.push(condition);
    };
    let mut changed = good.clone();
    changed.metadata.generation = Some(3);
    let mut suspended = good.clone();
    suspended.spec.suspend = true;
    condition(&mut suspended, "Ready", "False", "Suspended", "the pipeline is suspended");
    let mut broken = good.clone();
    condition(&mut broken, "Ready", "False", "TargetsUnknown", "cluster eu cannot be reached");
    condition(&mut broken, "HookSecretInvalid", "True", "KeysMissing", "Secret hooks has no key");
    let mut fresh = good.clone();
    fresh.status = None;
    let found = |all: &[Pipeline], unreadable: Vec<String>| {
        let promotions = Reading::Known(vec![]);
        let found = Reading::Known((all, unreadable));
        let facts = Pipelines { namespace: Some("apps".into()), found, promotions };
        pipelines::findings(&facts)
    };
    let all = [good.clone(), changed, suspended, broken, fresh];
    let findings = found(&all, vec!["pipeline apps/odd cannot be read: no spec".into()]);
    insta::assert_snapshot!(troubles(&findings), @"
    Error: pipeline apps/odd cannot be read: no spec ► docs/troubleshooting.md#objects-that-cannot-be-read
    Warning: the status of pipeline apps/podinfo is about generation 2, and the Pipeline has generation 3 ► if this lasts: kubectl logs -n sluice-system deployment/sluice
    Warning: pipeline apps/podinfo is suspended: nothing is promoted ► sluice resume podinfo -n apps
    Error: pipeline apps/podinfo is not Ready (TargetsUnknown): cluster eu cannot be reached ► sluice explain podinfo -n apps
    Error: pipeline apps/podinfo (KeysMissing): Secret hooks has no key ► docs/hook-server.md#when-the-secret-is-wrong
    Error: pipeline apps/podinfo has no status: no controller has looked at it ► see the findings about the controller
    ");
    assert_eq!(
        findings.last().unwrap().message,
        "1 of 5 pipelines in namespace apps are Ready, and their statuses are up to date"
    );
    assert_eq!(found(&[], vec![])[0].message, "there are no pipelines in namespace apps");
}

#[test]
fn a_promotion_that_cannot_be_delivered_is_an_error() {
    let all =
        [pipeline(json!({"dev": runs("dev", "6.1.8", "Ready"), "prod": runs("prod", "6.1.5", "Ready")}))];
    let found = |promotions: Reading<Vec<Promotion>>| {
        let found = Reading::Known((&all[..], vec![]));
        troubles(&pipelines::findings(&Pipelines { namespace: None, found, promotions }))
    };
    let failing = |environment: &str, phase: &str, reason: &str, message: &str, attempts: u32| {
        let status = json!({"phase": phase, "reason": reason, "message": message, "attempts": attempts});
        promotion(environment, 1, status)
    };
    let mut elsewhere = failing("prod", "Failed", "Unhealthy", "prod did not become healthy", 1);
    elsewhere.metadata.namespace = Some("other".into());
    let promotions = vec![
        failing(
            "staging",
            "Promoting",
            "AuthenticationFailed",
            "the server does not accept the credentials",
            3,
        ),
        failing("prod", "Failed", "Unhealthy", "prod did not become healthy", 1),
        elsewhere,
    ];
    insta::assert_snapshot!(found(Reading::Known(promotions)), @"
    Error: the delivery of 6.1.8 into staging of pipeline apps/podinfo fails (AuthenticationFailed, tried 3 times): the server does not accept the credentials ► sluice explain podinfo -n apps -e staging
    Error: the promotion of 6.1.8 into prod of pipeline apps/podinfo has failed (Unhealthy): prod did not become healthy ► sluice explain podinfo -n apps -e prod
    ");
    let moving = vec![
        failing("staging", "Promoting", "", "", 0),
        failing("prod", "Proposed", "Open", "waits for the merge", 1),
    ];
    assert_eq!(found(Reading::Known(moving)), "");
    insta::assert_snapshot!(found(Reading::Forbidden("list on promotions".into())), @"
    Warning: not checked: promotions; you lack list on promotions ► run the check as somebody with this right, or ask the cluster's administrator for it
    ");
}
