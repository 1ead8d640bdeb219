//! Messages for the errors of an API server, with what to do about each.

use kube::core::Status;
use sluice_api::lenient::is_missing_object;
use sluice_api::too_large::is_too_large;

use crate::exit::{Exit, Failure};

/// The message if Sluice's custom resource definitions are not installed.
const NO_CRDS: &str = "Sluice's custom resource definitions are not installed in the cluster";

/// The text that Kubernetes writes before the message of a ValidatingAdmissionPolicy
/// ([validation.go](https://github.com/kubernetes/kubernetes/blob/v1.33.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go),
/// `Validate`).
const DENIED: &str = " denied request: ";

/// Returns the failure for an error of the client.
pub(crate) fn failure(error: kube::Error, server: &str) -> Failure {
    match error {
        kube::Error::Api(status) => status_failure(&status),
        kube::Error::Auth(cause) => {
            Failure::new(Exit::Cluster, format!("cannot log in to {server}: {}", innermost(&cause)))
                .hinted("check the user of this context in your kubeconfig, or log in again")
        }
        kube::Error::SerdeError(cause) => {
            Failure::new(Exit::Error, format!("cannot read the answer of {server}: {cause}")).hinted(
                "the definitions in the cluster may be of another version: compare with `sluice crds`",
            )
        }
        kube::Error::Service(cause) => unreachable(cause.as_ref(), server),
        kube::Error::HyperError(cause) => unreachable(&cause, server),
        kube::Error::ReadEvents(cause) => unreachable(&cause, server),
        other => Failure::new(Exit::Cluster, format!("cannot talk to {server}: {other}")),
    }
}

fn status_failure(status: &Status) -> Failure {
    let said = status.message.trim();
    match status.code {
        401 => Failure::new(Exit::Cluster, "the cluster does not accept your credentials")
            .hinted("check the user of this context in your kubeconfig, or log in again"),
        // Only the policy's own message is shown, without the text that Kubernetes writes before it.
        403 | 422 if said.contains(DENIED) => {
            let why = said.rsplit_once(DENIED).map_or(said, |(_, why)| why);
            Failure::new(Exit::Refused, why).hinted(
                "kubectl auth whoami shows who you are; ask the cluster's administrator for the permission",
            )
        }
        403 => {
            let hint = match said.contains("at the cluster scope") {
                true => {
                    "name a namespace with -n in place of -A, or ask the cluster's administrator to allow it"
                }
                false => {
                    "ask the cluster's administrator to allow it; kubectl auth can-i --list shows what you may do"
                }
            };
            Failure::new(Exit::Cluster, format!("not allowed: {said}")).hinted(hint)
        }
        400 if said.contains("expected: ") => {
            Failure::new(Exit::Usage, format!("the labels cannot be read: {said}"))
                .hinted("write them as app=podinfo,team!=web or 'team in (web, sales)'")
        }
        404 if is_missing_object(status) => Failure::new(Exit::NotFound, said),
        404 => Failure::new(Exit::Cluster, NO_CRDS)
            .hinted("install them: sluice crds | kubectl apply --server-side -f -"),
        _ if is_too_large(status) => {
            Failure::new(Exit::Error, "the object would be larger than the cluster stores")
                .hinted("remove labels and annotations that it does not need: kubectl label KIND NAME KEY-")
        }
        _ if said.is_empty() => Failure::new(Exit::Error, format!("the cluster answered {}", status.code)),
        _ => Failure::new(Exit::Error, format!("the cluster refused: {said}")),
    }
}

fn unreachable(error: &(dyn std::error::Error + 'static), server: &str) -> Failure {
    let cause = innermost(error);
    let hint = match cause.to_ascii_lowercase() {
        c if c.contains("certificate") => {
            "the certificate authority of this cluster in your kubeconfig does not fit: was the cluster re-created?"
        }
        _ => {
            "check that the cluster runs, that the address in your kubeconfig is right, and that you are in its network"
        }
    };
    Failure::new(Exit::Cluster, format!("cannot reach {server}: {cause}")).hinted(hint)
}

/// Returns the innermost cause of an error: the outer ones only repeat each other.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;

    fn said(code: u16, message: &str, name: &str) -> Failure {
        let details = StatusDetails {
            name: name.into(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        let status = Status::failure(message, "").with_code(code).with_details(details);
        failure(kube::Error::Api(status.boxed()), "https://k")
    }

    #[test]
    fn each_status_has_a_message_and_an_exit_code() {
        assert_eq!(said(401, "Unauthorized", "").exit, Exit::Cluster);
        assert_eq!(said(403, "User bob cannot", "").message, "not allowed: User bob cannot");
        assert_eq!(said(404, "pipelines x not found", "x").exit, Exit::NotFound);
        assert_eq!(said(500, "", "").message, "the cluster answered 500");
        assert_eq!(said(422, "spec.x is wrong", "x").message, "the cluster refused: spec.x is wrong");
        let large = said(500, "etcdserver: request is too large", "");
        assert!(large.message.contains("larger than the cluster stores"), "{}", large.message);
        assert!(large.hint.unwrap().contains("kubectl label"));
    }

    #[test]
    fn a_missing_kind_names_the_command_that_installs_it() {
        let failure = said(404, "404 page not found", "");
        assert_eq!(failure.exit, Exit::Cluster);
        assert!(failure.hint.unwrap().contains("sluice crds | kubectl apply"));
    }
}
