//! From a kubeconfig in a Secret to a client. A kubeconfig is somebody else's input, and whoever may
//! write the Secret must not get more out of the controller than a connection to a cluster of his:
//!
//! * what would run a program or read a file here is refused; a flag allows the programs;
//! * only https with a certificate that is checked: nothing that speaks plain http, as the metadata
//!   services of clouds do, is ever asked anything, and no credentials go out to who merely claims to
//!   be the cluster;
//! * no proxy: neither one that the kubeconfig names nor one from the controller's own environment;
//! * impersonation is left in: what it may do is decided by the other cluster's own rules;
//! * no word of the text gets into an error, since errors are shown and the text holds secrets.
//!
//! Which addresses may be reached is for a NetworkPolicy to say: names can resolve to anything.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use secrecy::ExposeSecret;
use sluice_api::cluster::KUBECONFIG_KEYS;
use tower::util::MapResponseLayer;

use super::limit::limit_errors;

/// How long a connection may take to be made. A probe gives up sooner, and says so in its own words.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no client, and what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConnectError {
    /// The Secret has none of the keys.
    #[error(
        "Secret {0} has no kubeconfig: put it under the key value (value.yaml and kubeconfig are read too)"
    )]
    NoKey(String),
    /// The text is no kubeconfig.
    #[error(
        "the kubeconfig in Secret {0} cannot be read ({1}): replace it with a whole, self-contained kubeconfig"
    )]
    Unreadable(String, String),
    /// It would run a program.
    #[error(
        "the kubeconfig in Secret {0} runs a program ({1}), which Sluice does not do: use a token or a client \
         certificate, or start the controller with --insecure-kubeconfig-exec"
    )]
    Exec(String, String),
    /// It would send credentials in the clear.
    #[error(
        "the kubeconfig in Secret {0} has a server that is not https: write the https address of its API server"
    )]
    NotHttps(String),
    /// It would not look whom it talks to.
    #[error(
        "the kubeconfig in Secret {0} does not check the server's certificate (insecure-skip-tls-verify): remove \
         that, and put the certificate authority under certificate-authority-data"
    )]
    Unverified(String),
    /// It would go a way round.
    #[error(
        "the kubeconfig in Secret {0} goes through a proxy (proxy-url), which Sluice does not do: remove that, and \
         name a server that can be reached from here"
    )]
    Proxy(String),
    /// It would read a file here.
    #[error(
        "the kubeconfig in Secret {0} names a file ({1}), which is not here: embed it (kubectl config view --raw \
         --flatten)"
    )]
    File(String, String),
    /// No header can have it.
    #[error("the {1} in the kubeconfig in Secret {0} has more than one line: write it in one line")]
    Lines(String, &'static str),
}

/// The kubeconfig of a Secret, under the first key that has one.
///
/// # Errors
/// When no key has one, or it is not text.
pub fn kubeconfig(name: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<String, ConnectError> {
    let mut found = KUBECONFIG_KEYS.iter().filter_map(|key| data.get(*key));
    let found = found.find(|text| !text.trim_ascii().is_empty());
    let bytes = found.ok_or_else(|| ConnectError::NoKey(name.into()))?;
    String::from_utf8(bytes.clone())
        .map_err(|_| ConnectError::Unreadable(name.into(), "it is not UTF-8 text".into()))
}

/// The data of a Secret.
pub fn data(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}

/// A client for a kubeconfig.
///
/// # Errors
/// When it is not self-contained or not readable; each error says what to put there instead.
pub async fn client(secret: &str, text: &str, allow_exec: bool) -> Result<Client, ConnectError> {
    let unreadable = |e: &dyn std::fmt::Display| ConnectError::Unreadable(secret.into(), e.to_string());
    // The parser's own words quote the text.
    let kubeconfig =
        Kubeconfig::from_yaml(text).map_err(|_| unreadable(&"it is not the YAML of a kubeconfig"))?;
    refuse_foreign(secret, &kubeconfig, allow_exec)?;
    let options = KubeConfigOptions::default();
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| unreadable(&e))?;
    config.connect_timeout = Some(CONNECT);
    // Whoever asks has a pace of its own, and tells what the server said instead of falling silent.
    config.default_retry = false;
    // kube takes the environment's: that one is for forges, and clusters are reached without.
    config.proxy_url = None;
    let builder = ClientBuilder::try_from(config).map_err(|e| unreadable(&e))?;
    Ok(builder.with_layer(&MapResponseLayer::new(limit_errors)).build())
}

fn refuse_foreign(secret: &str, kubeconfig: &Kubeconfig, allow_exec: bool) -> Result<(), ConnectError> {
    let file = |path: &Option<String>| match path {
        Some(path) => Err(ConnectError::File(secret.into(), path.clone())),
        None => Ok(()),
    };
    for cluster in kubeconfig.clusters.iter().filter_map(|c| c.cluster.as_ref()) {
        file(&cluster.certificate_authority)?;
        if cluster.server.as_ref().is_some_and(|s| !s.to_ascii_lowercase().starts_with("https://")) {
            return Err(ConnectError::NotHttps(secret.into()));
        }
        if cluster.insecure_skip_tls_verify == Some(true) {
            return Err(ConnectError::Unverified(secret.into()));
        }
        if cluster.proxy_url.as_ref().is_some_and(|p| !p.is_empty()) {
            return Err(ConnectError::Proxy(secret.into()));
        }
    }
    for user in kubeconfig.auth_infos.iter().filter_map(|u| u.auth_info.as_ref()) {
        file(&user.client_certificate)?;
        file(&user.client_key)?;
        file(&user.token_file)?;
        let headers = [
            ("token", user.token.as_ref().map(ExposeSecret::expose_secret)),
            ("password", user.password.as_ref().map(ExposeSecret::expose_secret)),
            ("username", user.username.as_deref()),
            ("as", user.impersonate.as_deref()),
        ];
        let has_lines = |value: Option<&str>| value.is_some_and(|value| value.contains(['\r', '\n']));
        if let Some((what, _)) = headers.into_iter().find(|(_, value)| has_lines(*value)) {
            return Err(ConnectError::Lines(secret.into(), what));
        }
        if let Some(exec) = user.exec.as_ref().filter(|_| !allow_exec) {
            let program = exec.command.clone().unwrap_or_default();
            return Err(ConnectError::Exec(secret.into(), program));
        }
        if let Some(provider) = user.auth_provider.as_ref().filter(|_| !allow_exec) {
            return Err(ConnectError::Exec(secret.into(), provider.name.clone()));
        }
    }
    Ok(())
}
