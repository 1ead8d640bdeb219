//! The caller's rights for the commands.

use super::{Finding, Reading, Topic};

/// A right that commands need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededRight {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The resource, in the plural, as RBAC names it: `pods/portforward` for a subresource.
    pub resource: &'static str,
    /// True if the right counts in the namespace of the controller, instead of the checked one.
    pub near_controller: bool,
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
    NeededRight { verb, group: GROUP, resource, near_controller: false }
}

const fn near_controller(verb: &'static str, resource: &'static str) -> NeededRight {
    NeededRight { verb, group: "", resource, near_controller: true }
}

const TASKS: [Task; 7] = [
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
        rights: &[NeededRight { verb: "list", group: "", resource: "events", near_controller: false }],
        role: "view",
        is_basic: false,
    },
    Task {
        commands: "trace, charts --fleet, images --fleet, clusters --fleet",
        rights: &[
            near_controller("list", "pods"),
            near_controller("get", "pods/portforward"),
            near_controller("create", "pods/portforward"),
        ],
        role: "sluice-api-client",
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
    /// The namespace of the controller.
    pub controller_namespace: String,
    /// Why the controller's API cannot identify the caller, and what to do; `None` if it can.
    pub unidentified: Option<(String, String)>,
    /// Whether the caller has a right, in the order of [`all`]. A right without an answer is not needed.
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
    let user = facts.user.as_deref().unwrap_or("you");
    let (near_controller, others): (Vec<&Task>, Vec<&Task>) =
        TASKS.iter().partition(|task| asks_controller(task));
    let place = match &facts.namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " in all namespaces".into(),
    };
    let mut findings = Vec::new();
    for (tasks, place) in [(others, place), (near_controller, String::new())] {
        let mut allowed = Vec::new();
        for task in tasks {
            let of_task = |(right, _): &&(NeededRight, _)| task.rights.contains(right);
            let answers: Vec<_> = facts.answers.iter().filter(of_task).collect();
            if let Some(unread) = answers.iter().find_map(|(_, fact)| fact.unread(topic, "your rights")) {
                findings.push(unread);
                continue;
            }
            let lacking = answers.iter().filter(|(_, fact)| fact.known() != Some(&true));
            let lacking: Vec<NeededRight> = lacking.map(|(right, _)| *right).collect();
            match (answers.is_empty(), lacking.is_empty()) {
                (true, _) => {}
                (false, true) => match facts.unidentified.as_ref().filter(|_| asks_controller(task)) {
                    None => allowed.push(task.commands),
                    Some((why, fix)) => findings.push(
                        Finding::warning(topic, format!("{user} may not use {}: {why}", task.commands))
                            .fix(format!("{fix}: docs/fleet.md#reach-the-controller")),
                    ),
                },
                (false, false) => {
                    let message = format!("{user} may not use {}{place}: this needs ", task.commands);
                    findings.push(lack(task, &lacking, message, &facts.controller_namespace));
                }
            }
        }
        if !allowed.is_empty() {
            findings.push(Finding::ok(topic, format!("{user} may use {}{place}", allowed.join(", "))));
        }
    }
    findings
}

/// Returns true if the commands ask the controller's API.
fn asks_controller(task: &Task) -> bool {
    task.rights.iter().any(|right| right.near_controller)
}

/// Returns the finding that the caller lacks rights, with the role that grants them. The finding's text begins with
/// `message`.
fn lack(task: &Task, lacking: &[NeededRight], message: String, controller_namespace: &str) -> Finding {
    let topic = Topic::Rights;
    let (of_message, of_fix) = match lacking.iter().any(|right| right.near_controller) {
        true => {
            let place = format!(" in namespace {controller_namespace}");
            (place.clone(), format!("{place}: docs/fleet.md#reach-the-controller"))
        }
        false if task.role.starts_with("sluice") => {
            (String::new(), ": docs/approvals.md#decide-who-may".into())
        }
        false => (String::new(), String::new()),
    };
    let message = format!("{message}{}{of_message}", words(lacking));
    let finding =
        if task.is_basic { Finding::error(topic, message) } else { Finding::warning(topic, message) };
    finding.fix(format!("ask for the ClusterRole {}{of_fix}", task.role))
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
