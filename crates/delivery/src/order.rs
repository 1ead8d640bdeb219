//! What to deliver, and how: plain values from the controller.

use jiff::Timestamp;
use sluice_core::Revision;
use sluice_core::pipeline::MergeMode;
use sluice_core::revision::{Facet, FacetKey};
use sluice_core::setters::{Update, UpdateTarget};

use crate::credentials::Credentials;
use crate::fencing::FencingToken;
use crate::file_change::RequestedChange;
use crate::fingerprint::fingerprint;
use crate::forge_kind::ForgeKind;
use crate::head_branch;
use crate::outcome::OutdatedReason;
use crate::template::{self, TemplateError};

/// One promotion that is to be delivered.
#[derive(Clone, Debug)]
pub struct Order {
    /// The Promotion object, as `namespace/name`. An earlier try is found by this key.
    pub promotion: String,
    /// The pipeline's namespace.
    pub namespace: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The environment that the revision goes into.
    pub environment: String,
    /// The target, if the pipeline delivers each target separately.
    pub target: Option<String>,
    /// The revision to deliver.
    pub revision: Revision,
    /// The revision that the environment ran before, for people.
    pub replaces: String,
    /// Why the revision may go into the environment, a line each, for people.
    pub evidence: Vec<String>,
    /// When the promotion was created. It is the date of the commit, so that a second try makes the same commit.
    pub created: Timestamp,
    /// How often it was delivered before and then started again. A result of an earlier round does not count.
    pub round: u32,
    /// Whether there may have been an earlier try in this round. Its effect is searched for first.
    pub retried: bool,
    /// Why the commit of the open change request is outdated: the commit is replaced, and no other change request is
    /// opened. If the change request has ended since, that counts.
    pub rebuild: Option<OutdatedReason>,
    /// Whether the head is so old that checks would have begun to report. Before, a head without checks is not merged.
    pub checks_settled: bool,
    /// Whether a look at the change request also reads its checks if no merge needs them: people see them.
    pub reads_checks: bool,
    /// The other promotions into the same environment (or target) that may use its change request, as `namespace/name`. If its
    /// branch carries one of them, the change request is not closed.
    pub open_beside: Vec<String>,
    /// The addresses of the change requests that promotions into the same environment (or target) record: Sluice has opened or
    /// adopted them.
    pub recorded: Vec<String>,
    /// Those of `recorded` that a record has as open: the controller closes them when they are not needed.
    pub recorded_open: Vec<String>,
    /// The addresses of the closed change requests into the same environment (or target) that are not rejections: those that Sluice
    /// has closed, and those that people had closed before a retry.
    pub withdrawn: Vec<String>,
    /// The permission to deliver, checked before each side effect that others can see.
    pub fencing_token: FencingToken,
    /// How to deliver it.
    pub strategy: DeliveryStrategy,
    /// Which values a delivery to git sets.
    pub values: Values,
    /// The credentials of the Secret.
    pub credentials: Credentials,
}

/// Which values a delivery to git sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// The values with a marker.
    #[default]
    Marked,
    /// The values of a list, in each of these targets, and no others.
    Listed {
        /// The list.
        updates: Vec<Update>,
        /// All targets of the environment.
        places: Vec<UpdateTarget>,
    },
    /// The texts of files, which a person requests. The order is of no promotion.
    Files(RequestedChange),
}

/// How a promotion is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryStrategy {
    /// By a change request that people merge.
    PullRequest {
        /// The forge that holds the repository.
        forge: ForgeKind,
        /// The repository.
        url: String,
        /// The branch that the change request goes to.
        base: String,
        /// What the change request should look like.
        settings: Box<Settings>,
    },
    /// By a commit straight to a branch.
    Commit {
        /// The repository.
        url: String,
        /// The branch.
        branch: String,
    },
    /// By an event in the form of Flux. The receiver promotes.
    Notification(Box<Announcement>),
    /// By a call to an address. The receiver promotes.
    Webhook {
        /// The address, unless the Secret has another.
        url: String,
        /// What the receiver learns about the promotion.
        about: Box<Announcement>,
    },
}

