//! The port to the identity provider: requests over TLS, limited in time and size.

use futures::future::BoxFuture;

/// Sends requests to the identity provider.
pub trait ProviderHttp: Send + Sync + 'static {
    /// Sends a request. Redirects are not followed: the answer says to whom the request went. The error is a cause for
    /// people, without secrets.
    fn send(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, String>>;
}

/// A request to the identity provider.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderRequest {
    /// The address, always `https`.
    pub url: String,
    /// The body, as `application/x-www-form-urlencoded`, of a POST; `None` for a GET.
    pub form: Option<String>,
    /// The header `Authorization`; empty for none.
    pub authorization: String,
}

/// The answer of the identity provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}
