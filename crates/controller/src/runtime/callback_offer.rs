//! The URL and the token with which the receiver of a webhook reports the outcome of a promotion.

use kube::{Client, ResourceExt};
use sluice_api::hook_key;
use sluice_api::pipeline::Strategy;
use sluice_api::promotion::Promotion;
use sluice_api::secret_use::SecretUse;

use crate::act::ActError;
use crate::hook::callback::{TokenClaim, TokenSubject, mint};
use crate::hook::hmac_keys::{HookKeys, Purpose};
use crate::pipeline_key::PipelineKey;
use crate::secret;
use crate::watch::read_error::api_error_message;

/// Makes the URL and the token for callbacks.
pub(super) struct CallbackOffer {
    /// The URL of the hook server.
    url: String,
    /// The name of the Secret with the callback key.
    secret: String,
}

impl CallbackOffer {
    /// Returns `None` if the strategy is no webhook, or has no Secret, or the URL of the hook server is not known.
    pub(super) fn new(url: Option<&str>, strategy: &Strategy) -> Option<Self> {
        let secret = strategy.webhook.as_ref().and(strategy.secret_ref.as_ref())?;
        Some(Self { url: url?.into(), secret: secret.name.clone() })
    }

    /// Returns the URL and the token. `None` if the Secret has no `callback-key`, or must not be used for hooks:
    /// its owner wants no callbacks.
    ///
    /// # Errors
    /// When the Secret cannot be read now.
    pub(super) async fn create(
        self,
        client: &Client,
        key: &PipelineKey,
        promotion: &Promotion,
    ) -> Result<Option<(String, String)>, ActError> {
        let data = match secret::read(client, &key.namespace, &self.secret).await {
            Ok(secret) => match secret::data(secret, SecretUse::Hook) {
                Ok(data) => data,
                Err(_) => return Ok(None),
            },
            Err(kube::Error::Api(e)) if matches!(e.code, 403 | 404) => return Ok(None),
            Err(error) => {
                return Err(ActError::SecretNotRead(format!(
                    "Secret {} in namespace {} cannot be read: {}",
                    self.secret,
                    key.namespace,
                    api_error_message(&error)
                )));
            }
        };
        let accepted = HookKeys::of(&data);
        let Some(callback_key) = data
            .get(hook_key::CALLBACK_KEY)
            .filter(|key| accepted.of_purpose(&Purpose::Callback).contains(key))
        else {
            return Ok(None);
        };
        let (name, uid) = (promotion.name_any(), promotion.uid().unwrap_or_default());
        let (round, retries) = promotion.status.as_ref().map_or((0, 0), |s| (s.round, s.retries));
        let environment = &promotion.spec.environment;
        let claim = TokenClaim { uid: &uid, round, retries: Some(retries), environment };
        let token = mint(callback_key, TokenSubject { pipeline: key, promotion: &name }, claim);
        let base = self.url.trim_end_matches('/');
        Ok(Some((format!("{base}/callback/{}/{}/{name}", key.namespace, key.name), token)))
    }
}
