//! The hook server in a controller, with a real API server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use reqwest::{Client as Http, RequestBuilder};
use ring::hmac;
use serde_json::json;
use sluice_controller::hook::{HookOptions, Proxies};
use sluice_controller::{ControllerOptions, ObserveScope, Replica, Shown, snapshot_channel};
use sluice_core::fleet::index::Fleet;
use sluice_testkit::{Cluster, ControlPlane, Scratch, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::all_bodies;
use crate::rights::{USER, grant};

const PIPELINE: &str = "
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: podinfo, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion: {strategy: {commit: {url: https://git.example.com/fleet.git}, secretRef: {name: hook}}}
  environments:
  - {name: dev, targets: [{namespace: podinfo}]}
  - {name: prod, targets: [{namespace: prod}]}
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: open, namespace: apps}
spec:
  promotion: {strategy: {commit: {url: https://git.example.com/fleet.git}, allowUnsigned: true}}
  environments: [{name: dev, targets: [{namespace: podinfo}]}]
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: push, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion: {strategy: {notification: {}, secretRef: {name: hook}, allowUnsigned: true}}
  environments:
  - {name: dev, targets: [{namespace: podinfo, observe: Push, clusterRef: {kind: GitopsCluster, name: eu}}]}
  - name: prod
    targets:
    - {namespace: podinfo, name: us, observe: Push, clusterRef: {kind: GitopsCluster, name: us}}
    - {namespace: podinfo, name: ap, observe: Push, clusterRef: {kind: GitopsCluster, name: ap}}
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: keyless, namespace: apps}
spec:
  promotion: {strategy: {commit: {url: https://git.example.com/fleet.git}}}
  environments: [{name: dev, targets: [{namespace: podinfo}]}]
---
apiVersion: pipelines.weave.works/v1alpha1
kind: Pipeline
metadata: {name: each, namespace: apps}
spec:
  appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: podinfo}
  promotion:
    strategy:
      pull-request: {type: gitea, url: https://git.example.com/acme/fleet.git, per: Target, secretRef: {name: hook}}
      secretRef: {name: hook}
  environments: [{name: dev, targets: [{namespace: a, name: eu}, {namespace: b, name: us}]}]
";
const DEV: &str = "/promotion/apps/podinfo/dev";

pub(crate) struct HookFixture {
    pub(crate) cluster: Cluster,
    pub(crate) at: SocketAddr,
    http: Http,
    hook: HookOptions,
    metrics: SocketAddr,
    task: JoinHandle<()>,
    scratch: Scratch,
}

impl Drop for HookFixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build()?.block_on(test)
}

/// Returns two addresses with free ports.
async fn free_ports() -> Result<(SocketAddr, SocketAddr)> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    Ok((one.local_addr()?, other.local_addr()?))
}

/// Starts a controller with a hook server, and waits until it has read the pipelines.
pub(crate) async fn serve(change: impl FnOnce(&mut HookOptions, &Path)) -> Result<HookFixture> {
    let plane = ControlPlane::start().await?;
    let cluster = plane.cluster("hub").await?;
    cluster.install_sluice_crds().await?;
    cluster.namespace("apps").await?;
    cluster.apply_yaml(PIPELINE).await?;
    set_keys(&cluster, &keys()).await?;
    grant(&cluster, &["get", "list", "watch"]).await?;
    let scratch = Scratch::new("hook")?;
    let (at, metrics) = free_ports().await?;
    let mut hook = HookOptions {
        address: at,
        certificate: None,
        proxies: Proxies::default(),
        peer_rate: 0,
        pipeline_rate: 0,
        connections: HookOptions::CONNECTIONS,
        callbacks: true,
    };
    change(&mut hook, scratch.path());
    let task = start(&cluster, hook.clone(), metrics, scratch.folder("cache")?).await?;
    let fixture = HookFixture { cluster, at, http: Http::new(), hook, metrics, task, scratch };
    fixture.wait_until_pipelines_are_known().await?;
    Ok(fixture)
}

async fn start(
    cluster: &Cluster,
    hook: HookOptions,
    metrics: SocketAddr,
    cache_dir: PathBuf,
) -> Result<JoinHandle<()>> {
    let options = ControllerOptions {
        replica: Replica::Only,
        watch_namespace: None,
        observe: ObserveScope::All,
        no_cross_namespace_refs: false,
        insecure_kubeconfig_exec: false,
        observed_memory: sluice_controller::OBSERVED_MEMORY,
        metrics_addr: Some(metrics),
        health_addr: None,
        hook: Some(hook),
        hook_url: Some("https://sluice.example.com/".into()),
        cache_dir,
        cache_bytes: 1 << 30,
        insecure_git_http: false,
        poll_interval: Duration::from_secs(30),
        history_limit: sluice_controller::HISTORY_LIMIT,
        delivery_timeout: Duration::from_secs(60),
        git_author: sluice_controller::DEFAULT_AUTHOR.into(),
        events_addr: None,
        allowed_hosts: sluice_controller::AllowedHosts::default(),
        webhooks: sluice_controller::AllowedWebhooks { http: true, private: true },
    };
    let client = sluice_testkit::connect(&cluster.user(USER, None)?).await?;
    let shown = Shown { fleet: Fleet::default(), snapshots: snapshot_channel().1 };
    let delivery = sluice_controller::delivery(&options)?;
    Ok(tokio::spawn(async move {
        sluice_controller::run(options, client, delivery, shown, std::future::pending()).await.unwrap()
    }))
}

/// The keys of the Secret: one for each purpose, and one for each cluster that reports.
pub(crate) fn keys() -> serde_json::Value {
    json!({"hmac-key": "test-hmac-key", "trigger-key": "test-trigger-key", "forge-key": "test-forge-key",
        "callback-key": "test-callback-key", "approval-key": "test-approval-key",
        "report-key.eu": "test-report-key-eu", "report-key.us": "test-report-key-us",
        "report-key.ap": "test-report-key-ap"})
}

pub(crate) async fn set_keys(cluster: &Cluster, keys: &serde_json::Value) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, "apps");
    let object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "stringData": keys});
    secrets.delete("hook", &Default::default()).await.ok();
    secrets.patch("hook", &PatchParams::apply("test"), &Patch::Apply(object)).await?;
    Ok(())
}

fn body(file: &str) -> (Vec<u8>, String) {
    let found = all_bodies().into_iter().find(|(name, ..)| name == file).unwrap();
    (found.1, found.2)
}

pub(crate) fn sign(key: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), body);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

impl HookFixture {
    async fn wait_until_pipelines_are_known(&self) -> Result<()> {
        eventually(Duration::from_secs(60), async || {
            let text = self.metrics().await?;
            let mut lines = text.lines();
            let has_reconciled =
                lines.any(|l| l.starts_with("sluice_reconciles_total ") && !l.ends_with(" 0"));
            TcpStream::connect(self.at).await?;
            has_reconciled.then_some(()).context("the pipelines are not known yet")
        })
        .await
    }

    /// Ends the controller, and starts another one.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.task.abort();
        let _ = (&mut self.task).await;
        let cache = self.scratch.folder("cache-of-another")?;
        self.task = start(&self.cluster, self.hook.clone(), self.metrics, cache).await?;
        self.wait_until_pipelines_are_known().await
    }

    async fn metrics(&self) -> Result<String> {
        Ok(reqwest::get(format!("http://{}/metrics", self.metrics)).await?.text().await?)
    }

    async fn count(&self, result: &str) -> Result<u64> {
        self.metric(&format!("sluice_hook_calls_total{{endpoint=\"promotion\",result=\"{result}\"}}")).await
    }

    /// Returns the value of a metric; 0 if the controller does not have it yet.
    async fn metric(&self, name: &str) -> Result<u64> {
        let text = self.metrics().await?;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        Ok(text.lines().find_map(value).unwrap_or(0))
    }

    pub(crate) fn post(&self, path: &str, body: &[u8], signature: Option<&str>) -> RequestBuilder {
        let request = self.http.post(format!("http://{}{path}", self.at)).body(body.to_vec());
        signature.into_iter().fold(request, |request, s| request.header("x-signature", s))
    }

    /// Sends a call until the answer is not 503, as Flux does, since the API server may be slow.
    pub(crate) async fn answer(
        &self,
        path: &str,
        body: &[u8],
        signature: Option<&str>,
    ) -> Result<reqwest::Response> {
        eventually(Duration::from_secs(60), async || {
            let answer = self.post(path, body, signature).send().await?;
            ensure!(answer.status() != StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
            Ok(answer)
        })
        .await
    }

    pub(crate) async fn status(&self, path: &str, body: &[u8], signature: Option<&str>) -> Result<u16> {
        Ok(self.answer(path, body, signature).await?.status().as_u16())
    }

    /// Sends bytes as they are, and returns the first line of the answer.
    async fn raw(&self, bytes: &[u8]) -> Result<String> {
        let mut stream = TcpStream::connect(self.at).await?;
        stream.write_all(bytes).await?;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await;
        read.context("the connection stayed open")??;
        Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_string())
    }
}

