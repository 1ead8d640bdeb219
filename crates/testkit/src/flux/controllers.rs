//! Runs the controllers: which watch triggers which one, and which objects use which source.

use super::context::StandInContext;
use super::{deployment, helm, kind, kustomization, source};
use anyhow::Result;
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The delay before a failed watch or reconciliation is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(300);

/// Runs all controllers until the future is dropped.
pub(crate) async fn run(context: Arc<StandInContext>) {
    let git = controller(&context, &kind::source("GitRepository"));
    let oci = controller(&context, &kind::source("OCIRepository"));
    let repositories = controller(&context, &kind::source("HelmRepository"));
    let deployments = controller(&context, &kind::deployment());
    let kustomizations = controller(&context, &kind::kustomization());
    let kustomizations = watching_sources(kustomizations, &context, &kind::kustomization());
    let releases =
        watching_sources(controller(&context, &kind::helm_release()), &context, &kind::helm_release());
    tokio::join!(
        drive(git, &context, |object, context| async move { source::git(&object, &context).await }),
        drive(oci, &context, |object, context| async move { source::oci(&object, &context).await }),
        drive(repositories, &context, |object, context| async move { source::helm(&object, &context).await }),
        drive(deployments, &context, |object, context| async move {
            deployment::reconcile(&object, &context).await
        }),
        drive(kustomizations, &context, |object, context| async move {
            kustomization::reconcile(&object, &context).await
        }),
        drive(releases, &context, |object, context| async move { helm::reconcile(&object, &context).await }),
    );
}

fn controller(context: &StandInContext, resource: &ApiResource) -> Controller<DynamicObject> {
    Controller::new_with(context.watched(resource), watcher::Config::default(), resource.clone())
        .trigger_backoff(ConstantBackoff)
}

/// Makes a controller reconcile the objects of a source when the source changes.
fn watching_sources(
    mut controller: Controller<DynamicObject>,
    context: &StandInContext,
    resource: &ApiResource,
) -> Controller<DynamicObject> {
    for kind in ["GitRepository", "OCIRepository"] {
        let api = context.watched(&kind::source(kind));
        let (store, resource) = (controller.store(), resource.clone());
        let users = move |source: DynamicObject| users_of(&store, &resource, kind, &source);
        let config = watcher::Config::default();
        controller = controller.watches_with(api, kind::source(kind), config, users);
    }
    controller
}

/// Returns the objects that use a source.
fn users_of(
    store: &Store<DynamicObject>,
    resource: &ApiResource,
    kind: &str,
    source: &DynamicObject,
) -> Vec<ObjectRef<DynamicObject>> {
    let (namespace, name) = (source.namespace(), source.name_any());
    let refers_to_source = |object: &DynamicObject, reference: &Value| {
        let same_name = reference["kind"] == kind && reference["name"] == name.as_str();
        let other_namespace = reference["namespace"].as_str().map(str::to_owned);
        same_name && other_namespace.or_else(|| object.namespace()) == namespace
    };
    let objects = store.state().into_iter();
    let users = objects.filter(|object| {
        let spec = &object.data["spec"];
        let references = [&spec["sourceRef"], &spec["chartRef"], &spec["chart"]["spec"]["sourceRef"]];
        references.into_iter().any(|reference| refers_to_source(object, reference))
    });
    users.map(|object| ObjectRef::from_obj_with(&*object, resource.clone())).collect()
}

/// Runs one controller. A failed reconciliation is tried again.
async fn drive<F, Fut>(controller: Controller<DynamicObject>, context: &Arc<StandInContext>, reconcile: F)
where
    F: Fn(Arc<DynamicObject>, Arc<StandInContext>) -> Fut,
    Fut: Future<Output = Result<Action>> + Send + 'static,
{
    let work = |object: Arc<DynamicObject>, context: Arc<StandInContext>| {
        let name = object.name_any();
        let attempt = reconcile(object, context);
        async move {
            Ok::<_, Infallible>(attempt.await.unwrap_or_else(|e| {
                tracing::debug!("stand-in for Flux: {name}: {e:#}");
                Action::requeue(RETRY_DELAY)
            }))
        }
    };
    let results = controller.run(work, |_, _, _| Action::requeue(RETRY_DELAY), Arc::clone(context));
    results.for_each(|_| async {}).await;
}

/// A constant delay before a broken watch is tried again, so that a restarted cluster is noticed soon.
struct ConstantBackoff;

impl Iterator for ConstantBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(RETRY_DELAY)
    }
}

impl Backoff for ConstantBackoff {
    fn reset(&mut self) {}
}
