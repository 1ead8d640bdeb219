//! `sluice crds`: prints the custom resource definitions and the admission policy of this version.

use std::io;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use sluice_api::promotion::user_policy;

use crate::exit::Outcome;
use crate::output;
use crate::terminal::Io;

/// Arguments of `sluice crds`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Install them, or upgrade them to this version
  sluice crds | kubectl apply --server-side -f -

  # Keep them in git, for Flux to apply
  sluice crds > crds.yaml

  # For Kubernetes before 1.30, which has no ValidatingAdmissionPolicy
  sluice crds --no-policy | kubectl apply --server-side -f -")]
pub struct Crds {
    /// Leave out the admission policy, which decides who may approve
    #[arg(long)]
    no_policy: bool,
}

pub(crate) fn run(args: &Crds, io: &mut Io<'_>) -> Outcome {
    for crd in sluice_api::all_crds() {
        document(crd, io)?;
    }
    if !args.no_policy {
        document(user_policy::policy(), io)?;
        document(user_policy::binding(), io)?;
    }
    Ok(())
}

fn document(object: impl Serialize, io: &mut Io<'_>) -> io::Result<()> {
    let mut value = serde_json::to_value(object).map_err(io::Error::other)?;
    prune(&mut value);
    writeln!(io.out, "---")?;
    io.out.write_all(output::yaml(&value)?.as_bytes())
}

/// Removes nulls, because `kubectl apply` removes a field whose value is null.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    fn printed(no_policy: bool) -> Vec<String> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = Io { out: &mut out, err: &mut err, color: false, terminal: None, err_width: None };
        run(&Crds { no_policy }, &mut io).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains(": null") && !text.contains(": ~"));
        text.split("---\n").filter(|d| !d.is_empty()).map(String::from).collect()
    }

    #[test]
    fn the_documents_are_the_definitions_and_the_policy() {
        let documents = printed(false);
        let crds: Vec<CustomResourceDefinition> =
            documents.iter().take(2).map(|d| serde_saphyr::from_str(d).unwrap()).collect();
        assert_eq!(crds, sluice_api::all_crds());
        let policy: ValidatingAdmissionPolicy = serde_saphyr::from_str(&documents[2]).unwrap();
        let binding: ValidatingAdmissionPolicyBinding = serde_saphyr::from_str(&documents[3]).unwrap();
        assert_eq!((policy, binding), (user_policy::policy(), user_policy::binding()));
        assert_eq!(printed(true), documents[..2]);
    }
}
