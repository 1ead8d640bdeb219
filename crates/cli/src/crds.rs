//! `sluice crds`: the custom resource definitions of exactly this version, out of the binary itself.

use std::io;

use clap::Args;
use serde_json::Value;

use crate::exit::Outcome;
use crate::output;
use crate::sign::Io;

/// Arguments of `sluice crds`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Install them, or bring them up to this version
  sluice crds | kubectl apply --server-side -f -

  # Keep them in git, for Flux to apply
  sluice crds > crds.yaml")]
pub struct Crds {}

pub(crate) fn run(_: &Crds, io: &mut Io<'_>) -> Outcome {
    for crd in sluice_api::all_crds() {
        let mut value = serde_json::to_value(crd).map_err(io::Error::other)?;
        prune(&mut value);
        writeln!(io.out, "---")?;
        io.out.write_all(output::yaml(&value)?.as_bytes())?;
    }
    Ok(())
}

/// Takes out what says nothing: nulls, which `kubectl apply` would take for "remove this field".
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
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[test]
    fn the_documents_are_the_definitions() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        run(&Crds {}, &mut Io { out: &mut out, err: &mut err, color: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        let documents: Vec<&str> = text.split("---\n").filter(|d| !d.is_empty()).collect();
        let read: Vec<CustomResourceDefinition> =
            documents.iter().map(|d| serde_saphyr::from_str(d).unwrap()).collect();
        assert_eq!(read, sluice_api::all_crds());
        assert!(!text.contains(": null") && !text.contains(": ~"));
    }
}
