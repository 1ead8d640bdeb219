//! HTTP clients, shared by all calls with the same settings, and the causes of their errors.

use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::{Client, ClientBuilder};

use crate::lru::Lru;
use crate::tls_trust::trust;
use sluice_core::hex::sha256_hex;
use sluice_core::lock::lock;

/// The most clients that are kept: each has the roots of an authority of its own.
const MAX_CLIENTS: usize = 64;

/// HTTP clients by the certificates that they trust.
#[derive(Debug, Default)]
pub(crate) struct HttpClients(Mutex<Lru<Client, MAX_CLIENTS>>);

impl HttpClients {
    /// A client that also trusts the certificates of a caFile and does not follow redirects. `variant` is the name of the
    /// further settings, which `configure` makes for a new client.
    pub(crate) fn get(
        &self,
        ca_file: Option<&[u8]>,
        variant: &str,
        protocols: &[&str],
        timeout: Duration,
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, String> {
        let key = format!("{variant} {}", ca_file.map(sha256_hex).unwrap_or_default());
        let mut clients = lock(&self.0);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let mut tls = trust(ca_file)?;
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout);
        let client = configure(builder).build().map_err(|e| e.to_string())?;
        clients.insert(key, client.clone(), 1);
        Ok(client)
    }
}

/// The last cause of an error, which is the most precise one. The address, which may be secret, is not part of it.
pub(crate) fn last_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_that_was_used_longest_ago_is_dropped() {
        let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
        let (clients, certificate) = (HttpClients::default(), key.cert.pem());
        let of = |n: usize| {
            let ca_file = format!("{certificate}# {n}\n");
            clients
                .get(Some(ca_file.as_bytes()), "forge", &[], Duration::from_secs(1), |builder| builder)
                .unwrap();
            lock(&clients.0).iter().count()
        };
        let counts: Vec<usize> = (0..MAX_CLIENTS + 10).map(of).collect();
        assert_eq!(counts[MAX_CLIENTS - 1..], [MAX_CLIENTS; 11]);
        let is_kept = |n: usize| {
            let key = format!("forge {}", sha256_hex(format!("{certificate}# {n}\n").as_bytes()));
            lock(&clients.0).get(&key).is_some()
        };
        assert_eq!([0, 9, 10, MAX_CLIENTS + 9].map(is_kept), [false, false, true, true]);
    }
}
