//! Commit statuses: how a promotion goes, reported on the commit that its merged change request has left on the base.
//! They are news, as events are: they delay, fail and repeat no promotion. What is reported follows from the record
//! alone, and nothing is stored about it: after a restart, what is in hand or ended lately is reported again.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use sluice_api::promotion::{Phase, Promotion};
use sluice_delivery::{ChangeRequest, Delivery, DeliveryError, Order, Permit, Progress, Retry};

use super::jobs::On;
use super::{ActError, order};
use crate::engine::Engine;
use crate::intake::PipelineKey;
use crate::metrics::Metrics;
use crate::translate;

/// How long after its end a promotion is reported that this process has not reported yet.
const ENDED_LATELY: SignedDuration = SignedDuration::from_mins(10);

/// What was last reported of a promotion, or is being reported.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    progress: Progress,
    round: u32,
    /// Taken back when there is something newer to report.
    permit: Permit,
}

impl Engine {
    /// Reports what the records say and was not reported yet, where the strategy asks for it. Records that are not as
    /// Sluice wrote them tell nothing.
    pub(crate) fn report(&mut self, key: &PipelineKey, tampered: &BTreeMap<String, String>, now: Timestamp) {
        let (Some(entry), Some(records)) = (self.pipelines.get(key), self.promotions.get(key)) else {
            return;
        };
        let due = records.iter().filter(|(name, _)| !tampered.contains_key(*name));
        let due = due.filter_map(|(name, record)| {
            let (progress, words) = wanted(&record.object, now)?;
            let round = record.object.status.as_ref().map_or(0, |status| status.round);
            let is_told =
                record.reported.as_ref().is_some_and(|r| (r.progress, r.round) == (progress, round));
            let is_due = !is_told && order::may_report(&entry.object, &record.object);
            is_due.then(|| (name.clone(), progress, words, round))
        });
        let due: Vec<_> = due.collect();
        for (name, progress, words, round) in due {
            let Some(job) = self.job(key, &name, On::Request) else { continue };
            let asked = job.strategy.pull_request.as_ref().is_some_and(|s| s.commit_statuses);
            let Some(request) = job.request().filter(|_| asked) else { continue };
            let reported = Reported { progress, round, permit: job.order.permit.clone() };
            let record = self.promotions.get_mut(key).and_then(|records| records.get_mut(&name));
            if let Some(before) = record.and_then(|record| record.reported.replace(reported)) {
                before.permit.revoke();
            }
            self.send_report(Report {
                key: key.clone(),
                promotion: name,
                order: job.order,
                secret: job.secret,
                request,
                progress,
                words,
                client: self.hub.clone(),
                delivery: self.delivery.clone(),
                metrics: self.metrics.clone(),
            });
        }
    }

    fn send_report(&self, report: Report) {
        let report = Arc::new(report);
        let sender = report.clone();
        let attempt = move |is_last| {
            let report = sender.clone();
            async move { report.send(is_last).await }
        };
        if !self.reports.send(report.key.to_string(), attempt) {
            report.given_up("too many wait for their forge");
        }
    }
}

/// What the record of a promotion has to report, if it was delivered by a merge.
fn wanted(promotion: &Promotion, now: Timestamp) -> Option<(Progress, String)> {
    let (spec, status) = (&promotion.spec, promotion.status.as_ref()?);
    let merged = status.change_request.as_ref().is_some_and(|request| request.state == "merged");
    if !merged || !status.times.contains_key("Delivered") {
        return None;
    }
    let (place, revision) = (spec.place(), &spec.revision);
    if status.phase == Phase::Delivered {
        return Some((Progress::Pending, format!("waits until {place} runs {revision} and is healthy")));
    }
    let ended: Timestamp = status.times.get(&status.phase.to_string())?.parse().ok()?;
    if !translate::phase(status.phase).has_ended() || now.duration_since(ended) > ENDED_LATELY {
        return None;
    }
    Some(match status.phase {
        Phase::Succeeded => (Progress::Success, format!("{place} runs {revision} and is healthy")),
        _ => (Progress::Failure, status.message.clone()),
    })
}

