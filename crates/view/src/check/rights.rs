//! The caller's rights for the commands.

use super::{Finding, Reading, Topic};

/// A right that commands need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededRight {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The resource, in the plural.
    pub resource: &'static str,
}

/// Commands, the rights that they need, and the ClusterRole with these rights.
struct Task {
    commands: &'static str,
    rights: &'static [NeededRight],
    role: &'static str,
    /// True if most other commands also need the rights.
    is_basic: bool,
}

const GROUP: &str = sluice_api::GROUP;

const fn right(verb: &'static str, resource: &'static str) -> NeededRight {
    NeededRight { verb, group: GROUP, resource }
}

const TASKS: [Task; 6] = [
    Task {
        commands: "get, status, explain, history",
        rights: &[
            right("get", "pipelines"),
            right("list", "pipelines"),
            right("get", "promotions"),
            right("list", "promotions"),
        ],
        role: "sluice-viewer",
        is_basic: true,
    },
    Task {
        commands: "-w and --wait",
        rights: &[right("watch", "pipelines"), right("watch", "promotions")],
        role: "sluice-viewer",
        is_basic: false,
    },
    Task {
        commands: "approve, reject",
        rights: &[right("patch", "promotions"), right("approve", "promotions")],
        role: "sluice-approver",
        is_basic: false,
    },
    Task {
        commands: "retry",
        rights: &[right("patch", "promotions"), right("retry", "promotions")],
        role: "sluice-editor",
        is_basic: false,
    },
    Task {
        commands: "suspend, resume",
        rights: &[right("patch", "pipelines")],
        role: "sluice-editor",
        is_basic: false,
    },
    Task {
        commands: "events",
        rights: &[NeededRight { verb: "list", group: "", resource: "events" }],
        role: "view",
        is_basic: false,
    },
];

/// The caller's rights in one namespace, or in all.
#[derive(Clone, Debug)]
pub struct Rights {
    /// The caller's name, if it is known.
    pub user: Option<String>,
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// Whether the caller has a right, in the order of [`all`].
    pub answers: Vec<(NeededRight, Reading<bool>)>,
}

/// Returns all rights that commands need, each once.
pub fn all() -> Vec<NeededRight> {
    let mut all: Vec<NeededRight> = Vec::new();
    for right in TASKS.iter().flat_map(|task| task.rights) {
        if !all.contains(right) {
            all.push(*right);
        }
    }
    all
}

/// Returns the findings.
pub fn findings(facts: &Rights) -> Vec<Finding> {
    let topic = Topic::Rights;
    let place = match &facts.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in all namespaces".into(),
    };
    let user = facts.user.as_deref().unwrap_or("you");
    let mut findings = Vec::new();
    let mut allowed = Vec::new();
    for task in &TASKS {
        let answers: Vec<_> = facts.answers.iter().filter(|(right, _)| task.rights.contains(right)).collect();
        if let Some(unread) = answers.iter().find_map(|(_, fact)| fact.unread(topic, "your rights")) {
            findings.push(unread);
            continue;
        }
        let lacking: Vec<NeededRight> =
            answers.iter().filter(|(_, fact)| fact.known() != Some(&true)).map(|(right, _)| *right).collect();
        if lacking.is_empty() {
            allowed.push(task.commands);
            continue;
        }
        let message = format!("{user} may not use {} {place}: this needs {}", task.commands, words(&lacking));
        let finding =
            if task.is_basic { Finding::error(topic, message) } else { Finding::warning(topic, message) };
        let page = if task.role.starts_with("sluice") { ": docs/approvals.md#decide-who-may" } else { "" };
        findings.push(finding.fix(format!("ask for the ClusterRole {}{page}", task.role)));
    }
    if !allowed.is_empty() {
        findings.push(Finding::ok(topic, format!("{user} may use {} {place}", allowed.join(", "))));
    }
    findings
}

/// Returns rights in words: `get, list on pipelines.pipelines.weave.works and patch on ...`.
fn words(rights: &[NeededRight]) -> String {
    let mut resources: Vec<String> = rights.iter().map(resource).collect();
    resources.dedup();
    let of = |wanted: &String| {
        let verbs = rights.iter().filter(|right| resource(right) == *wanted).map(|right| right.verb);
        format!("{} on {wanted}", verbs.collect::<Vec<_>>().join(", "))
    };
    resources.iter().map(of).collect::<Vec<_>>().join(" and ")
}

/// Returns a resource as RBAC names it: `promotions.pipelines.weave.works`.
fn resource(right: &NeededRight) -> String {
    match right.group {
        "" => right.resource.into(),
        group => format!("{}.{group}", right.resource),
    }
}
