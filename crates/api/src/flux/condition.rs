//! The conditions of objects of Flux and of Kubernetes.

use serde::{Deserialize, Serialize};
use sluice_core::Time;

/// A condition. All fields but type and status may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FluxCondition {
    /// For example Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// The reason as one word.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    /// The generation that the condition is about; 0 if the controller does not write it.
    pub observed_generation: i64,
    /// When its status last changed. Kubernetes writes a time that is not set as `null`
    /// ([time.go](https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/time.go),
    /// `MarshalJSON`), and Deployments may have such conditions.
    pub last_transition_time: Option<Time>,
}

impl FluxCondition {
    /// Returns true if the status is True.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Returns true if the status is False. An Unknown condition is neither true nor false.
    pub fn is_false(&self) -> bool {
        self.status == "False"
    }
}