/// A report that is on its way.
struct Report {
    key: PipelineKey,
    promotion: String,
    order: Order,
    secret: Option<String>,
    request: ChangeRequest,
    progress: Progress,
    words: String,
    client: Client,
    delivery: Delivery,
    metrics: Arc<Metrics>,
}

impl Report {
    /// Tries to send it. On failure returns when to try again; logs it if there is no further try.
    async fn send(&self, is_last: bool) -> Result<(), Retry> {
        let Err(error) = self.attempt().await else { return Ok(()) };
        let again = again(&error);
        if matches!(error, ActError::Delivery(DeliveryError::Revoked)) {
            // There is something newer to report, or another replica does.
        } else if is_last || again == Retry::OnChange {
            self.given_up(error);
        } else {
            let (pipeline, promotion) = (&self.key, &self.promotion);
            tracing::warn!(%pipeline, promotion, %error, "cannot report a commit status; it is tried again");
        }
        Err(again)
    }

    async fn attempt(&self) -> Result<(), ActError> {
        let Self { client, key, order, secret, .. } = self;
        let credentials = order::credentials(client, &key.namespace, &order.strategy, secret.clone()).await?;
        let order = Order { credentials, ..order.clone() };
        Ok(self.delivery.report(&order, &self.request, self.progress, &self.words).await?)
    }

    fn given_up(&self, why: impl std::fmt::Display) {
        self.metrics.failed("CommitStatusFailed");
        let (pipeline, promotion) = (&self.key, &self.promotion);
        tracing::error!(%pipeline, promotion, error = %why, "a commit status is given up; the promotion goes on");
    }
}

