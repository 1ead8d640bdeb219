//! A hub with a controller, a cluster without the kinds of Sluice, and a namespace with a pipeline for each test.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_testkit::{Cluster, ControlPlane, Scratch, eventually, parse_yaml};
use tokio::sync::OnceCell;

use crate::binary::Call;
use crate::cases::{Case, Needs};
use crate::process::Controller;
use crate::releases;

/// How long a test waits for a result.
pub const SOON: Duration = Duration::from_secs(60);
/// The kubeconfig of a user who may do everything on the hub, and has a token.
pub const ADMIN: &str = "admin";
/// The kubeconfig of a user who may do nothing, and has a token.
pub const NOBODY: &str = "nobody";
/// A namespace for roles and accounts.
const PEOPLE: &str = "people";

/// The servers of all tests.
pub struct Servers {
    pub hub: Cluster,
    _bare: Cluster,
    /// The address of the controller's API.
    api: String,
    controller: Controller,
    files: Scratch,
}

static SERVERS: OnceCell<Result<Servers, String>> = OnceCell::const_new();

/// Returns the servers. The first call starts them, on their own thread and runtime, which live longer than its test.
pub async fn servers() -> Result<&'static Servers> {
    let start_apart = async || {
        let (send, receive) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let _ =
                send.send(runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(start())));
        });
        let started = receive.await.map_err(anyhow::Error::from);
        started.and_then(|started| started).map_err(|error| format!("{error:#}"))
    };
    let servers = SERVERS.get_or_init(start_apart).await;
    servers.as_ref().map_err(|error| anyhow!("the servers did not start: {error}"))
}

async fn start() -> Result<Servers> {
    let plane = ControlPlane::start().await?;
    let (hub, bare) = tokio::try_join!(plane.cluster("hub"), plane.cluster("bare"))?;
    hub.install_sluice_crds().await?;
    hub.install_flux_crds().await?;
    hub.namespace(PEOPLE).await?;
    bare.namespace(PEOPLE).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "admin-of-tests"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": PEOPLE}]});
    let admin = hub.service_account(PEOPLE, "admin").await?;
    hub.apply_yaml(&binding.to_string()).await?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let controller = Controller::start(&hub, "", &[&format!("--api-addr={address}"), "--observe=all"])?;
    let files = Scratch::new("commands")?;
    let file = |name: &str, text: &str| std::fs::write(files.path().join(name), text);
    file(ADMIN, &admin)?;
    file("bare", &bare.kubeconfig())?;
    file("away", &admin.replace(&hub.url(), "https://127.0.0.1:1"))?;
    file(NOBODY, &hub.service_account(PEOPLE, "nobody").await?)?;
    file("pipeline.yaml", &pipeline("apps").to_string())?;
    std::fs::create_dir(files.path().join("checkout"))?;
    let mut wrong = pipeline("apps");
    wrong["spec"]["environments"] = json!([]);
    file("wrong.yaml", &wrong.to_string())?;
    let api = format!("http://{address}");
    Ok(Servers { hub, _bare: bare, api, controller, files })
}

/// A pipeline with three environments after the first one, and a target on a cluster that does not exist.
fn pipeline(namespace: &str) -> Value {
    let after_dev = |name: &str| json!({"name": name, "after": ["dev"], "targets": [{"namespace": format!("{namespace}-{name}")}]});
    let lost =
        json!({"namespace": namespace, "clusterRef": {"kind": "GitopsCluster", "name": "europe-west-1"}});
    let strategy = json!({"commit": {"url": "https://127.0.0.1:1/fleet.git"}, "secretRef": {"name": "hook"}});
    json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "podinfo", "namespace": namespace},
        "spec": {
            "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"},
            "promotion": {"manual": true, "strategy": strategy},
            "environments": [{"name": "dev", "targets": [{"namespace": namespace}]}, after_dev("eu"), after_dev("us"),
                {"name": "lost", "after": ["eu"], "targets": [lost]}],
        },
    })
}

/// A namespace of the hub with the pipeline, whose promotions wait for an approval.
pub struct Place {
    pub servers: &'static Servers,
    namespace: String,
    /// The promotion into eu.
    promotion: String,
}

