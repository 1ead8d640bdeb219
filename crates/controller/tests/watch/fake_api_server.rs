//! An API server whose answers a test chooses. A real API server does not give such answers on demand.

use anyhow::Result;
use axum::Router;
use kube::Config;

/// The last event of a watch whose resource version has expired, as one line.
pub const EXPIRED: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"WatchFailure","code":410,"#,
    r#""reason":"Expired","message":"too old"}}"#,
    "\n"
);

/// Starts a server with these answers. Returns the configuration of a client that does not retry.
pub async fn start(answers: Router) -> Result<Config> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?).parse()?;
    tokio::spawn(async move { axum::serve(listener, answers).await });
    let mut config = Config::new(url);
    config.default_retry = false;
    Ok(config)
}
