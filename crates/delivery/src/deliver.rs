//! The door to this crate: one `Delivery` for the whole process, shared by all pipelines. Holds the
//! caches of repositories, the queues before them and the forges' budgets.

use std::borrow::Cow;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::address::{Address, AllowedHosts};
use crate::commit_status::Progress;
use crate::credentials::{App, Credentials};
use crate::error::DeliveryError;
use crate::forge::{AnyForge, Shared, github_app};
use crate::git::{Access, Cache, CommitText, Git, GitError, Repository, hex_hash};
use crate::line::{Lines, Place};
use crate::notification::NotificationError;
use crate::order::{ChangeRequest, Delivered, Followed, ForgeKind, Order, Strategy};
use crate::outward::Outward;
use crate::plain_http;
use crate::private::Private;
use crate::shelf::Shelf;
use crate::stats::{Counters, Stats};
use crate::webhook::Allowed;
use crate::{change_request, commit_status, commit_strategy, lost, merge, notification, webhook};

/// Who makes commits where nobody says so.
pub const DEFAULT_AUTHOR: &str = "Sluice <sluice@localhost>";

/// How many bytes the caches take on disk where nobody says so: half of what deploy/deployment.yaml gives them.
pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// How deliveries work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where repositories are cached; may be wiped at any time.
    pub cache_dir: PathBuf,
    /// How long one run of git may take; calls to forges have 30 seconds, or this if it is less.
    pub deadline: Duration,
    /// Who makes commits, as `Name <address>`.
    pub author: String,
    /// How many git processes run at once here, and how many talk to one host.
    pub processes: usize,
    /// How many bytes the caches may take on disk; a file of a repository's cache may have half of it.
    pub cache_bytes: u64,
    /// Whether repositories may be folders on this machine. For tests.
    pub allow_file: bool,
    /// Whether credentials are sent over plain http, to git servers and to forges.
    pub insecure_http: bool,
    /// Where repositories and forges may be.
    pub allowed_hosts: AllowedHosts,
    /// Where webhooks may go.
    pub webhooks: Allowed,
    /// Where notifications are sent to, beside the cluster's own events.
    pub events_addr: Option<String>,
}

impl Options {
    /// The usual ones.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Options {
            cache_dir: cache_dir.into(),
            deadline: Duration::from_secs(120),
            author: DEFAULT_AUTHOR.into(),
            processes: 8,
            cache_bytes: DEFAULT_CACHE_BYTES,
            allow_file: false,
            insecure_http: false,
            allowed_hosts: AllowedHosts::default(),
            webhooks: Allowed::default(),
            events_addr: None,
        }
    }
}

/// Delivers promotions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delivery(Arc<Inner>);

/// Work that keeps its state off the stack of whoever waits for it.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeliveryError>> + Send + 'a>>;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) git: Git,
    pub(crate) counters: Arc<Counters>,
    forges: Arc<Shared>,
    pub(crate) outward: Outward,
    /// Credentials lie here while they are in use.
    private: Private,
    shelf: Shelf,
    branches: Lines,
}

impl Delivery {
    /// Makes the cache folder if it is not there.
    pub fn new(mut options: Options) -> Result<Self, DeliveryError> {
        let path = options.cache_dir.display().to_string();
        let failed = |source| DeliveryError::CacheFolder { path: path.clone(), source };
        std::fs::create_dir_all(&options.cache_dir).map_err(failed)?;
        options.cache_dir = options.cache_dir.canonicalize().map_err(failed)?;
        // Not what people write between name and address, but what git takes.
        options.author = signature(&options.author);
        // Not below the cache, which people wipe.
        let private = Private::below(&std::env::temp_dir()).map_err(failed)?;
        let counters = Arc::new(Counters::default());
        let largest = options.cache_bytes / 2;
        let processes = options.processes.max(1);
        let git = Git::new(private.home(), processes, options.deadline, largest, options.allow_file);
        let forges = Arc::new(Shared::new(counters.clone(), options.deadline, options.allowed_hosts.clone()));
        let outward = Outward::new(options.deadline);
        let shelf = Shelf::new(options.cache_dir.clone(), options.cache_bytes);
        let branches = Default::default();
        Ok(Delivery(Arc::new(Inner { options, git, counters, forges, outward, private, shelf, branches })))
    }