impl HookFixture {
    /// Checks that a refusal says how to send a key, and does not reveal whether the pipeline exists.
    async fn check_refusals(&self, body: &[u8]) -> Result<()> {
        for (path, part, absent) in [
            ("/trigger/apps/podinfo", "of the first environment", "Bearer"),
            ("/callback/apps/podinfo/x", "Authorization: Bearer", "X-Signature"),
            ("/forge/apps/podinfo", "X-Gitlab-Token", "X-Signature"),
            ("/approval/apps/podinfo/prod/6.1.8", "approval-key", "Bearer"),
        ] {
            let answer = self.post(path, body, None).send().await?;
            ensure!(answer.status() == StatusCode::UNAUTHORIZED, "{path}: {answer:?}");
            let text = answer.text().await?;
            ensure!(text.contains(part) && !text.contains(absent), "{path}: {text}");
            let unknown = self.post(&path.replace("podinfo", "none"), body, None).send().await?;
            ensure!(unknown.text().await? == text, "{path}: the answer reveals which pipelines exist");
        }
        // GET gets the answer 405 also on a path that does not exist.
        for path in [DEV, "/promotion/apps/line"] {
            let answer = Http::new().get(format!("http://{}{path}", self.at)).send().await?;
            ensure!(answer.status() == StatusCode::METHOD_NOT_ALLOWED && answer.headers()["allow"] == "POST");
        }
        ensure!(self.count("method").await? == 1);
        Ok(())
    }
}

