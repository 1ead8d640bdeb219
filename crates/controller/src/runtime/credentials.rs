//! Reads the credentials of a side effect.

use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt};
use sluice_api::secret_use::SecretUse;
use sluice_delivery::{Credentials, DeliveryError, DeliveryStrategy};

use crate::act::ActError;
use crate::secret::{self, SecretVersion};
use crate::watch::read_error::api_error_message;

/// The credentials of an order.
pub(super) struct ReadCredentials {
    /// The version of the Secret; `None` if there is none, or if the API server did not answer.
    pub version: Option<SecretVersion>,
    /// The credentials, or why the Secret cannot be read or must not be used for the strategy.
    pub result: Result<Credentials, ActError>,
}

/// Reads the credentials of an order from the Secret of this name. Without a Secret there are none.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    strategy: &DeliveryStrategy,
    secret: Option<String>,
) -> ReadCredentials {
    let Some((name, wanted)) = secret.zip(secret::use_of(strategy)) else {
        return ReadCredentials { version: None, result: Ok(Credentials::default()) };
    };
    let read = secret::read(client, namespace, &name).await;
    ReadCredentials { version: version_of(&read), result: credentials(read, namespace, &name, wanted) }
}

/// Reads the version of a Secret, without its values. `None` if the API server did not answer.
pub(super) async fn read_version(client: &Client, namespace: &str, name: &str) -> Option<SecretVersion> {
    version_of(&secret::read_metadata(client, namespace, name).await)
}

/// Returns the version in the answer to a read of a Secret.
fn version_of<T: ResourceExt>(read: &Result<T, kube::Error>) -> Option<SecretVersion> {
    match read {
        Ok(secret) => Some(SecretVersion(secret.resource_version())),
        Err(kube::Error::Api(error)) if matches!(error.code, 403 | 404) => Some(SecretVersion(None)),
        Err(_) => None,
    }
}

/// Returns the credentials in the answer to a read of a Secret.
fn credentials(
    read: Result<Secret, kube::Error>,
    namespace: &str,
    name: &str,
    wanted: SecretUse,
) -> Result<Credentials, ActError> {
    match read {
        Ok(secret) => {
            let data = secret::data(secret, wanted)?;
            Ok(Credentials::from_secret(&data).map_err(DeliveryError::from)?)
        }
        Err(kube::Error::Api(e)) if e.code == 404 => Err(ActError::NoSecret(format!(
            "there is no Secret {name} in namespace {namespace}: create it with the keys that the strategy needs, \
             such as username, password and token"
        ))),
        Err(kube::Error::Api(e)) if e.code == 403 => Err(ActError::NoSecret(format!(
            "Secret {name} in namespace {namespace} may not be read: grant the controller the verb get on it"
        ))),
        Err(error) => Err(ActError::SecretNotRead(format!(
            "Secret {name} in namespace {namespace} cannot be read: {}",
            api_error_message(&error)
        ))),
    }
}
