//! Sets `spec.suspend` of pipelines, for `sluice suspend` and `sluice resume`.

use clap::Args;
use clap_complete::ArgValueCompleter;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use sluice_api::Pipeline;
use sluice_api::lenient::List;

use crate::cluster_flags::ClusterFlags;
use crate::connection::{API_CALL_TIMEOUT, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find::missing;
use crate::name_completion::pipelines;
use crate::object_argument;
use crate::objects;
use crate::promotion_change::FIELD_MANAGER;
use crate::terminal::{Io, Symbol};

/// The field manager of Flux's kustomize-controller, which sets fields back to what git has
/// ([main.go](https://github.com/fluxcd/kustomize-controller/blob/v1.9.6/main.go), `controllerName`).
const FLUX_MANAGER: &str = "kustomize-controller";

/// The pipelines of a command that stops or continues promotions.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChosenPipelines {
    /// The pipelines
    #[arg(value_parser = object_argument::pipeline, add = ArgValueCompleter::new(pipelines), required_unless_present_any = ["all", "selector"])]
    names: Vec<String>,
    /// All pipelines of the namespace
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    all: bool,
    /// All pipelines of the namespace with these labels
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    selector: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Suspends pipelines, or resumes them.
pub(crate) async fn run(args: &ChosenPipelines, suspend: bool, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let chosen = chosen(&connection, args, io).await?;
    if chosen.is_empty() {
        return Err(Failure::new(Exit::NotFound, "no pipeline matches"));
    }
    let mut failed = None;
    for pipeline in chosen {
        match set(&connection, &pipeline, suspend).await {
            Ok(true) => done(&pipeline, suspend, io),
            Ok(false) => {
                let state = if suspend { "suspended" } else { "not suspended" };
                io.progress(Symbol::Done, &format!("pipeline {} is {state} already", pipeline.name_any()));
            }
            Err(failure) => {
                io.fail(&failure);
                failed = Some(failure.exit);
            }
        }
    }
    match failed {
        Some(exit) => Err(Failure::new(exit, "")),
        None => Ok(()),
    }
}

async fn chosen(connection: &Connection, args: &ChosenPipelines, io: &mut Io<'_>) -> Outcome<Vec<Pipeline>> {
    if args.all || args.selector.is_some() {
        let params = match &args.selector {
            Some(labels) => ListParams::default().labels(labels),
            None => ListParams::default(),
        };
        let here = Some(connection.namespace.as_str());
        let List { items, unreadable } = objects::list::<Pipeline>(connection, here, &params).await?;
        objects::warn::<Pipeline, _>(unreadable.iter(), io);
        return Ok(items);
    }
    let mut chosen = Vec::new();
    for name in &args.names {
        match objects::get::<Pipeline>(connection, &connection.namespace, name).await? {
            Some(pipeline) => chosen.push(pipeline),
            None => return Err(missing::<Pipeline>(connection, name, false).await),
        }
    }
    Ok(chosen)
}

/// Sets the field. Returns false if it has the value already.
async fn set(connection: &Connection, pipeline: &Pipeline, suspend: bool) -> Outcome<bool> {
    if pipeline.spec.suspend == suspend {
        return Ok(false);
    }
    let api: Api<Pipeline> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    let patched = api.patch(&pipeline.name_any(), &params, &patch).await;
    patched.map(|_| true).map_err(|error| connection.explain(error))
}

fn done(pipeline: &Pipeline, suspend: bool, io: &mut Io<'_>) {
    let word = if suspend { "suspended" } else { "resumed" };
    io.progress(Symbol::Done, &format!("pipeline {} {word}", pipeline.name_any()));
    if is_set_by_flux(pipeline) {
        io.progress(
            Symbol::Waiting,
            "git sets spec.suspend of this Pipeline, and Flux will apply that again: change it in git as well",
        );
    }
}

/// Returns true if Flux applies `spec.suspend` of a Pipeline from git.
fn is_set_by_flux(pipeline: &Pipeline) -> bool {
    pipeline.managed_fields().iter().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        entry.manager.as_deref() == Some(FLUX_MANAGER)
            && fields.is_some_and(|fields| fields["f:spec"].get("f:suspend").is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_field_that_flux_applies_counts_as_set_in_git() {
        let pipeline = |manager: &str, fields: serde_json::Value| -> Pipeline {
            serde_json::from_value(json!({
                "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
                "metadata": {"name": "p", "managedFields": [{"manager": manager, "operation": "Apply",
                    "apiVersion": "pipelines.weave.works/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": fields}]},
                "spec": {"environments": []},
            }))
            .unwrap()
        };
        let suspend = json!({"f:spec": {"f:suspend": {}}});
        assert!(is_set_by_flux(&pipeline("kustomize-controller", suspend.clone())));
        assert!(!is_set_by_flux(&pipeline("kubectl", suspend)));
        assert!(!is_set_by_flux(&pipeline(
            "kustomize-controller",
            json!({"f:spec": {"f:environments": {}}})
        )));
    }
}