#[test]
fn each_kind_of_call_is_answered_with_its_status() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let (good, signature) = body("hr-chart-upgrade-succeeded.json");
        let signed = Some(signature.as_str());
        let answer = fixture.post(DEV, &good, signed).send().await?;
        ensure!(answer.status() == StatusCode::ACCEPTED, "{answer:?}");
        let location = "/apis/pipelines.weave.works/v1alpha1/namespaces/apps/pipelines/podinfo";
        ensure!(answer.headers()["location"] == location, "{answer:?}");

        // An unknown pipeline and a wrong key get the same answer.
        let refused = fixture.post("/promotion/apps/none/dev", &good, signed).send().await?;
        let other = sign("other", &good);
        for (path, signature) in [
            (DEV, None),
            (DEV, Some(other.as_str())),
            (DEV, Some("sha256=00")),
            ("/promotion/none/podinfo/dev", signed),
            ("/promotion/apps/podinfo/none", None),
            ("/promotion/apps/keyless/dev", signed),
            ("/promotion/apps/keyless/dev", None),
        ] {
            let answer = fixture.post(path, &good, signature).send().await?;
            ensure!(answer.status() == refused.status() && answer.headers().len() == refused.headers().len());
            ensure!(answer.status() == StatusCode::UNAUTHORIZED, "{path} {signature:?}: {answer:?}");
            ensure!(answer.text().await?.contains("X-Signature"), "the answer does not say what to send");
        }
        let unknown = fixture.post("/promotion/apps/podinfo/none", &good, signed).send().await?;
        ensure!(unknown.status() == StatusCode::UNPROCESSABLE_ENTITY, "{unknown:?}");
        ensure!(unknown.text().await?.contains("call with one of dev"), "the answer names no environments");
        let twice = fixture.post(DEV, &good, signed).header("x-signature", &signature).send().await?;
        ensure!(twice.status() == StatusCode::UNAUTHORIZED, "two signatures: {twice:?}");
        ensure!(fixture.status("/promotion/apps/open/dev", &good, None).await? == 202);

        for path in [
            "/",
            "/promotion",
            "/promotion/apps/podinfo",
            "/promotion/apps/podinfo/dev/x",
            "/promotion/apps/podinfo/dev/",
            "//promotion/apps/podinfo/dev",
            "/promotion/apps/pod%69nfo/dev",
            "/promotion/apps/../dev",
            "/promotion/APPS/podinfo/dev",
            "/healthz",
            "/metrics",
        ] {
            let line = fixture
                .raw(
                    format!(
                        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                    )
                    .as_bytes(),
                )
                .await?;
            ensure!(line.contains(" 404 "), "{path}: {line}");
        }
        fixture.check_refusals(&good).await?;

        ensure!(fixture.count("accepted").await? == 2 && fixture.count("refused").await? == 9);
        Ok(())
    })
}

