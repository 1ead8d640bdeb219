//! What the API and the pages need.

use std::sync::Arc;

use sluice_core::fleet::index::Fleet;
use sluice_core::slots::CallerSlots;

use crate::board::Boards;
use crate::caller_budgets::CallerBudgets;
use crate::fleet_versions::VersionRows;
use crate::hub::Hub;
use crate::live_slots::live_slots;
use crate::oidc::Provider;
use crate::page_url::PageUrl;
use crate::session::Sessions;
use crate::sign_in_link::SignInLink;
use crate::sign_in_options::SignInOptions;
use crate::unsent_answers::UnsentAnswers;

/// What the API and the pages need.
#[derive(Clone)]
pub struct Api<H> {
    pub(crate) hub: H,
    pub(crate) fleet: Fleet,
    pub(crate) budgets: CallerBudgets,
    pub(crate) unsent: UnsentAnswers,
    pub(crate) rows: VersionRows,
    pub(crate) boards: Boards,
    pub(crate) sessions: Arc<Sessions>,
    /// Where browsers reach the pages, if that is known.
    pub(crate) page_url: Option<Arc<PageUrl>>,
    /// Where people sign in by OpenID Connect, if that is set up.
    pub(crate) provider: Option<Arc<Provider>>,
    /// Whether a proxy in front of the pages adds the person's token to requests.
    pub(crate) trust_proxy_token: bool,
    /// The open live pages and streams.
    pub(crate) live: CallerSlots,
    /// Whether people can change something from the pages.
    pub(crate) actions: bool,
    /// How the only user of this server signs in; `None` if everybody signs in with a token of the hub.
    pub(crate) sign_in_link: Option<Arc<SignInLink>>,
}

impl<H: Hub> Api<H> {
    /// Returns an API about a fleet and the objects of a hub. With `actions`, people can change objects from the pages, in
    /// their own name.
    pub fn new(fleet: Fleet, hub: H, actions: bool) -> Self {
        Api {
            hub,
            fleet,
            budgets: CallerBudgets::default(),
            unsent: UnsentAnswers::default(),
            rows: VersionRows::default(),
            boards: Boards::default(),
            sessions: Arc::default(),
            page_url: None,
            provider: None,
            trust_proxy_token: false,
            live: live_slots(),
            actions,
            sign_in_link: None,
        }
    }

    /// Returns the same API with these ways to sign in, apart from the token of the hub that everybody can paste.
    #[must_use]
    pub fn with_sign_in(mut self, options: SignInOptions) -> Self {
        let SignInOptions { page_url, session_keys, trust_proxy_token, oidc } = options;
        let is_https = page_url.as_ref().is_some_and(PageUrl::is_https);
        self.sessions = Arc::new(Sessions::new(session_keys, is_https));
        let provider = oidc.zip(page_url.as_ref()).map(|(oidc, page_url)| Provider::new(oidc, page_url));
        self.provider = provider.map(Arc::new);
        self.page_url = page_url.map(Arc::new);
        self.trust_proxy_token = trust_proxy_token;
        self
    }

    /// Lets the only user of this server sign in by opening `/sign-in/link/{code}` once, instead of with a token. The hub
    /// identifies the user by `token`.
    #[must_use]
    pub fn with_sign_in_link(self, code: String, token: String) -> Self {
        Api { sign_in_link: Some(Arc::new(SignInLink::new(code, token))), ..self }
    }
}
