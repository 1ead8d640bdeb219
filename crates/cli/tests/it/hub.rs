//! One API server for all tests of this process, with a namespace for each test, and functions that run commands.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{CommandFactory, Parser};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_cli::{Command, Exit, Io, Program, Size};
use sluice_testkit::fault_injection::TcpProxy;
use sluice_testkit::{Cluster, ControlPlane, eventually};
use tokio::sync::OnceCell;

#[derive(Parser)]
#[command(name = "sluice")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The servers that the tests share.
pub struct Servers {
    /// A cluster with the definitions of Sluice.
    pub hub: Cluster,
    /// A cluster without them.
    pub bare: Cluster,
}

static SERVERS: OnceCell<Result<Servers, String>> = OnceCell::const_new();

pub async fn servers() -> Result<&'static Servers> {
    let servers = SERVERS.get_or_init(|| async { start_apart().await.map_err(|e| format!("{e:#}")) }).await;
    servers.as_ref().map_err(|e| anyhow!("the servers did not start: {e}"))
}

/// The servers run on their own thread and runtime, which live longer than the first test.
async fn start_apart() -> Result<Servers> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let started = runtime.map_err(anyhow::Error::from).and_then(|r| r.block_on(start()));
        let _ = send.send(started);
    });
    receive.await?
}

