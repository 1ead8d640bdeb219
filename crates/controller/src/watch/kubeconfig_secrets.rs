//! The secrets with which Sluice signs in to a cluster. A server, or a proxy in front of it, may repeat them in an error,
//! and errors are shown to people who may not read the Secret.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use secrecy::ExposeSecret;
use sluice_core::value_check::is_unsafe;
use sluice_delivery::without_secrets;

/// The token and the password of a kubeconfig, and the form in which the password is sent.
#[derive(Clone, Default)]
pub struct KubeconfigSecrets(Arc<[String]>);

impl KubeconfigSecrets {
    /// Returns the secrets of the user in a configuration.
    pub fn new(config: &Config) -> Self {
        let user = &config.auth_info;
        let secrets = [&user.token, &user.password].into_iter().flatten();
        let texts = secrets.map(|secret| secret.expose_secret().to_string());
        let basic = user.username.as_ref().zip(user.password.as_ref());
        let basic =
            basic.map(|(name, password)| STANDARD.encode(format!("{name}:{}", password.expose_secret())));
        Self(texts.chain(basic).collect())
    }

    /// Returns a text of the cluster without the secrets, also those with invisible characters in between.
    pub fn hide(&self, text: &str) -> String {
        let visible: String = text.chars().filter(|c| *c == '\n' || !is_unsafe(*c)).collect();
        without_secrets(&visible, self.0.iter().map(String::as_str))
    }

    /// Returns an error of the client, in which the message of the server is without the secrets.
    pub fn hide_in(&self, error: kube::Error) -> kube::Error {
        match error {
            kube::Error::Api(mut status) => {
                status.message = self.hide(&status.message);
                kube::Error::Api(status)
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn secrets() -> KubeconfigSecrets {
        let mut config = Config::new("https://dev.example".parse().unwrap());
        config.auth_info.token = Some("tok-1234".to_string().into());
        config.auth_info.username = Some("jane".into());
        config.auth_info.password = Some("pass".to_string().into());
        KubeconfigSecrets::new(&config)
    }

    #[test]
    fn a_text_is_shown_without_token_and_password() {
        // `Basic`, of jane:pass (RFC 7617).
        let shown = secrets().hide("Bearer tok-1234\n(Basic amFuZTpwYXNz), t\u{200b}ok-1\u{7}234, tok-12");
        assert_eq!(shown, "Bearer ***\n(Basic ***), ***, tok-12");
        assert_eq!(KubeconfigSecrets::default().hide("abc"), "abc");
        // The password is a word of ordinary messages.
        assert_eq!(secrets().hide("bypassed by pass"), "bypassed by ***");
    }

    #[test]
    fn the_message_of_a_server_is_without_the_token_wherever_it_is_cut_later() {
        let message = format!("{}tok-1234", "x".repeat(296));
        let error = kube::Error::Api(Status::failure(&message, "x").with_code(500).boxed());
        let shown = super::super::read_error::api_error_message(&secrets().hide_in(error));
        assert_eq!(shown, format!("{}*** (500)", "x".repeat(296)));
    }
}
