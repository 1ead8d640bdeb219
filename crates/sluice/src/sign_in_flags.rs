//! The flags of `sluice controller` about signing in to the pages, and what they mean.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use futures::future::BoxFuture;
use sluice_controller::NamedServer;
use sluice_web::{
    OidcOptions, PageUrl, ProviderAnswer, ProviderHttp, ProviderRequest, SessionKeys, SignInOptions,
};

/// The flags about signing in to the pages.
#[derive(Args)]
pub struct SignInFlags {
    /// External address of the pages, such as https://sluice.example.com: that of a proxy that ends TLS in the controller's
    /// pod. With https, browsers keep sessions for TLS only
    #[arg(long, value_name = "URL", value_parser = str::parse::<PageUrl>)]
    pub page_url: Option<PageUrl>,
    /// File with the key of sessions, which replicas share and which survives a restart: 32 bytes, in base64. A second key
    /// on another line is only read, so that keys can be rotated. Default is a key of the process
    #[arg(long, value_name = "FILE")]
    pub session_key_file: Option<PathBuf>,
    /// Let a proxy sign people in to the pages: a request with a token of the hub in the header Authorization needs no
    /// session. Everybody who reaches the pages must come through the proxy
    #[arg(long)]
    pub trust_proxy_token: bool,
    /// Issuer at which people sign in by OpenID Connect, such as https://id.example.com/realms/acme; the hub's API server
    /// must trust the same issuer
    #[arg(long, value_name = "URL", value_parser = issuer, requires = "page_url", requires = "oidc_client_id")]
    pub oidc_issuer: Option<String>,
    /// Id of Sluice at the issuer, for which its ID tokens are. There, allow the redirect to --page-url with
    /// /sign-in/callback
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    pub oidc_client_id: Option<String>,
    /// File with the secret of Sluice at the issuer. Default is none: Sluice is a public client, with PKCE
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// Scopes to ask for. Default is openid, and of email, groups and offline_access those that the issuer lists
    #[arg(long, value_name = "SCOPE,...", value_delimiter = ',', requires = "oidc_issuer")]
    pub oidc_scopes: Vec<String>,
    /// Certificates of authorities that sign the issuer's certificate, in PEM, besides those that the system trusts
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_ca_file: Option<PathBuf>,
}

/// Sends requests to the issuer.
struct IssuerHttp(NamedServer);

impl ProviderHttp for IssuerHttp {
    fn send(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, String>> {
        Box::pin(async move {
            let ProviderRequest { url, form, authorization } = request;
            let (status, body) = self.0.send(&url, form, &authorization).await?;
            Ok(ProviderAnswer { status, body })
        })
    }
}

impl SignInFlags {
    /// Reads the files that the flags name.
    pub fn options(self) -> anyhow::Result<SignInOptions> {
        let session_keys = match &self.session_key_file {
            Some(path) => {
                let text = std::fs::read(path).map_err(anyhow::Error::from);
                let keys = text.and_then(|text| Ok(SessionKeys::parse(&text)?));
                Some(keys.with_context(|| format!("cannot use --session-key-file={}", path.display()))?)
            }
            None => None,
        };
        let oidc = self.oidc()?;
        let SignInFlags { page_url, trust_proxy_token, .. } = self;
        Ok(SignInOptions { page_url, session_keys, trust_proxy_token, oidc })
    }

    fn oidc(&self) -> anyhow::Result<Option<OidcOptions>> {
        let Some((issuer, client_id)) = self.oidc_issuer.clone().zip(self.oidc_client_id.clone()) else {
            return Ok(None);
        };
        let client_secret = match &self.oidc_client_secret_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text
                    .with_context(|| format!("cannot read --oidc-client-secret-file={}", path.display()))?;
                let secret = text.trim();
                anyhow::ensure!(!secret.is_empty(), "--oidc-client-secret-file={} is empty", path.display());
                Some(secret.to_string())
            }
            None => None,
        };
        let ca_file = match &self.oidc_ca_file {
            Some(path) => Some(
                std::fs::read(path)
                    .with_context(|| format!("cannot read --oidc-ca-file={}", path.display()))?,
            ),
            None => None,
        };
        let server = NamedServer::new(ca_file.as_deref()).map_err(anyhow::Error::msg);
        let http = Arc::new(IssuerHttp(server.context("cannot use --oidc-ca-file")?));
        let scopes = (!self.oidc_scopes.is_empty()).then(|| self.oidc_scopes.clone());
        Ok(Some(OidcOptions { issuer, client_id, client_secret, scopes, http }))
    }
}

fn issuer(text: &str) -> Result<String, String> {
    if OidcOptions::is_issuer(text) {
        Ok(text.into())
    } else {
        Err("write an address such as https://id.example.com, exactly as ID tokens name it".into())
    }
}
