//! Signed calls of the hook server, as notification-controller makes them, over connections that stay.

use crate::controller::Controller;
use crate::delivery::Ground;
use crate::objects::{HELM_RELEASE, VERSION, namespace};
use crate::options::Options;
use crate::outside::processor_time;
use crate::table::{Table, Verdict, percentile, say, time};
use anyhow::{Result, ensure};
use ring::hmac;
use serde_json::json;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Connections that call side by side.
const CONNECTIONS: usize = 32;
/// How long calls go on before they are counted, and while they are.
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// The application whose Flux calls.
const APPLICATION: &str = "hooked";
/// The key of its pipeline.
const KEY: &str = "a key of 32 bytes and of no value";

/// Calls as fast as answers come.
pub async fn measure(options: &Options, ground: &Ground, table: &mut Table) -> Result<()> {
    let strategy = json!({"notification": {}, "secretRef": {"name": "git"}});
    let application = ground.application(APPLICATION, json!({"hmac-key": KEY}), strategy).await?;
    let address = Controller::free_address()?;
    let hook = format!("--hook-addr={address}");
    let arguments = [hook.as_str(), "--hook-peer-rate=0", "--hook-pipeline-rate=0"];
    let mut controller = Controller::start_with(options, &ground.cluster, &arguments)?;
    controller.settled(0).await?;
    application.observed().await?;
    let call = call(&address);
    let [warm, counted] = TIMES;
    say(&format!("{CONNECTIONS} connections call for {} s", counted.as_secs()));
    side_by_side(&address, &call, warm).await?;
    let (begun, before) = (Instant::now(), processor_time(controller.pid())?);
    let waits = side_by_side(&address, &call, counted).await?;
    let (took, used) = (begun.elapsed(), processor_time(controller.pid())? - before);
    let rate = waits.len() as f64 / took.as_secs_f64();
    let at = |percent| percentile(&waits, percent);
    let good = rate >= 15_000.0 && at(99) <= Duration::from_millis(8);
    let text = format!("{rate:.0} a second, p50 {}, p99 {}", time(at(50)), time(at(99)));
    let what = format!("signed webhook, {CONNECTIONS} connections");
    table.add(&what, "≥ 15,000 a second, p99 ≤ 8 ms", text, Verdict::of(good));
    let each = used.checked_div(u32::try_from(waits.len())?).unwrap_or_default();
    let shares = used.as_secs_f64() / took.as_secs_f64() * 100.0;
    let text = format!("{} a call, {shares:.0} % of a processor", time(each));
    table.add("  the controller's own processor time", "", text, Verdict::None);
    Ok(())
}

/// One call, head and body.
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

/// Calls over all connections for a while; how long each answer took.
async fn side_by_side(address: &str, call: &[u8], during: Duration) -> Result<Vec<Duration>> {
    let end = Instant::now() + during;
    let calls = (0..CONNECTIONS).map(|_| {
        let (address, call) = (address.to_string(), call.to_vec());
        tokio::spawn(async move { one_after_the_other(&address, &call, end).await })
    });
    let mut waits = Vec::new();
    for ended in futures::future::join_all(calls).await {
        waits.extend(ended??);
    }
    Ok(waits)
}

async fn one_after_the_other(address: &str, call: &[u8], end: Instant) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut waits, mut answer) = (Vec::new(), Vec::with_capacity(4096));
    while Instant::now() < end {
        let begun = Instant::now();
        stream.write_all(call).await?;
        answer.clear();
        // Accepted without a word: the answer ends with its head.
        while !answer.ends_with(b"\r\n\r\n") {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the connection was closed");
        }
        ensure!(answer.starts_with(b"HTTP/1.1 202 "), "not accepted: {}", String::from_utf8_lossy(&answer));
        waits.push(begun.elapsed());
    }
    Ok(waits)
}