impl DeliveryStrategy {
    /// Returns the repository and the branch that it writes to, directly or by change requests; `None` if a receiver does the
    /// work.
    pub(crate) fn written_branch(&self) -> Option<(&str, &str)> {
        match self {
            DeliveryStrategy::Commit { url, branch } => Some((url, branch)),
            DeliveryStrategy::PullRequest { url, base, .. } => Some((url, base)),
            DeliveryStrategy::Notification(_) | DeliveryStrategy::Webhook { .. } => None,
        }
    }
}

/// What a change request should look like, apart from the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Labels.
    pub labels: Vec<String>,
    /// Reviewers, by the names or ids of the forge.
    pub reviewers: Vec<String>,
    /// Assignees, by the names of the forge.
    pub assignees: Vec<String>,
    /// Whether it is opened as a draft.
    pub draft: bool,
    /// The title, with placeholders, instead of the default.
    pub title: Option<String>,
    /// The body, with placeholders, instead of the default.
    pub body: Option<String>,
    /// The head branch, with placeholders, instead of the default.
    pub branch: Option<String>,
    /// Whether Sluice merges it, and when.
    pub merge: MergeMode,
    /// Whether its branch is deleted after the merge.
    pub delete_branch: bool,
    /// The address of the forge's API, if it does not follow from that of the repository.
    pub api_url: Option<String>,
}

impl Settings {
    /// Checks the texts.
    ///
    /// # Errors
    /// When a text cannot be used. The error says what to write instead.
    pub fn check(&self) -> Result<(), TemplateError> {
        template::check_title(self.title.as_deref())?;
        template::check_body(self.body.as_deref().unwrap_or_default())?;
        self.branch.as_deref().map_or(Ok(()), head_branch::check_template)
    }
}

/// What the receiver of a notification or webhook learns about a promotion, beside the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The uid of the Promotion.
    pub uid: String,
    /// The number of this try, from 1.
    pub attempt: u32,
    /// Whether an earlier try may have arrived without an answer.
    pub in_doubt: bool,
    /// The uid of the Pipeline.
    pub pipeline_uid: String,
    /// The resource version of the Pipeline.
    pub pipeline_version: String,
    /// The targets of the environment.
    pub targets: Vec<DeliveryTarget>,
    /// Where the revision was verified: environment, target and time.
    pub evidence: Vec<(String, String, String)>,
}

impl Announcement {
    /// The key by which the receiver recognizes a repetition: the same for every try, and another one for each round.
    pub fn identity(&self, round: u32) -> String {
        match round {
            0 => self.uid.clone(),
            round => format!("{}.{round}", self.uid),
        }
    }
}

/// One target of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTarget {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Namespace and name of its cluster; `None` for the one that holds the Pipeline.
    pub cluster: Option<(String, String)>,
}

impl Order {
    /// The order for a change request that changes the files of a pipeline. `at` is the time of the commit. It is of no
    /// promotion, and is delivered only: nobody follows it, and Sluice does not merge it.
    pub fn of_files(
        (namespace, pipeline): (&str, &str),
        strategy: DeliveryStrategy,
        change: RequestedChange,
        at: Timestamp,
    ) -> Order {
        let key = FacetKey { kind: "Pipeline".into(), name: pipeline.into(), facet: Facet::Digest };
        Order {
            promotion: String::new(),
            namespace: namespace.into(),
            pipeline: pipeline.into(),
            environment: String::new(),
            target: None,
            revision: Revision::of_one(key, change.content_hash()),
            replaces: String::new(),
            evidence: Vec::new(),
            created: at,
            round: 0,
            // The branch is that of this very change, so its open change request is always found. A closed one does not
            // count: the person asks again.
            retried: false,
            rebuild: None,
            checks_settled: false,
            reads_checks: false,
            open_beside: Vec::new(),
            recorded: Vec::new(),
            recorded_open: Vec::new(),
            withdrawn: Vec::new(),
            fencing_token: FencingToken::default(),
            strategy,
            values: Values::Files(change),
            credentials: Credentials::default(),
        }
    }

