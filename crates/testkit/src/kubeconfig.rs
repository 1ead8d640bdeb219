//! Kubeconfigs that contain their certificates and keys: Sluice rejects kubeconfigs that name files.

use crate::certificates::Identity;
use anyhow::{Context, Result};
use base64::Engine;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The credentials of a kubeconfig's user.
pub(crate) enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// Returns a kubeconfig with one cluster, one user and one context, all named `name`.
pub(crate) fn kubeconfig(name: &str, server: &str, authority: &str, credential: &Credential<'_>) -> String {
    let ca = encode(authority);
    let user = match credential {
        Credential::Token(token) => format!("token: {token}"),
        Credential::Certificate(identity) => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            encode(&identity.certificate),
            encode(&identity.key)
        ),
    };
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
         clusters:\n- name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         users:\n- name: {name}\n  user:\n    {user}\n\
         contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n"
    )
}

fn encode(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns a client for the current context of a kubeconfig. The client belongs to the runtime of the caller: make one
/// for each test, and keep none in a static.
///
/// # Errors
/// The text is not a kubeconfig, or names a cluster or user that is not in it.
pub async fn connect(kubeconfig: &str) -> Result<kube::Client> {
    install_tls_provider();
    let parsed = Kubeconfig::from_yaml(kubeconfig).context("this is not a kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// Makes ring the TLS provider of the process. rustls does not choose if two are compiled in.
pub(crate) fn install_tls_provider() {
    // An error means that there is a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
