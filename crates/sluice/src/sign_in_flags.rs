//! The flags of `sluice controller` about signing in to the pages, and what they mean.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use sluice_web::{PageUrl, SessionKeys, SignInOptions};

/// The flags about signing in to the pages.
#[derive(Args, Default)]
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
        Ok(SignInOptions { page_url: self.page_url, session_keys, trust_proxy_token: self.trust_proxy_token })
    }
}
