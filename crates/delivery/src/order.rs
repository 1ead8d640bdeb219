//! What to deliver, and how: plain values from the controller.

use jiff::Timestamp;
use sluice_core::Revision;
use sluice_core::setters::{Place, Update};

use crate::credentials::Credentials;
use crate::fencing::FencingToken;
use crate::forge_kind::ForgeKind;
use crate::hex::sha256_hex;
use crate::outcome::OutdatedReason;
use crate::template::{self, TemplateError};

/// One promotion that is to be delivered.
#[derive(Clone, Debug)]
pub struct Order {
    /// The Promotion object, as `namespace/name`: the key by which an earlier try is found again.
    pub promotion: String,
    /// The pipeline's namespace.
    pub namespace: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The environment that the revision goes into.
    pub environment: String,
    /// The one target it is for, where a pipeline delivers each target by itself.
    pub target: Option<String>,
    /// What is delivered.
    pub revision: Revision,
    /// What the environment ran before, for people.
    pub replaces: String,
    /// Why the revision may go there, a line each, for people.
    pub evidence: Vec<String>,
    /// When the promotion was made: the date of the commit, so that a second try makes the same one.
    pub created: Timestamp,
    /// How often it was delivered before, and begun anew since: what an earlier round has brought is of that
    /// one alone.
    pub round: u32,
    /// Whether there may have been an earlier try in this round: its effect is searched for before anything is
    /// done.
    pub retried: bool,
    /// Whether a person asked for it again: then a closed change request of this round is not the end.
    pub reopen: bool,
    /// Why the commit of its open change request does not do: another is made for it, and no other change
    /// request. One that has ended since has ended.
    pub anew: Option<OutdatedReason>,
    /// Whether its head has stood for so long that checks would have begun to report: one without any is not
    /// merged before.
    pub settled: bool,
    /// Whether it may still be done: looked at before each thing that others can see.
    pub permit: FencingToken,
    /// How it is delivered.
    pub strategy: Strategy,
    /// Which values a delivery to git sets.
    pub values: Values,
    /// With which rights.
    pub credentials: Credentials,
}

/// Which values a delivery to git sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Values {
    /// Those with a marker.
    #[default]
    Marked,
    /// Those of a list, in each of these targets, and no others.
    Listed {
        /// The list.
        updates: Vec<Update>,
        /// All targets of the environment.
        places: Vec<Place>,
    },
}

/// How a promotion is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By a change request that people merge.
    PullRequest {
        /// The forge that holds the repository.
        forge: ForgeKind,
        /// The repository.
        url: String,
        /// The branch that the change request goes to.
        base: String,
        /// What it is to be like.
        settings: Box<Settings>,
    },
    /// By a commit straight to a branch.
    Commit {
        /// The repository.
        url: String,
        /// The branch.
        branch: String,
    },
    /// By an event in Flux's form; whoever listens promotes.
    Notification(Box<Announcement>),
    /// By a call of an address; the other side promotes.
    Webhook {
        /// The address, unless the Secret has another.
        url: String,
        /// What is said of the promotion.
        about: Box<Announcement>,
    },
}

/// What a change request is to be like, beside what it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Labels that it gets.
    pub labels: Vec<String>,
    /// Who is asked to review it, by the names that the forge knows people by.
    pub reviewers: Vec<String>,
    /// Who is to see to it.
    pub assignees: Vec<String>,
    /// It is opened as a draft.
    pub draft: bool,
    /// The title, with placeholders, in place of the usual one.
    pub title: Option<String>,
    /// The body, with placeholders, in place of the usual one.
    pub body: Option<String>,
    /// The branch, with placeholders, in place of the usual one.
    pub branch: Option<String>,
    /// Whether Sluice merges it, and when.
    pub merge: MergeMode,
    /// Its branch is deleted once it is merged.
    pub delete_branch: bool,
    /// The address of the forge's API, where it does not follow from the repository's.
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
        self.branch.as_deref().map_or(Ok(()), template::check_branch)
    }
}

/// Whether Sluice merges a change request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeMode {
    /// People do.
    #[default]
    Never,
    /// As soon as checks and approvals allow it.
    WhenGreen,
    /// As soon as they do, by the queue of its forge.
    Queue,
}