#[test]
fn each_kind_of_body_is_answered_with_its_status() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let (good, signature) = body("hr-chart-upgrade-succeeded.json");
        let signed = Some(signature.as_str());
        // A repeated call is accepted. Its only effect is that the pipeline is reconciled again.
        for _ in 0..2 {
            ensure!(fixture.status(DEV, &good, signed).await? == 202);
        }
        for (text, status) in
            [("", 400), ("[]", 400), ("{", 400), ("null", 400), ("{}", 400), ("\u{feff}{}", 400)]
        {
            let signature = sign("test-hmac-key", text.as_bytes());
            let found = fixture.status(DEV, text.as_bytes(), Some(&signature)).await?;
            ensure!(found == status, "{text:?}: {found}");
        }
        let (drift, signature) = body("hr-drift-corrected.json");
        ensure!(fixture.status(DEV, &drift, Some(&signature)).await? == 200);
        let (foreign, signature) = body("ks-git-success.json");
        let answer = fixture.post(DEV, &foreign, Some(&signature)).send().await?;
        ensure!(answer.status() == StatusCode::UNPROCESSABLE_ENTITY);
        ensure!(answer.text().await?.contains("eventSources"));

        ensure!(fixture.count("accepted").await? == 2 && fixture.count("ignored").await? == 1);
        let (malformed, unfit) = (fixture.count("malformed").await?, fixture.count("unfit").await?);
        ensure!((malformed, unfit) == (6, 1), "{}", fixture.metrics().await?);
        Ok(())
    })
}

