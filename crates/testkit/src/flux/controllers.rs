//! The wiring: which watch leads to which part, and which source concerns whom.

use super::world::World;
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

/// How soon a watch or a piece of work that failed is tried again.
const RETRY: Duration = Duration::from_millis(300);

/// Runs all parts until the future is dropped.
pub(crate) async fn run(world: Arc<World>) {
    let git = controller(&world, &kind::source("GitRepository"));
    let oci = controller(&world, &kind::source("OCIRepository"));
    let repositories = controller(&world, &kind::source("HelmRepository"));
    let deployments = controller(&world, &kind::deployment());
    let kustomizations = controller(&world, &kind::kustomization());
    let kustomizations = following(kustomizations, &world, &kind::kustomization());
    let releases = following(controller(&world, &kind::helm_release()), &world, &kind::helm_release());
    tokio::join!(
        drive(git, &world, |object, world| async move { source::git(&object, &world).await }),
        drive(oci, &world, |object, world| async move { source::oci(&object, &world).await }),
        drive(repositories, &world, |object, world| async move { source::helm(&object, &world).await }),
        drive(
            deployments,
            &world,
            |object, world| async move { deployment::reconcile(&object, &world).await }
        ),
        drive(kustomizations, &world, |object, world| async move {
            kustomization::reconcile(&object, &world).await
        }),
        drive(releases, &world, |object, world| async move { helm::reconcile(&object, &world).await }),
    );
}

fn controller(world: &World, resource: &ApiResource) -> Controller<DynamicObject> {
    Controller::new_with(world.watched(resource), watcher::Config::default(), resource.clone())
        .trigger_backoff(Steady)
}

/// Lets a controller look again at what names a source when that source has changed.
fn following(
    mut controller: Controller<DynamicObject>,
    world: &World,
    resource: &ApiResource,
) -> Controller<DynamicObject> {
    for kind in ["GitRepository", "OCIRepository"] {
        let api = world.watched(&kind::source(kind));
        let (store, resource) = (controller.store(), resource.clone());
        let concerned = move |source: DynamicObject| concerned(&store, &resource, kind, &source);
        let config = watcher::Config::default();
        controller = controller.watches_with(api, kind::source(kind), config, concerned);
    }
    controller
}

fn concerned(
    store: &Store<DynamicObject>,
    resource: &ApiResource,
    kind: &str,
    source: &DynamicObject,
) -> Vec<ObjectRef<DynamicObject>> {
    let (namespace, name) = (source.namespace(), source.name_any());
    let names_it = |object: &DynamicObject, reference: &Value| {
        let of_kind = reference["kind"] == kind && reference["name"] == name.as_str();
        let elsewhere = reference["namespace"].as_str().map(str::to_owned);
        of_kind && elsewhere.or_else(|| object.namespace()) == namespace
    };
    let objects = store.state().into_iter();
    let hit = objects.filter(|object| {
        let spec = &object.data["spec"];
        let references = [&spec["sourceRef"], &spec["chartRef"], &spec["chart"]["spec"]["sourceRef"]];
        references.into_iter().any(|reference| names_it(object, reference))
    });
    hit.map(|object| ObjectRef::from_obj_with(&*object, resource.clone())).collect()
}

/// Runs one controller. What fails is tried again; a test sees in the status what went wrong.
async fn drive<F, Fut>(controller: Controller<DynamicObject>, world: &Arc<World>, reconcile: F)
where
    F: Fn(Arc<DynamicObject>, Arc<World>) -> Fut,
    Fut: Future<Output = Result<Action>> + Send + 'static,
{
    let work = |object: Arc<DynamicObject>, world: Arc<World>| {
        let name = object.name_any();
        let attempt = reconcile(object, world);
        async move {
            Ok::<_, Infallible>(attempt.await.unwrap_or_else(|e| {
                tracing::debug!("stand-in for Flux: {name}: {e:#}");
                Action::requeue(RETRY)
            }))
        }
    };
    let results = controller.run(work, |_, _, _| Action::requeue(RETRY), Arc::clone(world));
    results.for_each(|_| async {}).await;
}

/// Tries a broken watch again at a steady pace: a cluster that comes back is noticed at once.
struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(RETRY)
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}
