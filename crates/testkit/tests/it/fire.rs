//! The fire itself: what befalls a call is what the plan says, and the forge sees what must never be.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use sluice_testkit::fire::{Blow, Clash, Fault, Forge, Hosted, Plan, State, Wire};
use sluice_testkit::{connect, shared};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Calls the API of a repository; an error is a call without a whole answer.
async fn call(method: &str, of: &Hosted, path: &str, body: Value) -> Result<(u16, String)> {
    let url = of.url.replace("/acme/", "/api/v3/repos/acme/").replace(".git", path);
    // What never answers is given up on.
    let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
    let request = client.request(method.parse()?, url).bearer_auth(Forge::TOKEN).json(&body);
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

fn draft(base: &str) -> Value {
    json!({"title": "Promote", "body": "", "head": "sluice/a/b/c", "base": base})
}

fn repository(forge: &Forge, name: &str) -> Result<Hosted> {
    let hosted = forge.create_repo(name, &[("a.yaml", "a: 1\n")])?;
    hosted.repo.commit("sluice/a/b/c", "Promote\n\nSluice-Promotion: a/b\n", &[("a.yaml", "a: 2\n")])?;
    Ok(hosted)
}

#[tokio::test]
async fn each_fault_does_to_a_call_what_it_says() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let forge = Forge::start()?;
    for (i, fault) in Fault::ALL.into_iter().enumerate() {
        let hosted = repository(&forge, &format!("r{i}"))?;
        forge.door().plan(Plan::Once { call: 2, fault });
        ensure!(call("GET", &hosted, "", Value::Null).await?.0 == 200);
        let met = call("POST", &hosted, "/pulls", draft("main")).await;
        match (fault, &met) {
            (Fault::Slow, Ok((201, _))) | (Fault::Hidden, Ok((502, _))) => {}
            (Fault::Refused(status), Ok((told, _))) if status == *told => {}
            (Fault::Cut, Ok((201, text))) if serde_json::from_str::<Value>(text).is_err() => {}
            (Fault::Dropped | Fault::Lost | Fault::Half | Fault::Silent, Err(_)) => {}
            _ => anyhow::bail!("{fault:?}: {met:?}"),
        }
        ensure!((forge.requests(&hosted).len() == 1) == fault.takes_effect(), "{fault:?}");
        let calls = forge.door().calls();
        ensure!((calls[1].operation.as_str(), calls[1].fault) == ("POST pulls", Some(fault)), "{calls:?}");
        ensure!(forge.door().faults() == 1);
    }
    forge.unbroken()
}

#[tokio::test]
async fn the_forge_sees_what_must_never_be() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let forge = Forge::start()?;
    let told = |words: &str| forge.broken().iter().any(|broken| broken.contains(words));

    let twice = repository(&forge, "twice")?;
    twice.repo.commit("release", "other", &[("b.yaml", "b: 1\n")])?;
    ensure!(call("POST", &twice, "/pulls", draft("main")).await?.0 == 201);
    ensure!(call("POST", &twice, "/pulls", draft("main")).await?.0 == 422);
    ensure!(call("POST", &twice, "/pulls", draft("release")).await?.0 == 201);
    ensure!(told("2 open change requests"), "{:?}", forge.broken());

    let unseen = repository(&forge, "unseen")?;
    ensure!(call("POST", &unseen, "/pulls", draft("main")).await?.0 == 201);
    let other = json!({"sha": "0".repeat(40)});
    ensure!(call("PUT", &unseen, "/pulls/1/merge", other).await?.0 == 409);
    ensure!(forge.requests(&unseen)[0].state == State::Open && !told("nobody had looked at"));
    ensure!(call("PUT", &unseen, "/pulls/1/merge", json!({})).await?.0 == 200);
    ensure!(told("nobody had looked at"), "{:?}", forge.broken());

    let again = repository(&forge, "again")?;
    ensure!(call("POST", &again, "/pulls", draft("main")).await?.0 == 201);
    ensure!(forge.merge(&again) == 1 && !told("in main"));
    again.repo.commit("main", "Promote\n\nSluice-Promotion: a/b\n", &[("a.yaml", "a: 3\n")])?;
    ensure!(!told("in main"), "nobody has looked yet");
    ensure!(forge.unbroken().is_err() && told("a/b twice in main"), "{:?}", forge.broken());
    Ok(())
}

#[tokio::test]
async fn a_wire_can_be_cut_and_go_dead() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut read, mut write) = stream.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
        }
    });
    let wire = Wire::to(port)?;
    let mut stream = TcpStream::connect(("127.0.0.1", wire.port())).await?;
    let mut echo = [0; 3];
    stream.write_all(b"one").await?;
    stream.read_exact(&mut echo).await?;
    wire.dead(true);
    stream.write_all(b"two").await?;
    let nothing = tokio::time::timeout(Duration::from_millis(100), stream.read_exact(&mut echo)).await;
    ensure!(nothing.is_err(), "something came over a dead wire");
    wire.dead(false);
    stream.read_exact(&mut echo).await?;
    ensure!(&echo == b"two");
    wire.cut();
    ensure!(matches!(stream.read(&mut echo).await, Ok(0) | Err(_)), "the wire was to be cut");
    let mut stream = TcpStream::connect(("127.0.0.1", wire.port())).await?;
    stream.write_all(b"new").await?;
    stream.read_exact(&mut echo).await?;
    ensure!(&echo == b"new");
    Ok(())
}

#[tokio::test]
async fn every_write_clashes_before_it_passes_and_reads_do_not() -> Result<()> {
    let hub = &shared().await?.hub;
    hub.namespace("clash").await?;
    let clash = Clash::before(hub, &[Blow::Conflict, Blow::Lost])?;
    let through: Api<ConfigMap> = Api::namespaced(connect(&clash.kubeconfig()).await?, "clash");
    let stands = async |name: &str| anyhow::Ok(through.get_opt(name).await?.is_some());
    let params = PostParams::default();
    for name in ["a", "b"] {
        let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match through.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && !status.is_already_exists() => {}
            other => anyhow::bail!("{other:?}"),
        }
        ensure!(!stands(name).await?, "{name} was refused and stands");
        match through.create(&params, &object).await {
            Err(kube::Error::Api(status)) => anyhow::bail!("{status:?}, where no answer was to come"),
            Err(_) => ensure!(stands(name).await?, "{name} was done and does not stand"),
            Ok(_) => anyhow::bail!("an answer came"),
        }
        match through.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => anyhow::bail!("{other:?}"),
        }
    }
    ensure!(clash.dealt() == 4, "{}", clash.dealt());
    Ok(())
}
