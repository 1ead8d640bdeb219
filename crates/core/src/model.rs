//! What a pipeline asks for and what has been started for it, as plain values: the inputs of a
//! decision, free of how Kubernetes spells them.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use crate::revision::{Facet, Revision};

/// A pipeline as its owner wrote it, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity; a pipeline made anew under an old name is another one.
    pub uid: String,
    /// Nothing is started, pushed or opened.
    pub suspended: bool,
    /// What makes a revision; empty for the default of each workload.
    pub tracks: Vec<Track>,
    /// In order; each names only environments that stand before it as predecessors.
    pub environments: Vec<Environment>,
}

/// One environment of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// Its name.
    pub name: String,
    /// The names of its targets.
    pub targets: Vec<String>,
    /// The environments whose revisions come here; empty for those at the start.
    pub after: Vec<String>,
    /// How to promote into it; without it the environment is only shown.
    pub policy: Option<Policy>,
    /// The one target that this is about, where each is promoted into by itself; `None` for all of
    /// them together.
    pub alone: Option<String>,
}

impl Environment {
    /// What is promoted into at a time: the environment as a whole, or each of its targets by itself.
    pub fn lanes(&self) -> Vec<Environment> {
        if !self.policy.as_ref().is_some_and(|policy| policy.per_target) {
            return vec![self.clone()];
        }
        let alone = |target: &String| Environment {
            targets: vec![target.clone()],
            alone: Some(target.clone()),
            ..self.clone()
        };
        self.targets.iter().map(alone).collect()
    }

    /// Whether a promotion is into this: the environment, or this one target of it.
    pub fn is_of(&self, promotion: &Promotion) -> bool {
        promotion.environment == self.name && promotion.target == self.alone
    }
}

/// How revisions get into an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// A person approves.
    pub manual: bool,
    /// How many targets of each predecessor must have proven the revision.
    pub min_ready: MinReady,
    /// Older revisions pass without asking.
    pub allow_downgrade: bool,
    /// Each target is promoted into by itself.
    pub per_target: bool,
    /// How long a delivered revision may take to run healthily.
    pub timeout: SignedDuration,
    /// The repository and branch that is written to; `None` where the strategy writes to none.
    pub writes_to: Option<Repository>,
    /// Why this policy cannot be carried out at all, as a sentence that mends it.
    pub refused: Option<String>,
}

/// A git repository and a branch of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repository {
    /// Its address, as its owner wrote it.
    pub url: String,
    /// The branch.
    pub branch: String,
}

impl Repository {
    /// Whether two addresses are the same branch of the same repository, however they are written:
    /// by https or ssh, with or without `.git`, user or port of the scheme, and in each form that its
    /// forge has for it.
    pub fn is_same(&self, other: &Repository) -> bool {
        self.branch == other.branch && bare_address(&self.url) == bare_address(&other.url)
    }
}

fn bare_address(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let scp_like = !url.contains("://");
    let rest = rest.split_once('@').filter(|(user, _)| !user.contains('/')).map_or(rest, |(_, r)| r);
    let rest = if scp_like { rest.replacen(':', "/", 1) } else { rest.to_string() };
    let rest = rest.trim_end_matches('/').trim_end_matches(".git").to_ascii_lowercase();
    match rest.split_once('/') {
        Some((host, path)) => {
            let host = host.trim_end_matches(":443").trim_end_matches(":22").trim_end_matches(":80");
            usual_address(host, path)
        }
        None => rest,
    }
}

/// The one address for all that Azure DevOps and Bitbucket Data Center have for a repository.
fn usual_address(host: &str, path: &str) -> String {
    let azure = |organization: &str, project: &str, name: &str| {
        format!("dev.azure.com/{organization}/{project}/_git/{name}")
    };
    let parts: Vec<&str> = path.split('/').collect();
    let organization = host.strip_suffix(".visualstudio.com");
    match (host, parts.as_slice()) {
        ("ssh.dev.azure.com" | "vs-ssh.visualstudio.com", ["v3", organization, project, name]) => {
            azure(organization, project, name)
        }
        ("dev.azure.com", [organization, "_git", name]) => azure(organization, name, name),
        (_, ["defaultcollection", "_git", name] | ["_git", name]) if organization.is_some() => {
            azure(organization.unwrap_or_default(), name, name)
        }
        (_, ["defaultcollection", project, "_git", name] | [project, "_git", name])
            if organization.is_some() =>
        {
            azure(organization.unwrap_or_default(), project, name)
        }
        // Its port for ssh, and the path that it has only by https.
        (_, [.., "scm", project, name]) => {
            format!("{}/{project}/{name}", host.split(':').next().unwrap_or(host))
        }
        _ => format!("{}/{path}", host.trim_end_matches(":7999")),
    }
}

