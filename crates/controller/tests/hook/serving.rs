//! A hook server over an API server that answers as a test says.

use std::sync::Arc;

use axum::Router;
use kube::{Client, Config};
use sluice_api::Pipeline;
use sluice_controller::hook::{Directory, HookOptions, HookServer, Proxies};
use sluice_controller::metrics::Metrics;
use sluice_testkit::Scratch;

/// A hook server that knows these pipelines of the namespace `apps`, and asks `api` whatever it asks an API
/// server. No peer has a limit; 0 is no limit for a pipeline either.
pub async fn serving(
    scratch: &Scratch,
    pipelines: impl IntoIterator<Item = Pipeline>,
    pipeline_rate: u32,
    api: Router,
) -> HookServer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move { axum::serve(listener, api).await });
    serving_on(scratch, pipelines, pipeline_rate, Client::try_from(Config::new(url)).unwrap())
}

/// The same, with the API server that a client is connected to.
pub fn serving_on(
    scratch: &Scratch,
    pipelines: impl IntoIterator<Item = Pipeline>,
    pipeline_rate: u32,
    client: Client,
) -> HookServer {
    let directory = Arc::new(Directory::default());
    for pipeline in pipelines {
        let key = crate::callbacks::key("apps", pipeline.metadata.name.as_deref().unwrap());
        directory.put(key, Arc::new(pipeline));
    }
    directory.complete();
    let delivery = sluice_delivery::DeliveryOptions::new(scratch.folder("cache").unwrap());
    let metrics = Arc::new(Metrics::new(sluice_delivery::Delivery::new(delivery).unwrap()));
    let (tell, heard) = tokio::sync::mpsc::unbounded_channel();
    std::mem::forget(heard);
    let options = HookOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        certificate: None,
        proxies: Proxies::default(),
        peer_rate: 0,
        pipeline_rate,
        connections: HookOptions::CONNECTIONS,
        callbacks: true,
    };
    HookServer::new(&options, client, directory, metrics, tell)
}
