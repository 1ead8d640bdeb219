//! A cluster without nodes: a real kube-apiserver with RBAC and its own certificates, where no pods run. It can be
//! stopped, frozen and started again on the same port with the same objects.

use crate::certificates::{Identity, Validity, signing_key};
use crate::kubeconfig::{Credential, connect, kubeconfig};
use crate::plane_state::PlaneState;
use crate::restartable::Restartable;
use crate::servers::{controlplane_folder, start_on_free_port, start_ready};
use crate::{ProcessGuard, apply, crds};
use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The field manager of what tests write.
const FIELD_MANAGER: &str = "testkit";
/// The file that says which identity providers the API server trusts.
const AUTHENTICATION: &str = "authentication.yaml";

/// One kube-apiserver. Dropping it ends the server; its objects stay in the control plane's etcd.
///
/// It can be kept in a static, because it holds no client and nothing else that belongs to a runtime.
pub struct Cluster {
    // The server is dropped before the etcd that it uses.
    server: Restartable,
    name: String,
    port: u16,
    folder: PathBuf,
    admin: Identity,
    /// Whether the folder has an AuthenticationConfiguration.
    has_issuers: bool,
    plane: Arc<PlaneState>,
}

impl Cluster {
    /// Starts a cluster, with an AuthenticationConfiguration or without.
    pub(crate) async fn start_on(
        plane: Arc<PlaneState>,
        name: &str,
        authentication: Option<&str>,
    ) -> Result<Cluster> {
        let folder = plane.scratch.folder(name)?;
        let admin = plane.authority.client("admin", Some("system:masters"), Validity::Valid)?;
        write_certificates(&plane, &folder)?;
        if let Some(configuration) = authentication {
            std::fs::write(folder.join(AUTHENTICATION), configuration)?;
        }
        let mut cluster = Cluster {
            server: Restartable::new(&format!("cluster {name}")),
            name: name.to_owned(),
            port: 0,
            folder,
            admin,
            has_issuers: authentication.is_some(),
            plane,
        };
        let (server, port) = start_on_free_port(|port| cluster.launch(port))
            .await
            .with_context(|| format!("cannot start the API server of cluster {name}"))?;
        cluster.server.put(server);
        cluster.port = port;
        std::fs::write(cluster.kubeconfig_path(), cluster.kubeconfig())?;
        Ok(cluster)
    }

    async fn launch(&self, port: u16) -> Result<ProcessGuard> {
        let command = self.command(port)?;
        let log = self.folder.join("kube-apiserver.log");
        let admin = self.kubeconfig_for(port, &Credential::Certificate(&self.admin));
        start_ready("kube-apiserver", &command, &log, || check_ready(admin.clone())).await
    }

    fn command(&self, port: u16) -> Result<Command> {
        let mut command = Command::new(controlplane_folder()?.join("kube-apiserver"));
        let file = |name: &str| self.folder.join(name).display().to_string();
        command.args([
            format!("--etcd-servers={}", self.plane.etcd_url),
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
            // This plugin needs service accounts that no controller creates here.
            "--disable-admission-plugins=ServiceAccount",
            // These flags only save memory and time to start.
            "--endpoint-reconciler-type=none",
            "--enable-priority-and-fairness=false",
            "--profiling=false",
            "--event-ttl=10m",
        ]);
        if self.has_issuers {
            command.arg(format!("--authentication-config={}", file(AUTHENTICATION)));
        }
        Ok(command)
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the API server.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The process id of the API server; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.server.pid()
    }

