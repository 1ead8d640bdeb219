//! The ways to sign in to the pages.

use crate::oidc::Options as OidcOptions;
use crate::page_url::PageUrl;
use crate::session_keys::SessionKeys;

/// The ways to sign in to the pages, apart from the token of the hub that everybody can paste.
#[derive(Default)]
pub struct SignInOptions {
    /// Where browsers reach the pages. If that is `https`, they keep the session for TLS only.
    pub page_url: Option<PageUrl>,
    /// The keys of the sessions, which replicas share and which survive a restart. `None` for a key of this process.
    pub session_keys: Option<SessionKeys>,
    /// Whether a proxy in front of the pages adds the person's token to requests, in the header `Authorization`.
    pub trust_proxy_token: bool,
    /// Sign-in by OpenID Connect. It needs the address of the pages, to which the provider sends people back.
    pub oidc: Option<OidcOptions>,
}