/// How many of an environment's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinReady {
    /// So many.
    Count(u32),
    /// So many percent, rounded up.
    Percent(u32),
}

impl MinReady {
    /// The number of targets that are needed of `targets`; at least one. It may be more than there
    /// are: then nothing passes.
    pub fn of(self, targets: usize) -> usize {
        match self {
            MinReady::Count(n) => (n as usize).max(1),
            MinReady::Percent(p) => (targets * p as usize).div_ceil(100).max(1),
        }
    }
}

/// One entry of what a pipeline tracks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Track {
    /// One facet.
    Facet(Facet),
    /// The images of all repositories.
    Images,
}

impl Track {
    /// Whether a facet of this kind belongs to it.
    pub fn admits(&self, facet: &Facet) -> bool {
        match self {
            Track::Images => matches!(facet, Facet::Image(_)),
            Track::Facet(own) => own == facet,
        }
    }
}

impl std::str::FromStr for Track {
    type Err = crate::revision::NotAFacet;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "images" { Ok(Track::Images) } else { text.parse().map(Track::Facet) }
    }
}

/// Where a promotion is; the words of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Waits for a gate or its turn.
    Pending,
    /// Delivery failed and is tried again.
    Promoting,
    /// Its change request is open.
    Proposed,
    /// The targets have not shown it yet.
    Delivered,
    /// The targets run it, healthily.
    Succeeded,
    /// Ended without effect, or not healthy in time.
    Failed,
    /// Its change request was closed unmerged.
    Rejected,
    /// A newer revision took its place.
    Superseded,
    /// No longer wanted.
    Cancelled,
}

impl Phase {
    /// Not delivered yet and not ended: the one promotion in hand of an environment.
    pub fn is_open(self) -> bool {
        matches!(self, Phase::Pending | Phase::Promoting | Phase::Proposed)
    }

    /// Nothing more happens to it by itself.
    pub fn has_ended(self) -> bool {
        !self.is_open() && self != Phase::Delivered
    }
}

/// What is recorded of one promotion.
#[derive(Clone, Debug, PartialEq)]
pub struct Promotion {
    /// Its name, unique in the pipeline's namespace.
    pub name: String,
    /// The environment it goes into.
    pub environment: String,
    /// The one target of it that it goes into, where each is promoted into by itself.
    pub target: Option<String>,
    /// What it carries.
    pub revision: Revision,
    /// Which return of this revision it is about.
    pub run: u32,
    /// When the revision came to be a candidate, in the order of arrivals.
    pub arrival: u64,
    /// Its place in the order in which promotions into the environment (or target) were started. Two that
    /// were asked for in one moment may have the same: see [`Promotion::line`].
    pub sequence: u64,
    /// It was asked for from outside, by this key; nothing that came before has proven it.
    pub trigger: Option<String>,
    /// Where it is.
    pub phase: Phase,
    /// A person let it pass, and it has not passed yet.
    pub approved: bool,
    /// How many times it was started again after it had ended or passed: each needs an approval of its own.
    pub retries: u32,
    /// Who rejected this try and why, as a sentence.
    pub rejected: Option<String>,
    /// The gates as last recorded.
    pub gates: Vec<Gate>,
    /// A person asked for another try, and nothing was done about it yet: the token.
    pub retry: Option<String>,
    /// Not before then.
    pub next_attempt: Option<Timestamp>,
    /// When it was delivered, if it was.
    pub delivered: Option<Timestamp>,
    /// The change request that carries it, as far as is known.
    pub request: Option<Request>,
    /// What the other side of a webhook has said of this try.
    pub said: Option<Said>,
    /// Why it is where it is.
    pub message: String,
}

/// What those who were called say has become of a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// They have taken it.
    Accepted(String),
    /// They have carried it out.
    Done(String),
    /// They have not, and will not.
    Failed(String),
    /// They have carried it out after all: the promotion is Failed because they said before that it has failed.
    Fixed(String),
}

/// The reason of a promotion that is Failed because those who were called said so.
pub const CALLBACK_FAILED: &str = "CallbackFailed";

/// A change request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number on the forge.
    pub number: u64,
    /// Neither merged nor closed.
    pub open: bool,
    /// It is where the pipeline does not propose changes any more: nobody can take it over.
    pub stray: bool,
}

impl Promotion {
    /// Its place in the line, which no other has.
    pub fn line(&self) -> (u64, &str) {
        (self.sequence, &self.name)
    }

