//! The facts of the objects on the hub that start pipelines. The command `triggers` reads the same.

use sluice_api::flux::image::{ImagePolicy, ImageUpdateAutomation};
use sluice_api::flux::notification::{Alert, Provider, Receiver};
use sluice_api::flux::trigger_facts;
use sluice_core::fleet::Fact;

/// Returns the facts of an ImagePolicy.
pub fn image_policy(object: &ImagePolicy) -> Fact {
    Fact::Trigger(Box::new(trigger_facts::image_policy(object)))
}

/// Returns the facts of an ImageUpdateAutomation.
pub fn image_update_automation(object: &ImageUpdateAutomation) -> Fact {
    Fact::Trigger(Box::new(trigger_facts::image_update_automation(object)))
}

/// Returns the facts of a Receiver.
pub fn receiver(object: &Receiver) -> Fact {
    Fact::Trigger(Box::new(trigger_facts::receiver(object)))
}

/// Returns the facts of an Alert.
pub fn alert(object: &Alert) -> Fact {
    Fact::Trigger(Box::new(trigger_facts::alert(object)))
}

/// Returns the facts of a Provider.
pub fn provider(object: &Provider) -> Fact {
    Fact::Trigger(Box::new(trigger_facts::provider(object)))
}
