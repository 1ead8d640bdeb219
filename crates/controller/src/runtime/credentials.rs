//! Reads the credentials of a side effect.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sluice_delivery::{Credentials, DeliveryError, DeliveryStrategy};

use crate::act::ActError;
use crate::secret::{self, SecretUse};
use crate::timeout::{API_CALL_TIMEOUT, within};
use crate::watch::read_error::api_error_message;

/// Reads the credentials of an order from the Secret of this name. Without a Secret there are none.
///
/// # Errors
/// When the Secret cannot be read, or must not be used for this strategy.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    strategy: &DeliveryStrategy,
    secret: Option<String>,
) -> Result<Credentials, ActError> {
    let Some((name, wanted)) = secret.zip(SecretUse::of(strategy)) else { return Ok(Credentials::default()) };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match within(API_CALL_TIMEOUT, secrets.get(&name)).await {
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