    /// The number of its change request, if that is open.
    pub fn open_request(&self) -> Option<u64> {
        self.request.filter(|r| r.open).map(|r| r.number)
    }

    /// Whether its change request is open where the pipeline proposes nothing any more.
    pub fn has_strayed(&self) -> bool {
        self.request.is_some_and(|r| r.open && r.stray)
    }
}

/// The names of the gates that there are. A person's approval opens each.
pub const GATES: [&str; 3] = ["Approval", "Downgrade", "Unreported"];

/// What must be open before a promotion is delivered, and whether it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Which gate.
    pub name: &'static str,
    /// Whether it is open.
    pub open: bool,
    /// Why, and what opens it.
    pub message: String,
}

/// The name of a promotion, from what it is for: the same purpose has the same name, so that it
/// cannot be recorded twice.
pub fn promotion_name(pipeline: &Pipeline, into: &Environment, revision: &Revision, run: u32) -> String {
    let facets: String = revision.facets().map(|(key, value)| format!("{key}\0{value}\0")).collect();
    name(pipeline, into, &[&pipeline.uid, &into.name, &run.to_string()], facets)
}

/// The name of a promotion that is asked for from outside: the same key has the same name, whatever it
/// asks for.
pub fn trigger_name(pipeline: &Pipeline, into: &Environment, key: &str) -> String {
    name(pipeline, into, &[&pipeline.uid, &into.name, "trigger", key], String::new())
}

fn name(pipeline: &Pipeline, into: &Environment, purpose: &[&str], mut facets: String) -> String {
    let mut place = into.name.clone();
    if let Some(target) = &into.alone {
        facets.push_str(&format!("target\0{target}\0"));
        let told: String = target.chars().take(63).collect();
        place = format!("{place}-{}", told.trim_end_matches(['.', '-']));
    }
    let mut hash = Sha256::new();
    for part in purpose {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(facets.as_bytes());
    let digest: String = hash.finalize().iter().take(5).map(|b| format!("{b:02x}")).collect();
    let room = 253usize.saturating_sub(place.len() + digest.len() + 2);
    let prefix: String = pipeline.name.chars().take(room).collect();
    let prefix = prefix.trim_end_matches(['.', '-']);
    format!("{prefix}-{place}-{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_repository_is_known_in_every_spelling() {
        let at = |url: &str| Repository { url: url.into(), branch: "main".into() };
        let one = at("https://github.com/org/fleet.git");
        for same in [
            "https://github.com/org/fleet",
            "ssh://git@github.com/org/fleet",
            "ssh://git@github.com:22/org/fleet.git",
            "git@github.com:org/fleet.git",
            "https://user:token@GitHub.com/org/fleet/",
        ] {
            assert!(one.is_same(&at(same)), "{same}");
        }
        assert!(!one.is_same(&at("https://github.com/org/fleet2")));
        let azure = at("https://dev.azure.com/acme/platform/_git/fleet");
        for same in [
            "https://acme@dev.azure.com/acme/platform/_git/fleet",
            "git@ssh.dev.azure.com:v3/acme/platform/fleet",
            "ssh://git@ssh.dev.azure.com/v3/acme/platform/fleet",
            "https://acme.visualstudio.com/platform/_git/fleet",
            "https://acme.visualstudio.com/DefaultCollection/platform/_git/fleet",
            "acme@vs-ssh.visualstudio.com:v3/acme/platform/fleet",
        ] {
            assert!(azure.is_same(&at(same)), "{same}");
        }
        assert!(at("https://dev.azure.com/acme/_git/a").is_same(&at("https://acme.visualstudio.com/_git/a")));
        assert!(!azure.is_same(&at("git@ssh.dev.azure.com:v3/acme/other/fleet")));
        let server = at("https://git.example.com:8443/bitbucket/scm/ACME/fleet.git");
        assert!(server.is_same(&at("ssh://git@git.example.com:7999/acme/fleet.git")));
        assert!(!server.is_same(&at("ssh://git@git.example.com:7999/~acme/fleet.git")));
        assert!(!one.is_same(&Repository { branch: "dev".into(), ..one.clone() }));
    }

    #[test]
    fn min_ready_rounds_up_and_never_asks_for_none() {
        assert_eq!(MinReady::Percent(50).of(3), 2);
        assert_eq!(MinReady::Percent(100).of(3), 3);
        assert_eq!(MinReady::Percent(1).of(3), 1);
        assert_eq!(MinReady::Count(0).of(3), 1);
        assert_eq!(MinReady::Count(5).of(3), 5);
    }
}
