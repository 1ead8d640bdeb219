//! A hook server with an API server that a test provides.

use std::sync::Arc;

use axum::Router;
use kube::{Client, Config};
use sluice_api::Pipeline;
use sluice_controller::hook::{Directory, HookOptions, HookServer, Proxies};
use sluice_controller::metrics::Metrics;
use sluice_testkit::Scratch;

/// A hook server with these pipelines of the namespace `apps`, which sends its requests to the API server `api`.
/// Peers have no rate limit, and neither have pipelines if `pipeline_rate` is 0.
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

/// The same with the API server of a client.
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
    let (tx, rx) = tokio::sync::mpsc::unbounded_channel();
    // Sending fails if the receiver is dropped.
    std::mem::forget(rx);
    let options = HookOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        certificate: None,
        proxies: Proxies::default(),
        peer_rate: 0,
        pipeline_rate,
        connections: HookOptions::CONNECTIONS,
        callbacks: true,
    };
    HookServer::new(&options, client, directory, metrics, tx)
}