    /// The change that a person requests, with the branch that it goes to, if the order is for that.
    pub(crate) fn requested(&self) -> Option<(&RequestedChange, &str)> {
        match (&self.values, &self.strategy) {
            (Values::Files(change), DeliveryStrategy::PullRequest { base, .. }) => Some((change, base)),
            (Values::Files(change), _) => Some((change, "")),
            _ => None,
        }
    }

    /// The head branch of all change requests for this environment (and target), or for this change of files.
    pub fn branch(&self) -> String {
        if let Some((change, base)) = self.requested() {
            return head_branch::of_files((&self.namespace, &self.pipeline), change, base);
        }
        let template = self.settings().and_then(|settings| settings.branch.as_deref());
        let place = [self.namespace.as_str(), &self.pipeline, &self.environment];
        head_branch::of_environment(place, self.target.as_deref(), template)
    }

    /// Whether another environment can have the same head branch.
    pub(crate) fn may_share_branch(&self) -> bool {
        let template = self.settings().and_then(|settings| settings.branch.as_deref());
        self.requested().is_none() && head_branch::may_be_shared(template)
    }

    /// The name of the promotion in its commits and change requests: `namespace/name`, and `:round` after the first
    /// round. No name of an object has a colon.
    pub(crate) fn known_by(&self) -> String {
        match self.round {
            0 => self.promotion.clone(),
            round => format!("{}:{round}", self.promotion),
        }
    }

    /// What Sluice writes for the promotion, as a key for its commits: the promotion with its round, the revision and
    /// the values to set. If the pipeline is corrected, a commit with the earlier values is not Sluice's own any more.
    pub(crate) fn content_key(&self) -> String {
        let content = format!("{:?}", (&self.revision, &self.values));
        fingerprint([self.known_by().as_bytes(), content.as_bytes()])
    }

    /// What the change request should look like, if the order is delivered by one.
    fn settings(&self) -> Option<&Settings> {
        match &self.strategy {
            DeliveryStrategy::PullRequest { settings, .. } => Some(settings),
            _ => None,
        }
    }

    /// The repository; empty for a notification or webhook.
    pub(crate) fn repository(&self) -> &str {
        match &self.strategy {
            DeliveryStrategy::PullRequest { url, .. } | DeliveryStrategy::Commit { url, .. } => url,
            DeliveryStrategy::Notification(_) | DeliveryStrategy::Webhook { .. } => "",
        }
    }

    /// The addresses of APIs in the pipeline and in its Secret.
    pub(crate) fn api_urls(&self) -> [Option<&str>; 2] {
        let of_strategy = self.settings().and_then(|settings| settings.api_url.as_deref());
        [of_strategy, self.credentials.app.as_ref().and_then(|app| app.base.as_deref())]
    }

    /// The pipeline, as `namespace/name`, in whose queues the delivery waits.
    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.namespace, self.pipeline)
    }

    /// `namespace/pipeline/environment`, and `/target` if it is for one target.
    pub(crate) fn subject(&self) -> String {
        let subject = format!("{}/{}/{}", self.namespace, self.pipeline, self.environment);
        match &self.target {
            Some(target) => format!("{subject}/{target}"),
            None => subject,
        }
    }

    /// The part that all markers for this environment have.
    pub(crate) fn key(&self) -> String {
        format!("{}:{}:{}", self.namespace, self.pipeline, self.environment)
    }

    /// The marker for this environment (and target) in files.
    pub(crate) fn marker(&self) -> String {
        let key = self.key();
        match &self.target {
            Some(target) => format!(r#"{{"$promotion": "{key}", "target": "{target}"}}"#),
            None => format!(r#"{{"$promotion": "{key}"}}"#),
        }
    }
}