#[test]
fn huge_slow_and_broken_calls_are_ended() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let head = format!("POST {DEV} HTTP/1.1\r\nhost: a\r\n");
        let line = fixture.raw(format!("{head}content-length: 3145729\r\n\r\n").as_bytes()).await?;
        ensure!(line.contains(" 413 "), "{line}");
        let mut long = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
        for _ in 0..49 {
            long.extend(b"10000\r\n");
            long.extend([b' '; 0x10000]);
            long.extend(b"\r\n");
        }
        // The server may close the connection before the whole body was sent.
        if let Ok(line) = fixture.raw(&long).await {
            ensure!(line.contains(" 413 ") || line.is_empty(), "{line}");
        }
        let slow = [
            fixture.raw(
                b"POST /promotion/apps/podinfo/dev HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n123",
            ),
            fixture.raw(b"POST /promotion/apps"),
        ];
        let [body, head] = slow;
        let (body, head) = tokio::try_join!(body, head)?;
        ensure!(body.contains(" 408 "), "a slow body: {body}");
        ensure!(head.is_empty() || head.contains(" 408 "), "a slow head: {head}");
        let junk = fixture.raw(&[0xff; 4000]).await?;
        ensure!(junk.is_empty() || junk.contains(" 400 "), "{junk}");
        let (good, signature) = self::body("hr-chart-upgrade-succeeded.json");
        ensure!(fixture.status(DEV, &good, Some(&signature)).await? == 202, "no answer any more");

        let wait_for_cut = async |cause: &str, minimum: u64| {
            eventually(Duration::from_secs(60), async || {
                let count = fixture.metric(&format!("sluice_hook_cuts_total{{cause=\"{cause}\"}}")).await?;
                ensure!(count >= minimum, "{cause}: {count}");
                Ok(())
            })
            .await
        };
        ensure!(fixture.count("huge").await? >= 1 && fixture.count("slow").await? == 1);
        wait_for_cut("slow", 1).await?;
        wait_for_cut("unreadable", 1).await?;

        // One peer cannot take all connections.
        let mut all = Vec::new();
        for _ in 0..=128 {
            all.push(TcpStream::connect(fixture.at).await?);
        }
        let mut last = all.pop().context("the last")?;
        let closed = tokio::time::timeout(Duration::from_secs(30), last.read(&mut [0])).await;
        ensure!(
            !matches!(closed.context("the connection was not closed")?, Ok(1..)),
            "the connection was answered"
        );
        drop(all);
        wait_for_cut("crowded", 1).await?;
        eventually(Duration::from_secs(60), async || {
            ensure!(fixture.status(DEV, &good, Some(&signature)).await? == 202);
            Ok(())
        })
        .await
    })
}

#[test]
fn the_metrics_count_when_all_connections_are_in_use() -> Result<()> {
    run(async {
        let fixture = serve(|options, _| {
            // A trusted proxy can take all connections.
            options.connections = 8;
            options.proxies = Proxies::new(vec!["127.0.0.0/8".parse().unwrap()]);
        })
        .await?;
        let full = fixture.metric("sluice_hook_full_total").await?;
        let mut all = Vec::new();
        for _ in 0..8 {
            all.push(TcpStream::connect(fixture.at).await?);
        }
        eventually(Duration::from_secs(60), async || {
            let open = fixture.metric("sluice_hook_connections").await?;
            ensure!(open == 8, "{open} connections");
            ensure!(fixture.metric("sluice_hook_full_total").await? > full, "not counted");
            Ok(())
        })
        .await?;
        drop(all);
        eventually(Duration::from_secs(60), async || {
            let open = fixture.metric("sluice_hook_connections").await?;
            ensure!(open == 0, "{open} connections");
            Ok(())
        })
        .await
    })
}

