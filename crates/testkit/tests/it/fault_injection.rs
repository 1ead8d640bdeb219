//! Each fault has its effect on a call, and the forge finds violations.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use sluice_testkit::fault_injection::{
    ApiServerProxy, ChaosForge, Fault, FaultPlan, HostedRepo, PullState, TcpProxy, WriteFault,
};
use sluice_testkit::{connect, shared};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Calls the API of a repository. An error is a call without a complete answer.
async fn call(method: &str, hosted: &HostedRepo, path: &str, body: Value) -> Result<(u16, String)> {
    let url = hosted.url.replace("/acme/", "/api/v3/repos/acme/").replace(".git", path);
    // The timeout is for calls without an answer.
    let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
    let request = client.request(method.parse()?, url).bearer_auth(ChaosForge::TOKEN);
    let request = if body.is_null() { request } else { request.json(&body) };
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

fn draft(base: &str) -> Value {
    json!({"title": "Promote", "body": "", "head": "sluice/a/b/c", "base": base})
}

fn repository(forge: &ChaosForge, name: &str) -> Result<HostedRepo> {
    let hosted = forge.create_repo(name, &[("a.yaml", "a: 1\n")])?;
    hosted.repo.commit("sluice/a/b/c", "Promote\n\nSluice-Promotion: a/b\n", &[("a.yaml", "a: 2\n")])?;
    Ok(hosted)
}

#[tokio::test]
async fn each_fault_has_its_effect_on_a_call() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let forge = ChaosForge::start()?;
    for (i, fault) in Fault::ALL.into_iter().enumerate() {
        let hosted = repository(&forge, &format!("r{i}"))?;
        forge.fault_proxy().set_plan(FaultPlan::Once { call: 2, fault });
        ensure!(call("GET", &hosted, "", Value::Null).await?.0 == 200);
        let outcome = call("POST", &hosted, "/pulls", draft("main")).await;
        match (fault, &outcome) {
            (Fault::Slow, Ok((201, _))) | (Fault::Hidden, Ok((502, _))) => {}
            (Fault::Refused(status), Ok((answered, _))) if status == *answered => {}
            (Fault::Cut, Ok((201, text))) if serde_json::from_str::<Value>(text).is_err() => {}
            (Fault::Dropped | Fault::Lost | Fault::Half | Fault::Silent, Err(_)) => {}
            _ => anyhow::bail!("{fault:?}: {outcome:?}"),
        }
        ensure!((forge.requests(&hosted).len() == 1) == fault.takes_effect(), "{fault:?}");
        let calls = forge.fault_proxy().calls();
        ensure!((calls[1].operation.as_str(), calls[1].fault) == ("POST pulls", Some(fault)), "{calls:?}");
        ensure!(forge.fault_proxy().faults() == 1);
    }
    forge.check_invariants()
}

#[tokio::test]
async fn the_forge_finds_violations() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let forge = ChaosForge::start()?;
    let found = |text: &str| forge.violations().iter().any(|violation| violation.contains(text));

    let twice = repository(&forge, "twice")?;
    twice.repo.commit("release", "other", &[("b.yaml", "b: 1\n")])?;
    ensure!(call("POST", &twice, "/pulls", draft("main")).await?.0 == 201);
    ensure!(call("POST", &twice, "/pulls", draft("main")).await?.0 == 422);
    ensure!(call("POST", &twice, "/pulls", draft("release")).await?.0 == 201);
    ensure!(found("2 open change requests"), "{:?}", forge.violations());

    let unreviewed = repository(&forge, "unreviewed")?;
    ensure!(call("POST", &unreviewed, "/pulls", draft("main")).await?.0 == 201);
    let other = json!({"sha": "0".repeat(40)});
    ensure!(call("PUT", &unreviewed, "/pulls/1/merge", other).await?.0 == 409);
    ensure!(forge.requests(&unreviewed)[0].state == PullState::Open && !found("without a review"));
    ensure!(call("PUT", &unreviewed, "/pulls/1/merge", json!({})).await?.0 == 200);
    ensure!(found("without a review"), "{:?}", forge.violations());

    let again = repository(&forge, "again")?;
    ensure!(call("POST", &again, "/pulls", draft("main")).await?.0 == 201);
    ensure!(forge.merge(&again) == 1 && !found("in main"));
    again.repo.commit("main", "Promote\n\nSluice-Promotion: a/b\n", &[("a.yaml", "a: 3\n")])?;
    ensure!(!found("in main"), "main was not checked yet");
    ensure!(forge.check_invariants().is_err() && found("a/b is in main twice"), "{:?}", forge.violations());
    Ok(())
}

#[tokio::test]
async fn a_tcp_proxy_can_be_stalled_and_disconnected() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut read, mut write) = stream.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
        }
    });
    let proxy = TcpProxy::to(port)?;
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await?;
    let mut echo = [0; 3];
    stream.write_all(b"one").await?;
    stream.read_exact(&mut echo).await?;
    proxy.stall(true);
    stream.write_all(b"two").await?;
    let nothing = tokio::time::timeout(Duration::from_millis(100), stream.read_exact(&mut echo)).await;
    ensure!(nothing.is_err(), "data came through a stalled proxy");
    proxy.stall(false);
    stream.read_exact(&mut echo).await?;
    ensure!(&echo == b"two");
    proxy.disconnect();
    ensure!(matches!(stream.read(&mut echo).await, Ok(0) | Err(_)), "the connection is still open");
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await?;
    stream.write_all(b"new").await?;
    stream.read_exact(&mut echo).await?;
    ensure!(&echo == b"new");
    Ok(())
}

#[tokio::test]
async fn every_write_meets_its_faults_before_it_passes_and_reads_pass() -> Result<()> {
    let hub = &shared().await?.hub;
    hub.namespace("conflicts").await?;
    let conflicts = ApiServerProxy::in_front_of(hub, &[WriteFault::Conflict, WriteFault::Lost])?;
    let through: Api<ConfigMap> = Api::namespaced(connect(&conflicts.kubeconfig()).await?, "conflicts");
    let exists = async |name: &str| anyhow::Ok(through.get_opt(name).await?.is_some());
    let params = PostParams::default();
    for name in ["a", "b"] {
        let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match through.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && !status.is_already_exists() => {}
            other => anyhow::bail!("{other:?}"),
        }
        ensure!(!exists(name).await?, "{name} was rejected and exists");
        match through.create(&params, &object).await {
            Err(kube::Error::Api(status)) => anyhow::bail!("an answer came: {status:?}"),
            Err(_) => ensure!(exists(name).await?, "{name} was created and does not exist"),
            Ok(_) => anyhow::bail!("an answer came"),
        }
        match through.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => anyhow::bail!("{other:?}"),
        }
    }
    ensure!(conflicts.injected() == 4, "{}", conflicts.injected());
    Ok(())
}
