//! People who read the API and the pages, and how long an answer takes them.

use anyhow::{Context, Result, ensure};
use reqwest::RequestBuilder;
use reqwest::header::ACCEPT_ENCODING;
use sluice_testkit::Cluster;
use std::time::{Duration, Instant};

/// Lets them see everything.
const MAY_VIEW: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'system:serviceaccounts'}]
";

/// Creates users who may see everything, and returns their tokens. Each has a namespace of its own: the service accounts of
/// a namespace share their limits.
///
/// # Errors
/// The API server rejects an object.
pub async fn viewers(hub: &Cluster, count: usize) -> Result<Vec<String>> {
    hub.apply_yaml(MAY_VIEW).await?;
    let mut tokens = Vec::new();
    for n in 0..count {
        let name = format!("viewer-{n:02}");
        hub.namespace(&name).await?;
        tokens.push(hub.service_account_token(&name, &name).await?);
    }
    Ok(tokens)
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct ReadAnswer {
    /// The time from the request to the last byte.
    pub took: Duration,
    /// The size as it was sent, in bytes.
    pub size: usize,
}

/// Sends a request as a browser does, which reads compressed answers, and reads the whole answer.
///
/// # Errors
/// There is no answer, or it says that something is wrong.
pub async fn read(request: RequestBuilder) -> Result<ReadAnswer> {
    let started = Instant::now();
    let answer = request.header(ACCEPT_ENCODING, "gzip").send().await?.error_for_status()?;
    ensure!(!answer.url().path().starts_with("/sign-in"), "nobody is signed in");
    let size = answer.bytes().await.context("the answer has no end")?.len();
    Ok(ReadAnswer { took: started.elapsed(), size })
}
