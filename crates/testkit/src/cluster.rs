//! A cluster without nodes: a real kube-apiserver with RBAC, certificates of its own, and nobody
//! who runs pods. It can stop, hang and come back on the same port with the same objects.

use crate::certificates::{Identity, Validity, signing_key};
use crate::control_plane::Ground;
use crate::kubeconfig::{Credential, connect, kubeconfig};
use crate::servers::{controlplane_folder, start_on_free_port, start_ready};
use crate::{Leash, apply, crds};
use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The field manager under which tests write.
const FIELD_MANAGER: &str = "testkit";

/// One kube-apiserver. Dropping it ends the server; its objects stay in the control plane's etcd.
///
/// It holds no client and nothing else that belongs to a runtime, so it may live in a static.
pub struct Cluster {
    // The server is dropped before the ground it stands on.
    server: Mutex<Option<Leash>>,
    name: String,
    port: u16,
    folder: PathBuf,
    admin: Identity,
    ground: Arc<Ground>,
}

impl Cluster {
    pub(crate) async fn start_on(ground: Arc<Ground>, name: &str) -> Result<Cluster> {
        let folder = ground.scratch.folder(name)?;
        let admin = ground.authority.client("admin", Some("system:masters"), Validity::Good)?;
        write_certificates(&ground, &folder)?;
        let mut cluster =
            Cluster { server: Mutex::new(None), name: name.to_owned(), port: 0, folder, admin, ground };
        let (server, port) = start_on_free_port(|port| cluster.launch(port))
            .await
            .with_context(|| format!("cannot start the API server of cluster {name}"))?;
        cluster.server = Mutex::new(Some(server));
        cluster.port = port;
        std::fs::write(cluster.kubeconfig_path(), cluster.kubeconfig())?;
        Ok(cluster)
    }

    async fn launch(&self, port: u16) -> Result<Leash> {
        let command = self.command(port)?;
        let log = self.folder.join("kube-apiserver.log");
        let admin = self.kubeconfig_for(port, &Credential::Certificate(&self.admin));
        start_ready("kube-apiserver", &command, &log, || ready(admin.clone())).await
    }