    /// Delivers, or finds that it was delivered. Running it again is harmless.
    pub async fn deliver(&self, order: &Order) -> Result<Delivered, DeliveryError> {
        let (inner, came) = (&*self.0, Instant::now());
        match &order.strategy {
            Strategy::PullRequest { forge, url, base, settings } => {
                let _turn = inner.turn(order, url, &order.branch()).await;
                let with = inner.lent(order).await?;
                let wanted = change_request::Wanted { kind: *forge, url, base, settings };
                let delivered = change_request::deliver(inner, &with, wanted, came).await;
                inner.kept(order, delivered)
            }
            Strategy::Commit { url, branch } => {
                let _turn = inner.turn(order, url, branch).await;
                let with = inner.lent(order).await?;
                inner.kept(order, commit_strategy::deliver(inner, &with, url, branch, came).await)
            }
            Strategy::Notification(about) => notification::deliver(inner, order, about).await,
            Strategy::Webhook { url, about } => webhook::deliver(inner, order, url, about).await,
        }
    }

    /// Looks what has become of a change request, with one call that is free where nothing changed.
    pub async fn follow(&self, order: &Order, request: &ChangeRequest) -> Result<Followed, DeliveryError> {
        let with = self.0.lent(order).await?;
        self.0.kept(order, merge::follow(&self.0, &with, request).await)
    }

    /// The same, and carries it on: merges it where the strategy says so and its forge that nothing stands in
    /// the way, and deletes its branch then. Running it again is harmless.
    pub async fn tend(&self, order: &Order, request: &ChangeRequest) -> Result<Followed, DeliveryError> {
        let with = self.0.lent(order).await?;
        self.0.kept(order, merge::tend(&self.0, &with, request).await)
    }

    /// Closes an open change request and says why. One that is not open any more is left alone, and so is one
    /// that carries another promotion by now.
    pub async fn withdraw(
        &self,
        order: &Order,
        request: &ChangeRequest,
        comment: &str,
    ) -> Result<Followed, DeliveryError> {
        let with = self.0.lent(order).await?;
        self.0.kept(order, merge::withdraw(&self.0, &with, request, comment).await)
    }

    /// Whether the branch that an order goes to has lost the commit by which the order was delivered. Changes
    /// nothing; one fetch, and another one only if the files do not have the order's values.
    pub async fn is_lost(&self, order: &Order, commit: &str) -> Result<bool, DeliveryError> {
        let with = self.0.lent(order).await?;
        self.0.kept(order, lost::is_lost(&self.0, &with, commit).await)
    }

    /// Reports how a promotion goes on the commit that its merged change request has left on the base. Tries once; one
    /// at a time for what it is known by there, so that none is overtaken by an earlier one.
    pub async fn report(
        &self,
        order: &Order,
        request: &ChangeRequest,
        progress: Progress,
        description: &str,
    ) -> Result<(), DeliveryError> {
        let Strategy::PullRequest { url, .. } = &order.strategy else { return Ok(()) };
        // No branch has a blank in its name: deliveries do not wait here.
        let _turn = self.0.turn(order, url, &format!("{} status", order.subject())).await;
        let with = self.0.lent(order).await?;
        self.0.kept(order, commit_status::report(&self.0, &with, request, (progress, description)).await)
    }

    /// Sends news to where events go, if there is such a place. Tries once.
    pub async fn tell(&self, news: &notification::News) -> Result<(), NotificationError> {
        notification::tell(&self.0, news).await
    }

    /// Whether there is a place that news are sent to.
    pub fn has_listener(&self) -> bool {
        self.0.options.events_addr.is_some()
    }

    /// What has gone out since the start.
    pub fn stats(&self) -> Stats {
        self.0.counters.snapshot(self.0.forges.budgets.purses())
    }
}

impl Inner {
    /// Where a repository is. Every address that people write passes through here: git and forges get no other,
    /// and none that the credentials of an order are not sent to.
    fn address(&self, order: &Order, url: &str) -> Result<Address, DeliveryError> {
        let address = self.options.allowed_hosts.repository(url, self.git.allow_file)?;
        plain_http::check(self.options.insecure_http, &address.scheme, &address.text, &order.credentials)?;
        Ok(address)
    }

    /// The repository at its forge.
    pub(crate) fn forge(&self, order: &Order, kind: ForgeKind, url: &str) -> Result<AnyForge, DeliveryError> {
        let address = self.address(order, url)?;
        let api = match &order.strategy {
            Strategy::PullRequest { settings, .. } => settings.api_url.as_deref(),
            _ => None,
        };
        self.check_plain_api(api, &order.credentials)?;
        Ok(AnyForge::new(kind, &address, api, &order.credentials, &self.forges)?.under(order))
    }

    /// Refuses the address of an API that people write, if credentials are not sent to it.
    fn check_plain_api(&self, api: Option<&str>, credentials: &Credentials) -> Result<(), GitError> {
        let scheme = if api.is_some_and(|api| !api.starts_with("https:")) { "http" } else { "https" };
        plain_http::check(self.options.insecure_http, scheme, api.unwrap_or_default(), credentials)
    }

