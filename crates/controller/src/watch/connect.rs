//! From a kubeconfig in a Secret to a client. A kubeconfig is somebody else's input: what would run
//! a program or read a file here is refused unless a flag allows it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use sluice_api::cluster::KUBECONFIG_KEYS;

/// How long a connection may take to be made. A probe gives up sooner, and says so in its own words.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no client, and what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConnectError {
    /// The Secret has none of the keys.
    #[error("Secret {0} has no kubeconfig: put it under the key value (value.yaml and kubeconfig are read too)")]
    NoKey(String),
    /// The text is no kubeconfig.
    #[error("the kubeconfig in Secret {0} cannot be read ({1}): replace it with a whole, self-contained kubeconfig")]
    Unreadable(String, String),
    /// It would run a program.
    #[error(
        "the kubeconfig in Secret {0} runs a program ({1}), which Sluice does not do: use a token or a client \
         certificate, or start the controller with --insecure-kubeconfig-exec"
    )]
    Exec(String, String),
    /// It would read a file here.
    #[error(
        "the kubeconfig in Secret {0} names a file ({1}), which is not here: embed it (kubectl config view --raw \
         --flatten)"
    )]
    File(String, String),
}

/// The kubeconfig of a Secret, under the first key that is there.
pub fn kubeconfig(name: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<String, ConnectError> {
    let found = KUBECONFIG_KEYS.iter().find_map(|key| data.get(*key));
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
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|e| unreadable(&e))?;
    refuse_foreign(secret, &kubeconfig, allow_exec)?;
    let options = KubeConfigOptions::default();
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| unreadable(&e))?;
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|e| unreadable(&e))
}

fn refuse_foreign(secret: &str, kubeconfig: &Kubeconfig, allow_exec: bool) -> Result<(), ConnectError> {
    let file = |path: &Option<String>| match path {
        Some(path) => Err(ConnectError::File(secret.into(), path.clone())),
        None => Ok(()),
    };
    for cluster in kubeconfig.clusters.iter().filter_map(|c| c.cluster.as_ref()) {
        file(&cluster.certificate_authority)?;
    }
    for user in kubeconfig.auth_infos.iter().filter_map(|u| u.auth_info.as_ref()) {
        file(&user.client_certificate)?;
        file(&user.client_key)?;
        file(&user.token_file)?;
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