    fn command(&self, port: u16) -> Result<Command> {
        let mut command = Command::new(controlplane_folder()?.join("kube-apiserver"));
        let file = |name: &str| self.folder.join(name).display().to_string();
        command.args([
            format!("--etcd-servers={}", self.ground.etcd_url),
            format!("--etcd-prefix=/{}", self.name),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--service-account-key-file={}", file("tokens.pub")),
            format!("--service-account-signing-key-file={}", file("tokens.key")),
            format!("--cert-dir={}", file("certs")),
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            // Nobody makes the service accounts that this one would ask for.
            "--disable-admission-plugins=ServiceAccount",
            // What follows only saves memory and time to start.
            "--endpoint-reconciler-type=none",
            "--enable-priority-and-fairness=false",
            "--profiling=false",
            "--event-ttl=10m",
        ]);
        Ok(command)
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of its API server.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The process id of its API server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Leash::pid)
    }

    /// A kubeconfig of an administrator, with everything in it.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(self.port, &Credential::Certificate(&self.admin))
    }

    /// A file with [`Cluster::kubeconfig`], for programs that want one.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A kubeconfig whose user's certificate has expired: the API server answers 401.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn expired_kubeconfig(&self) -> Result<String> {
        let identity = self.ground.authority.client("admin", Some("system:masters"), Validity::Expired)?;
        Ok(self.kubeconfig_for(self.port, &Credential::Certificate(&identity)))
    }

    /// A kubeconfig for a user who may do nothing but what RBAC objects that you apply allow.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<String> {
        let identity = self.ground.authority.client(name, group, Validity::Good)?;
        Ok(self.kubeconfig_for(self.port, &Credential::Certificate(&identity)))
    }

    /// A kubeconfig with a bearer token of a service account, which is made when missing. The
    /// token dies with the service account.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<String> {
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace}});
        let client = self.client().await?;
        apply(&client, FIELD_MANAGER, vec![object]).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() },
            ..Default::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = answer.status.ok_or_else(|| anyhow!("the API server made no token for {name}"))?.token;
        Ok(self.kubeconfig_for(self.port, &Credential::Token(&token)))
    }

    fn kubeconfig_for(&self, port: u16, credential: &Credential<'_>) -> String {
        kubeconfig(&self.name, &url(port), &self.ground.authority.pem(), credential)
    }

    /// A new client with an administrator's rights; it belongs to the runtime that calls this.
    ///
    /// # Errors
    /// When the client cannot be made; nothing is sent yet.
    pub async fn client(&self) -> Result<kube::Client> {
        connect(&self.kubeconfig()).await
    }

    /// Applies objects written as YAML, several documents if need be; namespaces and CRDs first.
    ///
    /// # Errors
    /// When it is not YAML, or the API server refuses an object.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply(&self.client().await?, FIELD_MANAGER, crate::parse_yaml(yaml)?).await
    }

    /// Makes a namespace, unless it is there.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client().await?);
        let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).with_context(|| format!("cannot make the namespace {name}")),
        }
    }

    /// Installs the CRDs of Flux and of GitopsCluster, and waits until they are served.
    ///
    /// # Errors
    /// When they cannot be fetched, or the API server refuses one.
    pub async fn install_flux_crds(&self) -> Result<()> {
        crds::install(&self.client().await?, crds::read_flux()?).await
    }

    /// Installs Sluice's own CRDs and their admission policy, and waits until the kinds are served.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn install_sluice_crds(&self) -> Result<()> {
        let client = self.client().await?;
        crds::install(&client, sluice_api::all_crds()).await?;
        let policy =
            [json!(sluice_api::admission_policy::policy()), json!(sluice_api::admission_policy::binding())];
        apply(&client, FIELD_MANAGER, policy.into()).await.map(drop)
    }

    /// Installs Sluice's own CRDs as a later version may have them: where this version knows some words, they accept
    /// any. What is stored with another word cannot be read by this version.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn install_later_sluice_crds(&self) -> Result<()> {
        let mut crds = sluice_api::all_crds();
        for schema in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions).filter_map(|v| v.schema.as_mut())
        {
            schema.open_api_v3_schema.iter_mut().for_each(crds::accept_any_word);
        }
        crds::install(&self.client().await?, crds).await
    }

    /// Ends the API server at once. Its objects and its port stay for [`Cluster::start`].
    pub fn stop(&self) {
        drop(self.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Starts the API server again, on the same port, with the same objects and certificates.
    ///
    /// # Errors
    /// When it does not become ready, or another process took the port meanwhile.
    pub async fn start(&self) -> Result<()> {
        self.stop();
        let leash = self.launch(self.port).await?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(leash);
        Ok(())
    }

    /// Makes the API server hang: it accepts connections and answers nothing until [`Cluster::thaw`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self) -> Result<()> {
        self.running(Leash::freeze)
    }

    /// Ends a [`Cluster::freeze`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&self) -> Result<()> {
        self.running(Leash::thaw)
    }

    fn running(&self, act: impl Fn(&Leash) -> Result<()>) -> Result<()> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        act(server.as_ref().ok_or_else(|| anyhow!("cluster {} is stopped: start() it first", self.name))?)
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

fn write_certificates(ground: &Ground, folder: &Path) -> Result<()> {
    let server = ground.authority.server()?;
    let (private, public) = signing_key()?;
    let files = [
        ("ca.crt", ground.authority.pem()),
        ("server.crt", server.certificate),
        ("server.key", server.key),
        ("tokens.key", private),
        ("tokens.pub", public),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

async fn ready(kubeconfig: String) -> Result<()> {
    let client = connect(&kubeconfig).await?;
    let request = axum::http::Request::get("/readyz").body(Vec::new())?;
    let answer = client.request_text(request).await?;
    if answer == "ok" { Ok(()) } else { Err(anyhow!("/readyz says {answer}")) }
}
