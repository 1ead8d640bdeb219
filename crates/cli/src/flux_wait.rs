//! `--wait` of `sluice reconcile`: waits until Flux has reconciled the objects, as `flux reconcile` does. It reads each
//! object again and again, and so needs no right to watch them.

use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::Value;
use sluice_view::object_name::FluxName;
use tokio::time::{Instant, sleep_until};

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::terminal::{Io, Symbol};
use crate::wait::LongestWait;

/// The time between two reads of an object.
const PAUSE: Duration = Duration::from_secs(1);

/// The flags of commands that can wait for Flux.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FluxWaitFlags {
    /// Wait until Flux has reconciled the sources and objects on this cluster
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    longest: LongestWait,
}

/// What Flux says about a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Flux has not reconciled the object yet.
    Waiting(String),
    /// Flux has reconciled the object.
    Ready,
    /// Flux could not reconcile the object.
    Failed(String),
}

impl FluxWaitFlags {
    /// Returns a wait that begins now; `None` without `--wait`.
    pub(crate) fn begin(self) -> Option<FluxWait> {
        let end = Instant::now().checked_add(self.longest.duration());
        self.wait.then_some(FluxWait { timeout: self.longest.timeout, end })
    }
}

/// A wait with a common end for all objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FluxWait {
    timeout: SignedDuration,
    /// When the time is up; `None` if it is too far away.
    end: Option<Instant>,
}

impl FluxWait {
    /// Waits until Flux has handled the request with this token at an object.
    ///
    /// # Errors
    /// Flux could not reconcile the object, the time is up, or the object cannot be read.
    pub(crate) async fn until_reconciled(
        &self,
        connection: &Connection,
        (named, api): (&FluxName, &Api<DynamicObject>),
        token: &str,
        io: &mut Io<'_>,
    ) -> Outcome {
        loop {
            let state = match api.get(&named.name).await {
                Ok(object) => match answer(&object, token) {
                    Answer::Ready => {
                        io.progress(Symbol::Done, &format!("reconciled: {named}"));
                        return Ok(());
                    }
                    Answer::Failed(message) => {
                        let why = format!("Flux could not reconcile it: {message}");
                        return Err(Failure::new(Exit::Ended, why));
                    }
                    Answer::Waiting(state) => state,
                },
                // Another try would be refused, too.
                Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                    return Err(connection.explain(kube::Error::Api(status)));
                }
                Err(error) => connection.explain(error).message,
            };
            let next = Instant::now() + PAUSE;
            if self.end.is_some_and(|end| end < next) {
                let message = format!("the time is up after {:#}: {state}", self.timeout);
                let FluxName { kind, namespace, name } = named;
                let kind = kind.to_ascii_lowercase();
                let hint =
                    format!("Flux continues; see how far it is: kubectl get {kind} {name} -n {namespace}");
                return Err(Failure::new(Exit::TimedOut, message).hinted(hint));
            }
            sleep_until(next).await;
        }
    }
}

/// Returns what Flux says about a request. Flux writes the token into the status at the end of a reconciliation
/// ([annotations.go](https://github.com/fluxcd/pkg/blob/main/apis/meta/annotations.go)).
fn answer(object: &DynamicObject, token: &str) -> Answer {
    let status = &object.data["status"];
    let conditions = || status["conditions"].as_array().into_iter().flatten();
    let condition = |kind: &str| conditions().find(|condition| condition["type"] == kind);
    let text = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    if status["lastHandledReconcileAt"] != token {
        return Answer::Waiting("Flux has not reconciled it yet".into());
    }
    let is_busy = condition("Reconciling").is_some_and(|condition| condition["status"] == "True");
    match condition("Ready") {
        // Flux tries again, so that it may also be reconciling.
        Some(ready) if ready["status"] == "False" => Answer::Failed(text(ready)),
        Some(ready) if ready["status"] == "True" && !is_busy => Answer::Ready,
        Some(ready) => Answer::Waiting(text(ready)),
        None => Answer::Waiting("Flux has not written its condition Ready yet".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_answer_to_this_request_counts() {
        let ready = |status: &str| json!({"type": "Ready", "status": status, "message": "why"});
        let busy = |reason: &str| json!({"type": "Reconciling", "status": "True", "reason": reason});
        let waiting = |why: &str| Answer::Waiting(why.into());
        for (handled, conditions, expected) in [
            ("before", json!([ready("True")]), waiting("Flux has not reconciled it yet")),
            ("before", json!([ready("False")]), waiting("Flux has not reconciled it yet")),
            ("now", json!([]), waiting("Flux has not written its condition Ready yet")),
            ("now", json!([ready("Unknown"), busy("Progressing")]), waiting("why")),
            ("now", json!([ready("True"), busy("Progressing")]), waiting("why")),
            ("now", json!([ready("False"), busy("ProgressingWithRetry")]), Answer::Failed("why".into())),
            ("now", json!([ready("True")]), Answer::Ready),
        ] {
            let status = json!({"lastHandledReconcileAt": handled, "conditions": conditions});
            let object: DynamicObject =
                serde_json::from_value(json!({"metadata": {"name": "podinfo"}, "status": status})).unwrap();
            assert_eq!(answer(&object, "now"), expected, "{status}");
        }
    }
}