async fn start() -> Result<Servers> {
    let plane = ControlPlane::start().await?;
    let (hub, bare) = tokio::try_join!(plane.cluster("hub"), plane.cluster("bare"))?;
    hub.install_sluice_crds().await?;
    Ok(Servers { hub, bare })
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub exit: Exit,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Returns stdout with one space between words, and with ages as `AGE`.
    pub fn steady(&self) -> String {
        let age = |w: &str| {
            w.starts_with(|c: char| c.is_ascii_digit())
                && w.ends_with(|c| "smhdy".contains(c))
                && w.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
        };
        let word = |w: &str| if age(w) { "AGE".to_owned() } else { w.to_owned() };
        let line = |l: &str| l.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
        self.out.lines().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The output of a running command.
#[derive(Clone, Default)]
pub struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

impl CapturedOutput {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until this number of lines was written.
    pub async fn lines(&self, count: usize) -> anyhow::Result<()> {
        eventually(Duration::from_secs(60), || async {
            anyhow::ensure!(self.text().lines().count() >= count, "{}", self.text());
            Ok(())
        })
        .await
    }
}

impl Write for CapturedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs `sluice` with these arguments and this kubeconfig.
pub async fn sluice_as(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = sluice_into(kubeconfig, arguments, &mut out, &mut err).await;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { exit, out: text(out), err: text(err) }
}

pub async fn sluice_into(
    kubeconfig: &Path,
    arguments: &[&str],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let path = kubeconfig.to_string_lossy();
    bare(&[arguments, &["--kubeconfig", &path]].concat(), out, err).await
}

/// Runs `sluice` with this kubeconfig in a terminal of this size, while `during` looks at what it writes there. The command
/// must not end on its own. Returns the error output.
pub async fn sluice_in_terminal(
    (kubeconfig, size): (&Path, Size),
    arguments: &[&str],
    during: impl AsyncFnOnce(&CapturedOutput) -> Result<()>,
) -> Result<String> {
    let (out, err) = (CapturedOutput::default(), CapturedOutput::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let path = kubeconfig.to_string_lossy();
    let arguments = [arguments, &["--kubeconfig", &path]].concat();
    let mut io =
        Io { out: &mut to_out, err: &mut to_err, color: false, terminal: Some(size), err_width: None };
    tokio::select! {
        exit = run(&arguments, &mut io) => panic!("ended on its own: {exit:?}"),
        done = during(&out) => done?,
    }
    Ok(err.text())
}

/// Runs `sluice` without any cluster.
pub async fn bare(arguments: &[&str], out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    run(arguments, &mut Io { out, err, color: false, terminal: None, err_width: None }).await
}

/// Runs `sluice` with these outputs.
pub async fn run(arguments: &[&str], io: &mut Io<'_>) -> Exit {
    let all = [&["sluice"], arguments].concat();
    let program = Program { version: "0.0.0", cli: Cli::command };
    match Cli::try_parse_from(all) {
        Ok(cli) => sluice_cli::run(&cli.command, program, io).await,
        Err(error) => {
            let _ = write!(io.err, "{}", sluice_cli::with_tip(error));
            Exit::Usage
        }
    }
}

/// A namespace on the hub.
pub struct TestNamespace {
    pub namespace: String,
    pub client: kube::Client,
    pub kubeconfig: PathBuf,
}

pub async fn place(name: &str) -> Result<TestNamespace> {
    place_on(&servers().await?.hub, name).await
}

pub async fn place_on(hub: &Cluster, name: &str) -> Result<TestNamespace> {
    hub.namespace(name).await?;
    Ok(TestNamespace {
        namespace: name.into(),
        client: hub.client().await?,
        kubeconfig: hub.kubeconfig_path(),
    })
}

impl TestNamespace {
    /// Runs `sluice` in this namespace, as an administrator.
    pub async fn sluice(&self, arguments: &[&str]) -> Ran {
        sluice_as(&self.kubeconfig, &[arguments, &["-n", &self.namespace]].concat()).await
    }

    /// Leads the commands of this namespace through a proxy. The kubeconfig is in the folder.
    pub async fn through_proxy(&mut self) -> Result<(TcpProxy, tempfile::TempDir)> {
        let hub = &servers().await?.hub;
        let url = hub.url();
        let port = url.rsplit_once(':').map(|(_, port)| port.trim_end_matches('/').parse());
        let proxy = TcpProxy::to(port.ok_or_else(|| anyhow!("no port in {url}"))??)?;
        let folder = tempfile::tempdir()?;
        self.kubeconfig = folder.path().join("kubeconfig");
        let through = format!("https://127.0.0.1:{}", proxy.port());
        std::fs::write(&self.kubeconfig, hub.kubeconfig().replace(&url, &through))?;
        Ok((proxy, folder))
    }

    /// Creates a pipeline with dev and prod and this status.
    pub async fn pipeline(&self, name: &str, status: Value) -> Result<()> {
        let api: Api<Pipeline> = Api::namespaced(self.client.clone(), &self.namespace);
        let pipeline = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": name},
            "spec": {
                "appRef": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": name},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "dev"}}]},
                    {"name": "prod", "targets": [{"namespace": "podinfo", "clusterRef": {"kind": "GitopsCluster", "name": "prod"}}]}],
            },
        });
        api.create(&PostParams::default(), &serde_json::from_value(pipeline)?).await?;
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Sets the label `team` of a pipeline.
    pub async fn label(&self, name: &str, team: &str) -> Result<()> {
        let api: Api<Pipeline> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": team}}}));
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates a promotion of podinfo.
    pub async fn promotion(&self, name: &str, environment: &str, status: Value) -> Result<()> {
        let api = self.promotions();
        let promotion = json!({
            "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Promotion", "metadata": {"name": name},
            "spec": {"pipeline": "podinfo", "environment": environment, "revision": "6.1.8", "facets": {}},
        });
        api.create(&PostParams::default(), &serde_json::from_value(promotion)?).await?;
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates a Warning event of a pipeline.
    pub async fn event(&self, pipeline: &str, reason: &str) -> Result<()> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = json!({"apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "name": pipeline,
            "namespace": self.namespace});
        let event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{pipeline}-{}", reason.to_lowercase())}, "involvedObject": object,
            "reason": reason, "type": "Warning", "message": "why", "lastTimestamp": "2026-11-21T12:00:00Z"});
        api.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
        Ok(())
    }

    pub fn promotions(&self) -> Api<Promotion> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Returns the field manager that last wrote an object's spec.
pub fn managers(promotion: &Promotion) -> Vec<String> {
    promotion.managed_fields().iter().filter_map(|m| m.manager.clone()).collect()
}

/// Writes a status as the controller does.
pub fn running(dev: &str, prod: &str) -> Value {
    let environment = |cluster: &str, revision: &str| {
        json!({"health": "Ready", "revision": revision, "waitingApproval": {"revision": ""}, "targets": [{
            "name": format!("{cluster}-podinfo"), "namespace": "podinfo", "health": "Ready", "ready": true,
            "since": "2026-11-01T00:00:00Z", "revision": revision, "workloads": [
                {"kind": "HelmRelease", "name": "podinfo", "version": revision, "health": "Ready"},
                {"kind": "Deployment", "name": "podinfo", "version": revision, "health": "Ready",
                 "images": [format!("ghcr.io/stefanprodan/podinfo:{revision}")]}]}]})
    };
    json!({
        "observedGeneration": 1,
        "conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded",
            "message": "all targets were read", "lastTransitionTime": "2026-11-01T00:00:00Z"}],
        "summary": {"environments": format!("dev:{dev} prod:{prod}"), "promoting": ""},
        "environments": {"dev": environment("dev", dev), "prod": environment("prod", prod)},
    })
}
