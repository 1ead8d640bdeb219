//! Makes a client from a kubeconfig in a Secret. A kubeconfig is untrusted input: a user who may write the Secret
//! must get nothing from the controller but a connection to that user's cluster.
//!
//! * A kubeconfig that runs a program or reads a file on the controller's machine is rejected. A flag allows
//!   programs.
//! * Only https with a checked certificate is allowed. So the controller calls no plain-http server, such as the
//!   metadata service of a cloud, and sends no credentials to a server that only claims to be the cluster.
//! * No proxy is used, neither one of the kubeconfig nor one of the controller's environment.
//! * Impersonation is allowed: the RBAC of the other cluster decides about it.
//! * Errors quote nothing of the text, because errors are shown and the text contains secrets.
//!
//! A NetworkPolicy must limit the addresses that the controller reaches, because a name can resolve to any
//! address.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Secret;
use kube::client::{Body, ConfigExt, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use secrecy::ExposeSecret;
use sluice_api::kubeconfig_key::{MAX_KUBECONFIG_BYTES, kubeconfig_value};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use super::kubeconfig_secrets::KubeconfigSecrets;
use super::limit::limit_errors;

/// The limit for opening a connection. A probe of the cluster times out earlier, with a message of its own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a connection that are read ahead, and of the head of an answer.
const MAX_BUFFER_BYTES: usize = 32 << 10;

/// Why a kubeconfig makes no client, and what to do. The first text is the Secret, as `namespace/name`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KubeconfigError {
    /// The Secret has no [`kubeconfig_value`].
    #[error(
        "Secret {0} has no kubeconfig: put it under the key value (value.yaml and kubeconfig are read too)"
    )]
    NoKey(String),
    /// The text is larger than any real kubeconfig of one cluster.
    #[error(
        "the kubeconfig in Secret {0} has more than {max} KiB: remove the clusters and users that its context does not use \
         (kubectl config view --raw --minify)", max = MAX_KUBECONFIG_BYTES >> 10
    )]
    TooLarge(String),
    /// The text is not a kubeconfig.
    #[error(
        "the kubeconfig in Secret {0} cannot be read ({1}): replace it with a whole, self-contained kubeconfig"
    )]
    Unreadable(String, String),
    /// The kubeconfig runs a program.
    #[error(
        "the kubeconfig in Secret {0} runs a program ({1}), which Sluice does not allow: use a token or a client \
         certificate, or start the controller with --insecure-kubeconfig-exec"
    )]
    Exec(String, String),
    /// The kubeconfig would send credentials unencrypted.
    #[error(
        "the kubeconfig in Secret {0} has a server that is not https: write the https address of its API server"
    )]
    NotHttps(String),
    /// The kubeconfig disables the check of the server's certificate.
    #[error(
        "the kubeconfig in Secret {0} does not check the server's certificate (insecure-skip-tls-verify): remove \
         that, and write the certificate authority to certificate-authority-data"
    )]
    Unverified(String),
    /// The kubeconfig uses a proxy.
    #[error(
        "the kubeconfig in Secret {0} uses a proxy (proxy-url), which Sluice does not allow: remove proxy-url, and \
         name a server that the controller can reach without it"
    )]
    Proxy(String),
    /// The kubeconfig reads a file on the controller's machine.
    #[error(
        "the kubeconfig in Secret {0} names a file ({1}), which Sluice does not read: embed it (kubectl config view \
         --raw --flatten)"
    )]
    File(String, String),
    /// A value with a character that no HTTP header can have. The client would panic.
    #[error(
        "the {1} in the kubeconfig in Secret {0} has a line break or another control character: write it in one line"
    )]
    NoHeader(String, &'static str),
}