    /// The order, with a token where its Secret has a GitHub App in place of one.
    async fn lent<'a>(&self, order: &'a Order) -> Result<Cow<'a, Order>, DeliveryError> {
        let Some((app, address)) = self.app(order)? else { return Ok(Cow::Borrowed(order)) };
        self.check_plain_api(app.base.as_deref(), &order.credentials)?;
        let credentials = github_app::lend(app, &address, order, &self.forges).await?;
        Ok(Cow::Owned(Order { credentials, ..order.clone() }))
    }

    /// What came of it. A token that was not accepted is not lent again.
    fn kept<T>(&self, order: &Order, result: Result<T, DeliveryError>) -> Result<T, DeliveryError> {
        if result.as_ref().is_err_and(|error| error.reason() == "AuthenticationFailed")
            && let Ok(Some((app, address))) = self.app(order)
        {
            github_app::forget(app, &address, &self.forges);
        }
        result
    }

    /// The App that speaks for an order, and where.
    fn app<'a>(&self, order: &'a Order) -> Result<Option<(&'a App, Address)>, DeliveryError> {
        let url = match &order.strategy {
            Strategy::PullRequest { forge: ForgeKind::GitHub, url, .. } | Strategy::Commit { url, .. } => url,
            _ => return Ok(None),
        };
        let Some(app) = &order.credentials.app else { return Ok(None) };
        Ok(Some((app, self.address(order, url)?)))
    }

    /// The forge that an order's change request is at, and the branch that it goes to.
    pub(crate) fn forge_of<'a>(
        &self,
        order: &'a Order,
    ) -> Result<Option<(AnyForge, &'a str)>, DeliveryError> {
        match &order.strategy {
            Strategy::PullRequest { forge, url, base, .. } => {
                self.forge(order, *forge, url).map(|forge| Some((forge, base.as_str())))
            }
            _ => Ok(None),
        }
    }

    /// The way to a repository, and its cache.
    pub(crate) fn repository(
        &self,
        order: &Order,
        url: &str,
    ) -> Result<(Access, Arc<Repository>), DeliveryError> {
        let address = self.address(order, url)?;
        let failed =
            |source| DeliveryError::CacheFolder { path: self.private.path().display().to_string(), source };
        self.private.heal().map_err(failed)?;
        let key = hex_hash(address.text.as_bytes())[..32].to_string();
        let forge = match &order.strategy {
            Strategy::PullRequest { forge, .. } => Some(*forge),
            _ => forge_of_host(&address),
        };
        let access = Access::new(address, forge, &order.credentials, self.private.path())?.of(order.owner());
        Ok((access, self.shelf.repository(&key)))
    }

    /// What a commit for an order says about itself.
    pub(crate) fn text(&self, order: &Order, message: String) -> CommitText {
        CommitText { author: self.options.author.clone(), date: order.created, message }
    }

    /// Throws a cache away if it may be the cause of a failure; then it is worth going again.
    pub(crate) fn heals<T>(
        &self,
        order: &Order,
        cache: &mut Cache,
        result: &Result<T, DeliveryError>,
    ) -> bool {
        let Err(DeliveryError::Git(error)) = result else { return false };
        if !cache.is_suspect(error) {
            return false;
        }
        let (promotion, repository) = (&order.promotion, order.repository());
        tracing::warn!(promotion, repository, %error, "the cache of a repository is removed and built again");
        self.counters.rebuilds.fetch_add(1, Ordering::Relaxed);
        cache.wipe();
        true
    }

    /// Waits for one's turn at a branch: two at a time would only undo each other's work. Those that call another API
    /// for the same branch do not wait, since that API may be slow: whose push comes second begins again.
    async fn turn(&self, order: &Order, url: &str, branch: &str) -> Place {
        let [api, of_app] = order.api_urls().map(Option::unwrap_or_default);
        self.branches.of(&format!("{url} {branch} {api} {of_app}"), 1).place(&order.owner()).await
    }
}

/// The forge that an address can only be at, where nobody says which it is.
fn forge_of_host(address: &Address) -> Option<ForgeKind> {
    let parts = address.parts();
    match address.host_name() {
        "bitbucket.org" => Some(ForgeKind::Bitbucket),
        "gitlab.com" => Some(ForgeKind::GitLab),
        // As only Bitbucket Data Center has it: scm/KEY/slug.
        _ if parts.len() >= 3 && parts[parts.len() - 3] == "scm" => Some(ForgeKind::BitbucketServer),
        _ => None,
    }
}

/// `Name <address>` as git takes it, whatever was written.
fn signature(text: &str) -> String {
    let clean =
        |part: &str| part.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect::<String>();
    let (name, address) = text.split_once('<').unwrap_or((text, "sluice@localhost"));
    format!("{} <{}>", clean(name).trim(), clean(address).trim())
}