/// What others are told of a promotion that they are to carry out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The Promotion's own identity.
    pub uid: String,
    /// Which try this is, from one.
    pub attempt: u32,
    /// An earlier try may have arrived although nobody said so.
    pub in_doubt: bool,
    /// The Pipeline's own identity.
    pub pipeline_uid: String,
    /// The version of the Pipeline that was looked at.
    pub pipeline_version: String,
    /// The targets of the environment.
    pub targets: Vec<Target>,
    /// Where the revision was proven: environment, target and since when.
    pub evidence: Vec<(String, String, String)>,
}

impl Announcement {
    /// The key by which the other side knows a repetition: the same for every try, another one only
    /// for a promotion that was delivered and then begun anew, so many times.
    pub fn identity(&self, round: u32) -> String {
        match round {
            0 => self.uid.clone(),
            round => format!("{}.{round}", self.uid),
        }
    }
}

/// One target of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Namespace and name of its cluster; `None` for the one that holds the Pipeline.
    pub cluster: Option<(String, String)>,
}

impl Order {
    /// The one branch that change requests for this environment (and target) come from.
    pub fn branch(&self) -> String {
        let mut last = component(&self.environment);
        if let Some(target) = &self.target {
            last = format!("{last}@{}", component(target));
        }
        let branch = match &self.strategy {
            Strategy::PullRequest { settings, .. } => settings.branch.as_deref(),
            _ => None,
        };
        if branch == Some(template::OF_PREDECESSOR) {
            return format!("promotion-{}-{}-{last}", component(&self.namespace), component(&self.pipeline));
        }
        let prefix = branch.and_then(template::prefix).unwrap_or("sluice/");
        format!("{prefix}{}/{}/{last}", component(&self.namespace), component(&self.pipeline))
    }

    /// What its commits and change requests name it by, in this round: the promotion, and the round unless that
    /// is the first. No name has a colon.
    pub(crate) fn known_by(&self) -> String {
        match self.round {
            0 => self.promotion.clone(),
            round => format!("{}:{round}", self.promotion),
        }
    }

    /// The repository that it goes to; empty where it goes to none.
    pub(crate) fn repository(&self) -> &str {
        match &self.strategy {
            Strategy::PullRequest { url, .. } | Strategy::Commit { url, .. } => url,
            Strategy::Notification(_) | Strategy::Webhook { .. } => "",
        }
    }

    /// The addresses of APIs that people have written into the pipeline and its Secret.
    pub(crate) fn api_urls(&self) -> [Option<&str>; 2] {
        let of_strategy = match &self.strategy {
            Strategy::PullRequest { settings, .. } => settings.api_url.as_deref(),
            _ => None,
        };
        [of_strategy, self.credentials.app.as_ref().and_then(|app| app.base.as_deref())]
    }

    /// Whose queue it waits in: one for each pipeline.
    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.namespace, self.pipeline)
    }

    /// What it is for: `namespace/pipeline/environment`, and `/target` where it is for one.
    pub(crate) fn subject(&self) -> String {
        let subject = format!("{}/{}/{}", self.namespace, self.pipeline, self.environment);
        match &self.target {
            Some(target) => format!("{subject}/{target}"),
            None => subject,
        }
    }

    /// What a marker for this environment says, whichever else it says.
    pub(crate) fn key(&self) -> String {
        format!("{}:{}:{}", self.namespace, self.pipeline, self.environment)
    }

    /// The marker that files carry for this environment.
    pub(crate) fn marker(&self) -> String {
        let key = self.key();
        match &self.target {
            Some(target) => format!(r#"{{"$promotion": "{key}", "target": "{target}"}}"#),
            None => format!(r#"{{"$promotion": "{key}"}}"#),
        }
    }
}

/// Text as one part of a branch name. What git does not allow there is replaced, and a short hash
/// keeps two texts apart that would look the same then.
fn component(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let clean: String = text.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    let bad = clean.is_empty() || clean.starts_with('.') || clean.ends_with('.') || clean.contains("..");
    if clean == text && !bad && !clean.ends_with(".lock") {
        return clean;
    }
    let hash = sha256_hex(text.as_bytes());
    format!("{}-{}", clean.replace('.', "-"), &hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_parts_are_what_git_allows_and_stay_apart() {
        assert_eq!(component("podinfo-2.x"), "podinfo-2.x");
        for text in ["a.lock", "a..b", ".a", "a.", "a b", "a@{1}", "fleet/dev", "", "a~b", "ü"] {
            let made = component(text);
            assert_ne!(made, text);
            let allowed = made.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
            assert!(allowed && !made.is_empty(), "{made}");
        }
        assert_ne!(component("a b"), component("a~b"));
    }
}