/// Returns the kubeconfig of a Secret.
///
/// # Errors
/// When all keys are absent or empty, or the value is too large or not text.
pub fn text(name: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<String, KubeconfigError> {
    let value = kubeconfig_value(|key| data.get(key).map(Vec::as_slice));
    let bytes = value.ok_or_else(|| KubeconfigError::NoKey(name.into()))?;
    if bytes.len() > MAX_KUBECONFIG_BYTES {
        return Err(KubeconfigError::TooLarge(name.into()));
    }
    String::from_utf8(bytes.to_vec())
        .map_err(|_| KubeconfigError::Unreadable(name.into(), "it is not UTF-8 text".into()))
}

/// Returns the data of a Secret.
pub fn data(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}

/// Makes a client from the text of a kubeconfig, and returns it with the secrets that it sends.
///
/// # Errors
/// When the kubeconfig is unreadable or uses what this module rejects. Each error says what to write instead.
pub async fn client(
    secret: &str,
    text: &str,
    allow_exec: bool,
) -> Result<(Client, KubeconfigSecrets), KubeconfigError> {
    let unreadable = |e: &dyn std::fmt::Display| KubeconfigError::Unreadable(secret.into(), e.to_string());
    // The parser's error quotes the text, which contains secrets.
    let kubeconfig =
        Kubeconfig::from_yaml(text).map_err(|_| unreadable(&"it is not the YAML of a kubeconfig"))?;
    check(secret, &kubeconfig, allow_exec)?;
    let options = KubeConfigOptions::default();
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| unreadable(&e))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // The callers retry, and report each error. The client's own retries would report nothing for a long time.
    config.default_retry = false;
    // kube sets the proxy of the environment, which is for forges only.
    config.proxy_url = None;
    let client = bounded_client(&config).map_err(|e| unreadable(&e))?;
    Ok((client, KubeconfigSecrets::new(&config)))
}

/// Makes a client whose connections take little memory, whatever the server sends. The client that kube makes keeps up to
/// 400 KiB of each answer's head.
///
/// # Errors
/// When the configuration has an invalid certificate, key or header.
pub fn bounded_client(config: &Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(config.connect_timeout);
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let http: legacy::Client<_, Body> =
        legacy::Client::builder(TokioExecutor::new()).http1_max_buf_size(MAX_BUFFER_BYTES).build(connector);
    let service = ServiceBuilder::new()
        .map_response(|response: Response<_>| {
            limit_errors(
                response.map(|body| Box::new(BodyExt::map_err(body, BoxError::from)) as Box<DynBody>),
            )
        })
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Rejects a kubeconfig that uses more than a connection to its cluster; see the rules of this module.
fn check(secret: &str, kubeconfig: &Kubeconfig, allow_exec: bool) -> Result<(), KubeconfigError> {
    let reject_file = |path: &Option<String>| match path {
        Some(path) => Err(KubeconfigError::File(secret.into(), path.clone())),
        None => Ok(()),
    };
    for cluster in kubeconfig.clusters.iter().filter_map(|c| c.cluster.as_ref()) {
        reject_file(&cluster.certificate_authority)?;
        if cluster.server.as_ref().is_some_and(|s| !s.to_ascii_lowercase().starts_with("https://")) {
            return Err(KubeconfigError::NotHttps(secret.into()));
        }
        if cluster.insecure_skip_tls_verify == Some(true) {
            return Err(KubeconfigError::Unverified(secret.into()));
        }
        if cluster.proxy_url.as_ref().is_some_and(|p| !p.is_empty()) {
            return Err(KubeconfigError::Proxy(secret.into()));
        }
    }
    for user in kubeconfig.auth_infos.iter().filter_map(|u| u.auth_info.as_ref()) {
        reject_file(&user.client_certificate)?;
        reject_file(&user.client_key)?;
        reject_file(&user.token_file)?;
        let headers = [
            ("token", user.token.as_ref().map(ExposeSecret::expose_secret)),
            ("password", user.password.as_ref().map(ExposeSecret::expose_secret)),
            ("username", user.username.as_deref()),
            ("as", user.impersonate.as_deref()),
        ];
        let is_no_header = |value: Option<&str>| value.is_some_and(|value| value.contains(char::is_control));
        if let Some((field, _)) = headers.into_iter().find(|(_, value)| is_no_header(*value)) {
            return Err(KubeconfigError::NoHeader(secret.into(), field));
        }
        if let Some(exec) = user.exec.as_ref().filter(|_| !allow_exec) {
            let program = exec.command.clone().unwrap_or_default();
            return Err(KubeconfigError::Exec(secret.into(), program));
        }
        if let Some(provider) = user.auth_provider.as_ref().filter(|_| !allow_exec) {
            return Err(KubeconfigError::Exec(secret.into(), provider.name.clone()));
        }
    }
    Ok(())
}
