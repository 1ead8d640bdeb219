//! Signed calls of the hook server, as of notification-controller, over persistent connections.

use crate::controller::ControllerProcess;
use crate::delivery_fixture::DeliveryCluster;
use crate::objects::{HELM_RELEASE, VERSION, namespace};
use crate::options::BenchOptions;
use crate::process_stats::processor_time;
use crate::table::{BudgetVerdict, ResultTable, percentile, progress, time};
use anyhow::{Result, ensure};
use ring::hmac;
use serde_json::json;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The number of concurrent connections.
const CONNECTIONS: usize = 32;
/// The duration of the warm-up, and of the measurement.
const DURATIONS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// The application in the calls.
const APPLICATION: &str = "hooked";
/// The HMAC key of its pipeline.
const KEY: &str = "a key of 32 bytes and of no value";

/// Measures calls: each connection calls again after each answer.
pub async fn measure(
    options: &BenchOptions,
    cluster: &DeliveryCluster,
    table: &mut ResultTable,
) -> Result<()> {
    let strategy = json!({"notification": {}, "secretRef": {"name": "git"}});
    let application = cluster.application(APPLICATION, json!({"hmac-key": KEY}), strategy).await?;
    let address = ControllerProcess::free_address()?;
    let hook = format!("--hook-addr={address}");
    let arguments = [hook.as_str(), "--hook-peer-rate=0", "--hook-pipeline-rate=0"];
    let mut controller = ControllerProcess::start_with(options, &cluster.cluster, &arguments)?;
    controller.settled(0).await?;
    application.until_observed().await?;
    let call = call(&address);
    let [warm_up, measured] = DURATIONS;
    progress(&format!("{CONNECTIONS} connections call for {} s", measured.as_secs()));
    call_concurrently(&address, &call, warm_up).await?;
    let (started, before) = (Instant::now(), processor_time(controller.pid())?);
    let waits = call_concurrently(&address, &call, measured).await?;
    let (took, used) = (started.elapsed(), processor_time(controller.pid())? - before);
    let rate = waits.len() as f64 / took.as_secs_f64();
    let at = |percent| percentile(&waits, percent);
    let good = rate >= 20_000.0 && at(99) <= Duration::from_millis(5);
    let text = format!("{rate:.0} a second, p50 {}, p99 {}", time(at(50)), time(at(99)));
    let what = format!("signed webhook, {CONNECTIONS} connections");
    table.add(&what, "≥ 20,000 a second, p99 ≤ 5 ms", text, BudgetVerdict::of(good));
    let each = used.checked_div(u32::try_from(waits.len())?).unwrap_or_default();
    let shares = used.as_secs_f64() / took.as_secs_f64() * 100.0;
    let text = format!("{} a call, {shares:.0} % of a processor", time(each));
    table.add("  processor time of the controller", "", text, BudgetVerdict::None);
    Ok(())
}

/// Returns one call, head and body.
fn call(address: &str) -> Vec<u8> {
    let body = json!({
        "involvedObject": {"kind": "HelmRelease", "namespace": namespace(APPLICATION, "dev"), "name": APPLICATION,
            "uid": "7d0cdc51-ddcf-4743-b223-83ca5c699632", "apiVersion": HELM_RELEASE, "resourceVersion": "1214"},
        "severity": "info",
        "timestamp": "2026-11-20T10:00:00Z",
        "message": format!("Helm upgrade succeeded for release {APPLICATION}.v2 with chart {APPLICATION}@{VERSION}"),
        "reason": "UpgradeSucceeded",
        "metadata": {"helm.toolkit.fluxcd.io/revision": VERSION, "revision": VERSION, "cluster": "dev"},
        "reportingController": "helm-controller",
        "reportingInstance": "helm-controller-7f9c8d5b4-x2x7k",
    })
    .to_string();
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes()), body.as_bytes());
    let hex = signature.as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!(
        "POST /promotion/{APPLICATION}/{APPLICATION}/dev HTTP/1.1\r\nHost: {address}\r\n\
         User-Agent: Go-http-client/1.1\r\nContent-Type: application/json\r\nGotk-Component: helm-controller\r\n\
         X-Signature: sha256={hex}\r\nContent-Length: {}\r\nAccept-Encoding: gzip\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Calls over all connections for a duration; returns the times of all answers.
async fn call_concurrently(address: &str, call: &[u8], during: Duration) -> Result<Vec<Duration>> {
    let end = Instant::now() + during;
    let calls = (0..CONNECTIONS).map(|_| {
        let (address, call) = (address.to_string(), call.to_vec());
        tokio::spawn(async move { call_repeatedly(&address, &call, end).await })
    });
    let mut waits = Vec::new();
    for ended in futures::future::join_all(calls).await {
        waits.extend(ended??);
    }
    Ok(waits)
}

async fn call_repeatedly(address: &str, call: &[u8], end: Instant) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut waits, mut answer) = (Vec::new(), Vec::with_capacity(4096));
    while Instant::now() < end {
        let started = Instant::now();
        stream.write_all(call).await?;
        answer.clear();
        // The answer has no body: it ends with its head.
        while !answer.ends_with(b"\r\n\r\n") {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the connection was closed");
        }
        ensure!(answer.starts_with(b"HTTP/1.1 202 "), "not accepted: {}", String::from_utf8_lossy(&answer));
        waits.push(started.elapsed());
    }
    Ok(waits)
}