#[test]
fn a_key_is_rotated_without_a_restart() -> Result<()> {
    run(async {
        let fixture = serve(|_, _| {}).await?;
        let (good, old) = body("hr-chart-upgrade-succeeded.json");
        let new = sign("new-key", &good);
        ensure!(fixture.status(DEV, &good, Some(&old)).await? == 202);
        ensure!(fixture.status(DEV, &good, Some(&new)).await? == 401);
        set_keys(&fixture.cluster, &json!({"hmac-key": "new-key", "hmac-key-previous": "test-hmac-key"}))
            .await?;
        let wait_for = async |signature: &str, expected: u16| {
            eventually(Duration::from_secs(60), async || {
                let status = fixture.status(DEV, &good, Some(signature)).await?;
                ensure!(status == expected, "{status}");
                Ok(())
            })
            .await
        };
        wait_for(&new, 202).await?;
        wait_for(&old, 202).await?;
        set_keys(&fixture.cluster, &json!({"hmac-key": "new-key"})).await?;
        wait_for(&old, 401).await?;
        wait_for(&new, 202).await?;
        // Without the API server, the cached key is accepted for a short time. After that, the answer is 503.
        fixture.cluster.stop();
        let answer = eventually(Duration::from_secs(60), async || {
            let answer = fixture.post(DEV, &good, Some(&new)).send().await?;
            ensure!(answer.status() == StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
            Ok(answer)
        })
        .await?;
        ensure!(answer.headers()["retry-after"] == "3");
        Ok(())
    })
}

#[test]
fn calls_over_the_rate_of_a_peer_or_pipeline_are_answered_with_429() -> Result<()> {
    run(async {
        let fixture = serve(|options, _| {
            (options.peer_rate, options.pipeline_rate) = (2, 1);
            options.proxies = Proxies::new(vec!["127.0.0.0/8".parse().unwrap()]);
        })
        .await?;
        let (good, signature) = body("hr-chart-upgrade-succeeded.json");
        let from = |peer: &str, signature: Option<&str>| {
            fixture.post(DEV, &good, signature).header("x-forwarded-for", peer).send()
        };
        // The unsigned calls of one peer do not use up the limit of the pipeline.
        let flood = futures::future::try_join_all((0..60).map(|_| from("203.0.113.9", None))).await?;
        let limited = flood.iter().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS).count();
        ensure!((1..=40).contains(&limited), "{limited}");
        let mut answers = Vec::new();
        for peer in 0..30 {
            let answer = from(&format!("198.51.100.{peer}"), Some(&signature)).await?;
            answers.push(answer.status().as_u16());
            if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                ensure!(answer.headers()["retry-after"].to_str()?.parse::<u64>()? >= 1);
            }
        }
        ensure!(answers[..10].iter().all(|s| *s == 202), "{answers:?}");
        ensure!(answers.contains(&429), "{answers:?}");
        Ok(())
    })
}

fn certificate(folder: &Path) -> Result<(PathBuf, PathBuf, String)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let (file, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    std::fs::write(&file, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((file, key, made.cert.pem()))
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() -> Result<()> {
    run(async {
        let fixture = serve(|options, folder| {
            let (file, key, _) = certificate(folder).unwrap();
            options.certificate = Some((file, key));
        })
        .await?;
        let (good, signature) = body("hr-chart-upgrade-succeeded.json");
        let trusting = |pem: &str| -> Result<Http> {
            let root = reqwest::Certificate::from_pem(pem.as_bytes())?;
            Ok(Http::builder().tls_certs_only([root]).resolve("localhost", fixture.at).build()?)
        };
        let call = async |http: &Http| {
            let url = format!("https://localhost:{}{DEV}", fixture.at.port());
            http.post(url).header("x-signature", &signature).body(good.clone()).send().await
        };
        let first = std::fs::read_to_string(fixture.scratch.path().join("tls.crt"))?;
        ensure!(call(&trusting(&first)?).await?.status() == StatusCode::ACCEPTED);
        // A half-written certificate is not used, and the current one stays in use.
        std::fs::write(fixture.scratch.path().join("tls.crt"), &first[..100])?;
        let wait_for_unreadable = async |expected: u64| {
            eventually(Duration::from_secs(60), async || {
                let value = fixture.metric("sluice_hook_certificate_unreadable").await?;
                ensure!(value == expected, "{value}");
                Ok(())
            })
            .await
        };
        wait_for_unreadable(1).await?;
        ensure!(call(&trusting(&first)?).await?.status() == StatusCode::ACCEPTED);
        let (.., second) = certificate(fixture.scratch.path())?;
        eventually(Duration::from_secs(60), async || {
            ensure!(call(&trusting(&second)?).await?.status() == StatusCode::ACCEPTED);
            Ok(())
        })
        .await?;
        ensure!(call(&trusting(&first)?).await.is_err(), "the old certificate is still used");
        wait_for_unreadable(0).await?;
        Ok(())
    })
}