    /// A kubeconfig for an administrator, which names no files.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(self.port, &Credential::Certificate(&self.admin))
    }

    /// A file with [`Cluster::kubeconfig`], for programs that read one.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Returns a kubeconfig with an expired certificate: the API server answers 401.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn expired_kubeconfig(&self) -> Result<String> {
        let identity = self.plane.authority.client("admin", Some("system:masters"), Validity::Expired)?;
        Ok(self.kubeconfig_for(self.port, &Credential::Certificate(&identity)))
    }

    /// Returns a kubeconfig for a user with the rights that RBAC objects of the test grant, and no others.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<String> {
        let identity = self.plane.authority.client(name, group, Validity::Valid)?;
        Ok(self.kubeconfig_for(self.port, &Credential::Certificate(&identity)))
    }

    /// Returns a kubeconfig with a token of a service account, and creates the service account if it is missing. The
    /// token is valid until the service account is deleted.
    ///
    /// # Errors
    /// The API server rejects a request.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<String> {
        let token = self.service_account_token(namespace, name).await?;
        Ok(self.kubeconfig_for(self.port, &Credential::Token(&token)))
    }

    /// Creates a service account without rights, and returns a token of an hour.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
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
        let token =
            answer.status.ok_or_else(|| anyhow!("the API server returned no token for {name}"))?.token;
        Ok(token)
    }

    fn kubeconfig_for(&self, port: u16, credential: &Credential<'_>) -> String {
        kubeconfig(&self.name, &url(port), &self.plane.authority.pem(), credential)
    }

    /// Returns a new client with the rights of an administrator. It belongs to the runtime of the caller.
    ///
    /// # Errors
    /// The client cannot be made. Nothing is sent yet.
    pub async fn client(&self) -> Result<kube::Client> {
        connect(&self.kubeconfig()).await
    }

    /// Applies the objects of a YAML text with any number of documents; CRDs and namespaces first.
    ///
    /// # Errors
    /// The text is not YAML, or the API server rejects an object.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply(&self.client().await?, FIELD_MANAGER, crate::parse_yaml(yaml)?).await
    }

    /// Creates a namespace, unless it exists.
    ///
    /// # Errors
    /// The API server rejects it.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client().await?);
        let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).with_context(|| format!("cannot create the namespace {name}")),
        }
    }

    /// Installs the CRDs of Flux and of GitopsCluster, and waits until they are served.
    ///
    /// # Errors
    /// They cannot be fetched, or the API server rejects one.
    pub async fn install_flux_crds(&self) -> Result<()> {
        crds::install(&self.client().await?, crds::read_flux()?).await
    }

    /// Installs Sluice's CRDs and their admission policy, and waits until the kinds are served.
    ///
    /// # Errors
    /// The API server rejects one.
    pub async fn install_sluice_crds(&self) -> Result<()> {
        let client = self.client().await?;
        crds::install(&client, sluice_api::all_crds()).await?;
        let policy = [
            json!(sluice_api::promotion::user_policy::policy()),
            json!(sluice_api::promotion::user_policy::binding()),
        ];
        apply(&client, FIELD_MANAGER, policy.into()).await.map(drop)
    }

    /// Installs Sluice's CRDs as a later version may have them: without `enum` lists. This version cannot read objects
    /// with values that it does not know.
    ///
    /// # Errors
    /// The API server rejects one.
    pub async fn install_later_sluice_crds(&self) -> Result<()> {
        let mut crds = sluice_api::all_crds();
        for schema in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions).filter_map(|v| v.schema.as_mut())
        {
            schema.open_api_v3_schema.iter_mut().for_each(crds::remove_enums);
        }
        crds::install(&self.client().await?, crds).await
    }

    /// Kills the API server. [`Cluster::start`] starts it again on the same port, with the same objects.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts the API server again, on the same port, with the same objects and certificates. Kills it first if it runs.
    ///
    /// # Errors
    /// It does not become ready, or another process took the port.
    pub async fn start(&self) -> Result<()> {
        self.stop();
        let server = self.launch(self.port).await?;
        self.server.put(server);
        Ok(())
    }

    /// Freezes the API server: it accepts connections and answers nothing until [`Cluster::thaw`].
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self) -> Result<()> {
        self.server.freeze()
    }

    /// Ends a [`Cluster::freeze`].
    ///
    /// # Errors
    /// It does not run.
    pub fn thaw(&self) -> Result<()> {
        self.server.thaw()
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

fn write_certificates(plane: &PlaneState, folder: &Path) -> Result<()> {
    let server = plane.authority.server()?;
    let (private, public) = signing_key()?;
    let files = [
        ("ca.crt", plane.authority.pem()),
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

async fn check_ready(kubeconfig: String) -> Result<()> {
    let client = connect(&kubeconfig).await?;
    let request = axum::http::Request::get("/readyz").body(Vec::new())?;
    let answer = client.request_text(request).await?;
    if answer == "ok" { Ok(()) } else { Err(anyhow!("/readyz answers {answer}")) }
}
