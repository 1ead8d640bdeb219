//! Requests to a server that the administrator of Sluice names, such as an identity provider: over TLS, limited in time and
//! size, without redirects and without retries.

use std::time::Duration;

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};

use crate::foreign_text::clean;
use crate::http_client::{HttpClients, last_cause};

/// How long a request and its answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a new connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const MAX_BODY_BYTES: usize = 256 << 10;
/// The most characters of a cause that are shown.
const MAX_CAUSE_CHARS: usize = 300;

/// Sends requests to a server that the administrator names.
#[derive(Clone, Debug)]
pub struct NamedServer {
    client: Client,
}

impl NamedServer {
    /// Returns a client that trusts the authorities of the system, and the certificates of a caFile.
    ///
    /// # Errors
    /// When the caFile has no certificates.
    pub fn new(ca_file: Option<&[u8]>) -> Result<NamedServer, String> {
        let client = HttpClients::default().get(ca_file, "", &["http/1.1"], TIMEOUT, |builder| {
            builder
                .http1_only()
                .https_only(true)
                .retry(reqwest::retry::never())
                .connect_timeout(CONNECT_TIMEOUT)
        })?;
        Ok(NamedServer { client })
    }

    /// Sends a GET, or a POST with a form, and returns the status and the body of the answer.
    ///
    /// # Errors
    /// When there is no whole answer in time. The text names neither the address nor what was sent.
    pub async fn send(
        &self,
        url: &str,
        form: Option<String>,
        authorization: &str,
    ) -> Result<(u16, Vec<u8>), String> {
        let mut request = match form {
            Some(form) => {
                self.client.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form)
            }
            None => self.client.get(url),
        };
        if !authorization.is_empty() {
            let mut value = HeaderValue::from_str(authorization).map_err(|error| error.to_string())?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let mut response = request.send().await.map_err(cause)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(cause)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY_BYTES {
                return Err(format!("its answer is longer than {} KiB", MAX_BODY_BYTES >> 10));
            }
        }
        Ok((response.status().as_u16(), body))
    }
}

fn cause(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("it took longer than {} s", TIMEOUT.as_secs());
    }
    clean(&last_cause(error), MAX_CAUSE_CHARS)
}