/// When it is worth another try: when the forge may answer then. What it has refused it would refuse again.
fn again(error: &ActError) -> Retry {
    match error {
        ActError::Secret(_) => Retry::Soon,
        ActError::Delivery(error) => match (error.retry(), error.reason()) {
            (at @ Retry::At(_), _) => at,
            (_, "Unreachable" | "Timeout") => Retry::Soon,
            _ => Retry::OnChange,
        },
        ActError::NoSecret(_) | ActError::Locked(_) | ActError::Died(_) | ActError::Event(_) => {
            Retry::OnChange
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use sluice_delivery::clock;
    use sluice_testkit::Scratch;

    use super::*;
    use crate::engine::Record;
    use crate::engine::tests::engine;

    const NOW: &str = "2026-01-02T03:00:00Z";

    fn key() -> PipelineKey {
        PipelineKey { namespace: "apps".into(), name: "podinfo".into() }
    }

    fn strategy(reports: bool) -> Value {
        json!({"type": "github", "url": "https://git.example.com/acme/fleet.git", "secretRef": {"name": "s"},
            "commitStatuses": reports})
    }

    /// A promotion in this phase since then, and its change request in this state.
    fn promotion(phase: &str, since: &str, request: &str, reports: bool) -> Promotion {
        let request = json!({"number": 1, "url": "https://git.example.com/1", "state": request,
            "branch": "sluice/apps/podinfo/prod", "headCommit": "c", "strategy": strategy(reports)});
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod", "namespace": "apps"},
            "spec": {"pipeline": "podinfo", "environment": "prod", "revision": "6.1.8",
                "facets": {"HelmRelease/a:chart": "6.1.8"}},
            "status": {"phase": phase, "message": "it crashes", "changeRequest": request,
                "times": {"Delivered": NOW, phase: since}}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_was_merged_is_reported_until_it_has_ended_and_a_while_after() {
        let (late, now) = ("2026-01-02T02:00:00Z", NOW.parse().unwrap());
        let pending = Some((Progress::Pending, "waits until prod runs 6.1.8 and is healthy"));
        let failed = Some((Progress::Failure, "it crashes"));
        for (phase, since, request, expected) in [
            ("Delivered", NOW, "merged", pending),
            ("Delivered", late, "merged", pending),
            ("Succeeded", NOW, "merged", Some((Progress::Success, "prod runs 6.1.8 and is healthy"))),
            ("Succeeded", late, "merged", None),
            ("Failed", NOW, "merged", failed),
            ("Superseded", NOW, "merged", failed),
            ("Cancelled", late, "merged", None),
            ("Proposed", NOW, "open", None),
            ("Succeeded", NOW, "withdrawn", None),
            ("Rejected", NOW, "closed", None),
            // What was merged did not bring it: it is being delivered again.
            ("Promoting", NOW, "merged", None),
        ] {
            let told = wanted(&promotion(phase, since, request, true), now);
            let told = told.as_ref().map(|(progress, words)| (*progress, words.as_str()));
            assert_eq!(told, expected, "{phase} {since} {request}");
        }
        let mut missed = promotion("Superseded", NOW, "merged", true);
        missed.status.as_mut().unwrap().times.remove("Delivered");
        assert_eq!(wanted(&missed, now), None);
    }

    fn put(engine: &mut Engine, object: Promotion) {
        let (object, reported) = (Arc::new(object), engine.promotions.get(&key()));
        let reported = reported.and_then(|r| r["podinfo-prod"].reported.clone());
        let (said, key_approval) = Default::default();
        let (read_at, version) = (1, 1);
        let record =
            Record { object, stored: true, said, key_approval, first: false, read_at, version, reported };
        engine.promotions.entry(key()).or_default().insert("podinfo-prod".into(), record);
    }

    /// What a turn reports.
    fn reported(engine: &mut Engine) -> Option<Reported> {
        engine.report(&key(), &BTreeMap::new(), NOW.parse().unwrap());
        engine.promotions[&key()]["podinfo-prod"].reported.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_fails_is_counted_and_changes_nothing() {
        let scratch = Scratch::new("reports").unwrap();
        for reports in [false, true] {
            let mut engine = engine(&scratch);
            let pipeline = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
                "metadata": {"name": "podinfo", "namespace": "apps", "uid": "u", "resourceVersion": "1"},
                "spec": {"environments": [{"name": "prod", "targets": [{"namespace": "podinfo"}]}],
                    "promotion": {"strategy": {"pull-request": strategy(reports)}}}});
            engine.put_pipeline(serde_json::from_value(pipeline).unwrap());
            let delivered = promotion("Delivered", NOW, "merged", reports);
            put(&mut engine, delivered.clone());
            let Some(first) = reported(&mut engine) else {
                assert!(!reports);
                continue;
            };
            assert!(reports && first.progress == Progress::Pending && first.permit.check().is_ok());
            // Nobody listens where the Secret would be.
            let failures = "sluice_promotion_failures_total{reason=\"CommitStatusFailed\"} 1";
            let given_up = async {
                while !engine.metrics.render().contains(failures) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(600), given_up).await.unwrap();
            assert_eq!(*engine.promotions[&key()]["podinfo-prod"].object, delivered);
            assert!(engine.under_way.is_empty());
            // Not again, until there is something else to say; what is on its way then is not sent any more.
            reported(&mut engine).unwrap();
            assert!(first.permit.check().is_ok());
            put(&mut engine, promotion("Succeeded", NOW, "merged", reports));
            assert_eq!(reported(&mut engine).unwrap().progress, Progress::Success);
            assert!(first.permit.check().is_err());
        }
    }

    #[test]
    fn what_a_forge_has_refused_is_not_tried_again() {
        let forge = "git.example.com".to_string();
        let limited = sluice_delivery::ForgeError::RateLimited { forge: forge.clone(), until: clock::now() };
        let at = Retry::At(clock::now());
        let refused = |status| {
            let (forge, says) = (forge.clone(), String::new());
            sluice_delivery::ForgeError::Refused { forge, status, says }
        };
        let (forge, says) = (forge.clone(), String::new());
        let unreachable = sluice_delivery::ForgeError::Unreachable { forge, says };
        for (error, expected) in [(limited, at), (refused(422), Retry::OnChange), (unreachable, Retry::Soon)]
        {
            let is = again(&ActError::Delivery(DeliveryError::Forge(error)));
            assert_eq!(std::mem::discriminant(&is), std::mem::discriminant(&expected));
        }
    }
}
