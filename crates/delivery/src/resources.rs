//! The clients, caches and queues that all deliveries of the process share.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use crate::address::RepositoryAddress;
use crate::commit_message;
use crate::credentials::{Credentials, GitHubApp};
use crate::edit::FileEdits;
use crate::error::{DeliveryError, DeliveryResult};
use crate::fair_queue::{FairQueue, FairQueues, Slot};
use crate::forge::{AppTokens, Forge, ForgeConnection, ForgeShared, connect};
use crate::forge_kind::ForgeKind;
use crate::git::{CachePool, Git, GitError, LockedRepository, NewCommit, RepositoryAccess};
use crate::notification::EventSender;
use crate::options::DeliveryOptions;
use crate::order::{DeliveryStrategy, Order};
use crate::plain_http;
use crate::private_folder::PrivateFolder;
use crate::stats::{Counters, RateBudget};
use crate::webhook::WebhookSender;
use sluice_core::hex::sha256_hex;

/// Work whose state is on the heap, so that it takes no room on the stack of its caller.
pub(crate) type BoxedDelivery<'a, T> = Pin<Box<dyn Future<Output = DeliveryResult<T>> + Send + 'a>>;

/// What all deliveries share.
#[derive(Debug)]
pub(crate) struct Resources {
    options: DeliveryOptions,
    git: Git,
    pub(crate) counters: Arc<Counters>,
    forges: Arc<ForgeShared>,
    app_tokens: AppTokens,
    pub(crate) events: EventSender,
    pub(crate) webhooks: WebhookSender,
    /// Credentials are stored here while they are in use.
    private: PrivateFolder,
    caches: CachePool,
    branches: FairQueues,
}

impl Resources {
    /// Makes the folder for caches if it does not exist.
    pub(crate) fn new(mut options: DeliveryOptions) -> DeliveryResult<Self> {
        let path = options.cache_dir.display().to_string();
        let failed = |source| DeliveryError::CacheFolder { path: path.clone(), source };
        std::fs::create_dir_all(&options.cache_dir).map_err(failed)?;
        options.cache_dir = options.cache_dir.canonicalize().map_err(failed)?;
        options.author = git_author(&options.author);
        // Not below the folder for caches, which people remove.
        let private = PrivateFolder::below(&std::env::temp_dir()).map_err(failed)?;
        let counters = Arc::new(Counters::default());
        let (timeout, processes) = (options.deadline, options.processes.max(1));
        let max_file_bytes = options.cache_bytes / 2;
        Ok(Resources {
            git: Git::new(private.home(), processes, timeout, max_file_bytes, options.allow_file),
            forges: Arc::new(ForgeShared::new(counters.clone(), timeout, options.allowed_hosts.clone())),
            app_tokens: AppTokens::default(),
            events: EventSender::new(options.events_addr.clone(), timeout, counters.clone()),
            webhooks: WebhookSender::new(options.webhooks, timeout, counters.clone()),
            caches: CachePool::new(options.cache_dir.clone(), options.cache_bytes),
            branches: FairQueues::default(),
            counters,
            private,
            options,
        })
    }

    /// What is left of the rate limit of each credential.
    pub(crate) fn rate_budgets(&self) -> Vec<RateBudget> {
        self.forges.budgets.snapshot()
    }

    /// Checks an address that people write: neither git nor a forge gets an address in any other way, or one to which
    /// the credentials of the order must not be sent.
    fn address(&self, order: &Order, url: &str) -> DeliveryResult<RepositoryAddress> {
        let address = self.options.allowed_hosts.repository(url, self.options.allow_file)?;
        plain_http::check(self.options.insecure_http, &address.scheme, &address.text, &order.credentials)?;
        Ok(address)
    }

    /// The repository at its forge.
    pub(crate) fn forge(&self, order: &Order, kind: ForgeKind, url: &str) -> DeliveryResult<Box<dyn Forge>> {
        Ok(connect(kind, &self.connection(order, url)?)?)
    }

    /// The repository at its forge, for reads that can also be made later.
    pub(crate) fn forge_for_looks(
        &self,
        order: &Order,
        kind: ForgeKind,
        url: &str,
    ) -> DeliveryResult<Box<dyn Forge>> {
        Ok(connect(kind, &self.connection(order, url)?.for_looks())?)
    }

    fn connection<'a>(&'a self, order: &'a Order, url: &str) -> DeliveryResult<ForgeConnection<'a>> {
        let mut address = self.address(order, url)?;
        let [api, _] = order.api_urls();
        self.check_api(api, &order.credentials)?;
        address.api = api.map(|api| self.options.allowed_hosts.api(api)).transpose()?;
        Ok(ForgeConnection::new(order, address, &self.forges))
    }

    /// Rejects the address of an API that people write, if the credentials must not be sent to it.
    fn check_api(&self, api: Option<&str>, credentials: &Credentials) -> Result<(), GitError> {
        let scheme = if api.is_some_and(|api| !api.starts_with("https:")) { "http" } else { "https" };
        plain_http::check(self.options.insecure_http, scheme, api.unwrap_or_default(), credentials)
    }

