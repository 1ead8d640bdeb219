//! The controller: does it run, does a replica act for each shard, and is it of this version?

use jiff::{SignedDuration, Timestamp};

use super::reading::span;
use super::{Finding, Reading, Topic};

/// The Leases and Deployments of the controller.
#[derive(Clone, Debug)]
pub struct Controller {
    /// The namespace of the controller.
    pub namespace: String,
    /// The version of this program.
    pub version: String,
    /// Whether a controller itself asks, so that one runs.
    pub is_running: bool,
    /// The time of the API server.
    pub now: Timestamp,
    /// The Leases of the namespace.
    pub leases: Reading<Vec<Lease>>,
    /// The Deployments of the controller.
    pub deployments: Reading<Vec<Deployment>>,
}

/// A Lease.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// The replica that holds it.
    pub holder: Option<String>,
    /// When the holder renewed it, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How long a renewal counts.
    pub duration: SignedDuration,
}

impl Lease {
    /// Returns true if it is the Lease of a shard of the pipelines.
    pub fn is_of_shard(&self) -> bool {
        self.name.contains(".shard-")
    }

    /// Returns why no replica acts for the shard, or `None` if one does. `now` is the time of the API server.
    pub fn trouble(&self, now: Timestamp) -> Option<String> {
        let name = &self.name;
        let Some(holder) = self.holder.as_ref().filter(|holder| !holder.is_empty()) else {
            return Some(format!("no replica holds the Lease {name}: nothing is promoted for its pipelines"));
        };
        let Some(renewed) = self.renewed else {
            return Some(format!("{holder} has never renewed the Lease {name}"));
        };
        let age = now.duration_since(renewed);
        // The clocks of the holder and of the API server may differ by a few seconds.
        let longest = self.duration * 2 + SignedDuration::from_secs(5);
        let trouble = || {
            format!(
                "{holder} has not renewed the Lease {name} for {}: nothing is promoted",
                span(age.as_secs())
            )
        };
        (age > longest).then(trouble)
    }
}

/// A Deployment.
#[derive(Clone, Debug, Default)]
pub struct Deployment {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many replicas it should have.
    pub wanted: i32,
    /// How many replicas are ready.
    pub ready: i32,
    /// The images of its containers.
    pub images: Vec<String>,
}

impl Deployment {
    /// Returns the tag of the first image, without `v`, if it begins with a number.
    pub(super) fn version(&self) -> Option<&str> {
        let image = self.images.first()?.split('@').next()?;
        let (_, tag) = image.rsplit('/').next()?.split_once(':')?;
        let tag = tag.strip_prefix('v').unwrap_or(tag);
        tag.starts_with(|c: char| c.is_ascii_digit()).then_some(tag)
    }
}

/// Returns the findings.
pub fn findings(facts: &Controller) -> Vec<Finding> {
    let topic = Topic::Controller;
    let mut findings = Vec::new();
    let none = Vec::new();
    let deployments = facts.deployments.known().unwrap_or(&none);
    for deployment in deployments {
        findings.extend(replicas(facts, deployment));
    }
    findings.extend(facts.deployments.unread(topic, "the Deployment of the controller"));
    let Some(leases) = facts.leases.known() else {
        findings.extend(facts.leases.unread(topic, "whether a replica of the controller acts"));
        return findings;
    };
    let shards: Vec<&Lease> = leases.iter().filter(|lease| lease.is_of_shard()).collect();
    let namespace = &facts.namespace;
    match (shards.is_empty(), deployments.is_empty()) {
        (true, true) if facts.is_running => findings.push(Finding::warning(
            topic,
            format!("namespace {namespace} has no Lease and no Deployment of Sluice: the controller that answers runs without Leases"),
        )),
        (true, true) => findings.push(
            Finding::error(topic, format!("no controller was found in namespace {namespace}")).fix(
                "kubectl apply --server-side -k deploy; if it runs elsewhere, name its namespace with --system-namespace",
            ),
        ),
        (true, false) => findings.push(
            Finding::warning(
                topic,
                format!("namespace {namespace} has no Lease of Sluice: the controller did not start, or runs without Leases"),
            )
            .fix(format!("kubectl logs -n {namespace} deployment/{}", deployments[0].name)),
        ),
        (false, _) => findings.extend(shards.into_iter().map(|lease| shard(facts, lease))),
    }
    findings
}

fn replicas(facts: &Controller, deployment: &Deployment) -> Vec<Finding> {
    let topic = Topic::Controller;
    let Deployment { namespace, name, wanted, ready, .. } = deployment;
    let what = format!("{ready} of {wanted} replicas of Deployment {namespace}/{name} are ready");
    let look = format!("kubectl describe pods -n {namespace} -l app.kubernetes.io/name=sluice");
    let mut findings = vec![match (wanted, ready) {
        (0, _) => Finding::error(
            topic,
            format!("Deployment {namespace}/{name} is scaled to 0: nothing is promoted"),
        )
        .fix(format!("kubectl scale deployment/{name} -n {namespace} --replicas=2")),
        (_, 0) => Finding::error(topic, what).fix(look),
        (wanted, ready) if ready < wanted => Finding::warning(topic, what).fix(look),
        _ => Finding::ok(topic, what),
    }];
    if let Some(version) = deployment.version().filter(|version| *version != facts.version) {
        let message = format!("the controller is version {version}, and this sluice is {}", facts.version);
        findings.push(
            Finding::warning(topic, message).fix("use the same version of both: docs/operations.md#upgrade"),
        );
    }
    findings
}

fn shard(facts: &Controller, lease: &Lease) -> Finding {
    let topic = Topic::Controller;
    let namespace = &facts.namespace;
    let logs = format!("kubectl get pods -n {namespace}; kubectl logs -n {namespace} deployment/sluice");
    match lease.trouble(facts.now) {
        Some(trouble) => Finding::error(topic, trouble).fix(logs),
        None => {
            let holder = lease.holder.as_deref().unwrap_or_default();
            Finding::ok(topic, format!("{holder} acts for {}", lease.name))
        }
    }
}