impl Place {
    pub async fn new(namespace: &str) -> Result<Place> {
        let servers = servers().await?;
        let hub = &servers.hub;
        for (place, version) in [("", "6.1.8"), ("-eu", "6.1.5"), ("-us", "6.1.5")] {
            let target = format!("{namespace}{place}");
            hub.namespace(&target).await?;
            releases::create_running(hub, &target, "podinfo", version).await?;
            hub.apply_yaml(&objects(&target, version)).await?;
            let deployments: Api<Deployment> = Api::namespaced(hub.client().await?, &target);
            let condition =
                |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
            let conditions = [
                condition("Progressing", "NewReplicaSetAvailable"),
                condition("Available", "MinimumReplicasAvailable"),
            ];
            let status = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                "readyReplicas": 1, "availableReplicas": 1, "conditions": conditions}});
            deployments.patch_status("podinfo", &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        hub.apply_yaml(&pipeline(namespace).to_string()).await?;
        let promotions: Api<Promotion> = Api::namespaced(hub.client().await?, namespace);
        let pipelines: Api<Pipeline> = Api::namespaced(hub.client().await?, namespace);
        let promotion = eventually(SOON, || async {
            let found = promotions.list(&Default::default()).await?.items;
            let waiting = found.iter().filter(|p| format!("{:?}", p.phase()) == "Pending").count();
            let status = serde_json::to_value(&pipelines.get("podinfo").await?.status)?;
            // The status of the pipeline is written after its promotions, with the target that cannot be read.
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let is_written = conditions.into_iter().any(|said| said["reason"] == "TargetNotReadable");
            ensure!(waiting == 2 && is_written, "{found:?}: {status}");
            let into_eu = found.into_iter().find(|promotion| promotion.spec.environment == "eu");
            into_eu.and_then(|promotion| promotion.metadata.name).context("no promotion into eu")
        })
        .await
        .with_context(|| servers.controller.tail())?;
        Ok(Place { servers, namespace: namespace.into(), promotion })
    }

    /// Returns a call of a command with these arguments, as a user of the hub who may do everything.
    pub fn call(&self, case: &Case, arguments: &str) -> Call {
        let arguments = arguments.replace("PROMOTION", &self.promotion);
        self.servers.call(case, &arguments, &self.namespace, ADMIN)
    }

    /// Returns a text with the names of this place.
    pub fn named(&self, text: &str) -> String {
        self.servers.named(text, &self.namespace).replace("PROMOTION", &self.promotion)
    }
}

impl Servers {
    /// Asks the API of the controller as the user of a kubeconfig.
    pub async fn ask(&self, path: &str, kubeconfig: &str) -> Result<Value> {
        let config = std::fs::read_to_string(self.files.path().join(kubeconfig))?;
        let config = parse_yaml(&config)?.pop().context("no kubeconfig")?;
        let token = config["users"][0]["user"]["token"].as_str().context("no token")?;
        let request = reqwest::Client::new().get(format!("{}/api/v1{path}", self.api)).bearer_auth(token);
        Ok(serde_json::from_str(&request.send().await?.error_for_status()?.text().await?)?)
    }

    /// Returns a call of a command with these arguments, in a namespace, with one of the kubeconfigs of the fixture.
    pub fn call(&self, case: &Case, arguments: &str, namespace: &str, kubeconfig: &str) -> Call {
        let mut line = self.named(&format!("{} {arguments}", case.command), namespace);
        if case.needs != Needs::Nothing && case.command != "controller" {
            line += &format!(" -n {namespace}");
        }
        let file = self.files.path().join(kubeconfig).to_string_lossy().into_owned();
        let call = Call::new(&line, self.files.path()).with("KUBECONFIG", file);
        // Without an address, the controller is asked through the hub.
        if kubeconfig == ADMIN { call.with("SLUICE_SERVER", self.api.as_str()) } else { call }
    }

    /// Returns a text with the names of a namespace and of the files. Call it once: the random name of a folder may contain `NS`.
    fn named(&self, text: &str, namespace: &str) -> String {
        let file = |name: &str| self.files.path().join(name).to_string_lossy().into_owned();
        let names = [
            ("NS", namespace.to_owned()),
            ("FILE", file("pipeline.yaml")),
            ("WRONG", file("wrong.yaml")),
            ("OTHER", file("bare")),
            ("CHECKOUT", file("checkout")),
        ];
        names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

/// What else is in the namespace of a target: the source, a Deployment of the release, the keys of hooks, a cluster without
/// its Secret, and a Provider with a wrong address.
fn objects(namespace: &str, version: &str) -> String {
    let repository = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
        "metadata": {"name": "podinfo", "namespace": namespace},
        "spec": {"interval": "1h", "url": "https://stefanprodan.github.io/podinfo"}});
    let labels = json!({"app": "podinfo", "helm.toolkit.fluxcd.io/name": "podinfo",
        "helm.toolkit.fluxcd.io/namespace": namespace});
    let containers = json!([{"name": "podinfo", "image": format!("ghcr.io/stefanprodan/podinfo:{version}")}]);
    let release =
        json!({"meta.helm.sh/release-name": "podinfo", "meta.helm.sh/release-namespace": namespace});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "podinfo", "namespace": namespace, "labels": labels, "annotations": release},
        "spec": {"selector": {"matchLabels": {"app": "podinfo"}},
            "template": {"metadata": {"labels": {"app": "podinfo"}}, "spec": {"containers": containers}}}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": namespace},
        "stringData": {"hmac-key": "0123456789abcdef0123456789abcdef"}});
    let cluster = json!({"apiVersion": "gitops.weave.works/v1alpha1", "kind": "GitopsCluster",
        "metadata": {"name": "asia-south-1", "namespace": namespace}, "spec": {"secretRef": {"name": "missing"}}});
    let provider = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
        "metadata": {"name": "sluice", "namespace": namespace},
        "spec": {"type": "generic-hmac", "address": "https://hooks.example.com/promotion/podinfo"}});
    [repository, deployment, secret, cluster, provider].map(|object| object.to_string()).join("\n---\n")
}