    /// The order, with a token if its Secret has a GitHub App instead of a token.
    pub(crate) async fn with_app_token<'a>(&self, order: &'a Order) -> DeliveryResult<Cow<'a, Order>> {
        let Some((app, address)) = self.app(order)? else { return Ok(Cow::Borrowed(order)) };
        self.check_api(app.base.as_deref(), &order.credentials)?;
        let credentials = self.app_tokens.get(app, order, &address, &self.forges).await?;
        Ok(Cow::Owned(Order { credentials, ..order.clone() }))
    }

    /// Forgets the token of the order's GitHub App if the forge rejected it.
    pub(crate) fn drop_rejected_token<T>(
        &self,
        order: &Order,
        result: DeliveryResult<T>,
    ) -> DeliveryResult<T> {
        if result.as_ref().is_err_and(|error| error.reason() == "AuthenticationFailed")
            && let Ok(Some((app, address))) = self.app(order)
        {
            self.app_tokens.forget(app, &address);
        }
        result
    }

    /// The GitHub App of an order, and the address of its repository.
    fn app<'a>(&self, order: &'a Order) -> DeliveryResult<Option<(&'a GitHubApp, RepositoryAddress)>> {
        let url = match &order.strategy {
            DeliveryStrategy::PullRequest { forge: ForgeKind::GitHub, url, .. }
            | DeliveryStrategy::Commit { url, .. } => url,
            _ => return Ok(None),
        };
        let Some(app) = &order.credentials.app else { return Ok(None) };
        Ok(Some((app, self.address(order, url)?)))
    }

    /// Waits for the cache of a repository. `head` is the head branch that the caller needs, with its base branch.
    pub(crate) async fn lock(
        &self,
        order: &Order,
        url: &str,
        head: Option<(&str, &str)>,
    ) -> DeliveryResult<LockedRepository<'_>> {
        let address = self.address(order, url)?;
        let private = self.private.path();
        let failed = |source| DeliveryError::CacheFolder { path: private.display().to_string(), source };
        self.private.restore().map_err(failed)?;
        let repository = self.caches.repository(&sha256_hex(address.text.as_bytes())[..32]);
        let forge = match &order.strategy {
            DeliveryStrategy::PullRequest { forge, .. } => Some(*forge),
            _ => forge_of_host(&address),
        };
        let access = RepositoryAccess::new(address, forge, &order.credentials, &order.owner(), private)?;
        Ok(repository.lock((&self.git, &self.counters), access, head).await)
    }

    /// The commit of an order with these changes.
    pub(crate) fn new_commit(&self, order: &Order, edit: FileEdits) -> NewCommit {
        let message = commit_message::message(order, &edit.values, &edit.onto);
        NewCommit { files: edit.files, author: self.options.author.clone(), date: order.created, message }
    }

    /// Waits until no other delivery works on a branch. Deliveries with another API for the same branch do not wait,
    /// since that API may be slow: if both push, the later one starts again.
    pub(crate) async fn lock_branch(&self, order: &Order, url: &str, branch: &str) -> Slot {
        let [api, of_app] = order.api_urls().map(Option::unwrap_or_default);
        let name = format!("{url} {branch} {api} {of_app}");
        self.branches.of(&name, || FairQueue::new(1)).acquire(&order.owner()).await
    }
}

/// Whether the result of work on a repository is final. If its cache may be the cause of a failure, the cache is
/// removed, and the caller must do the work once more.
pub(crate) fn is_final<T>(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    result: &DeliveryResult<T>,
) -> bool {
    match result {
        Ok(_) => repository.mark_clean(),
        Err(DeliveryError::Git(error)) if repository.discard(error) => {
            let (promotion, repository) = (&order.promotion, order.repository());
            tracing::warn!(promotion, repository, %error, "the cache of a repository is removed and built again");
            return false;
        }
        Err(_) => {}
    }
    true
}

/// The forge of an address, if only one forge has such addresses.
fn forge_of_host(address: &RepositoryAddress) -> Option<ForgeKind> {
    let parts = address.parts();
    match address.host_name() {
        "bitbucket.org" => Some(ForgeKind::Bitbucket),
        "gitlab.com" => Some(ForgeKind::GitLab),
        // Only Bitbucket Data Center has scm/KEY/slug.
        _ if parts.len() >= 3 && parts[parts.len() - 3] == "scm" => Some(ForgeKind::BitbucketServer),
        _ => None,
    }
}

/// An author as git takes it, `Name <address>`, without the characters that git rejects.
fn git_author(text: &str) -> String {
    let clean =
        |part: &str| part.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect::<String>();
    let (name, address) = text.split_once('<').unwrap_or((text, "sluice@localhost"));
    format!("{} <{}>", clean(name).trim(), clean(address).trim())
}
