//! Flux's notifications: Receiver, Alert and Provider. Source: the API of Flux's notification-controller, `api/v1` and
//! `api/v1beta3`.

use kube::core::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::FluxCondition;

/// Has Flux reconcile objects when a webhook arrives, v1.
pub type Receiver = Object<ReceiverSpec, ReceiverStatus>;
/// Sends events of objects to a Provider, v1beta3 or older. It has no status.
pub type Alert = Object<AlertSpec, Option<Value>>;
/// An address that events are sent to, v1beta3 or older. It has no status.
pub type Provider = Object<ProviderSpec, Option<Value>>;

/// A reference to objects by name, or by labels if the name is `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectsRef {
    /// The kind of the objects.
    pub kind: String,
    /// The name of the object, or `*`.
    pub name: String,
    /// The namespace of the objects; default is that of the object that refers to them.
    pub namespace: Option<String>,
}

/// The fields that Sluice reads of a Receiver's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReceiverSpec {
    /// True if it does not accept webhooks.
    pub suspend: bool,
    /// The sender's kind: github, gitlab, generic and so on.
    #[serde(rename = "type")]
    pub type_: String,
    /// The objects that are reconciled.
    pub resources: Vec<ObjectsRef>,
}

/// The fields that Sluice reads of a Receiver's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReceiverStatus {
    /// Its conditions. Sluice does not read `webhookPath`: everybody who has the path can call a Receiver of type generic
    /// (notification-controller, `internal/server/receiver_handlers.go`).
    pub conditions: Vec<FluxCondition>,
}

/// The fields that Sluice reads of an Alert's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AlertSpec {
    /// True if it sends nothing.
    pub suspend: bool,
    /// The Provider, in the namespace of the Alert.
    pub provider_ref: ProviderRef,
}

/// A reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretName {
    /// Its name.
    pub name: String,
}

/// A reference to a Provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderRef {
    /// Its name.
    pub name: String,
}

/// The fields that Sluice reads of a Provider's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderSpec {
    /// True if it sends nothing.
    pub suspend: bool,
    /// The kind of the receiver: generic-hmac, slack and so on.
    #[serde(rename = "type")]
    pub type_: String,
    /// The Secret with the credentials, in the namespace of the Provider.
    #[serde(rename = "secretRef")]
    pub secret_ref: Option<SecretName>,
    /// The address, unless a Secret has it.
    pub address: String,
}
