//! The fields of the form for a Pipeline: each with its question above, an example below, and what is wrong next to it.

use std::collections::BTreeSet;

use maud::{Markup, html};
use sluice_api::Pipeline;
use sluice_core::fleet::ClusterKey;
use sluice_view::draft::{CheckedDraft, Draft, DraftEnvironment, DraftTarget};
use sluice_view::pipeline_validation::SchemaProblem;

use super::answer::sentence;
use super::draft_first_setup::{self, Setup};
use super::shape::{Shape, icon};
use super::words;
use crate::choices::{APP_KINDS, Choices};
use crate::draft_input::{DO, DraftStep, FILES, MANIFEST, environment_field, target_field};

/// The paths of fields.
const NAMESPACE: &str = "metadata.namespace";
const NAME: &str = "metadata.name";
const APP_KIND: &str = "spec.appRef.kind";
const APP_NAME: &str = "spec.appRef.name";
const STRATEGY: &str = "spec.promotion.strategy";
const READY: &str = "spec.promotion.minReadyTargets";
/// How many of the places where the application runs are offered as targets.
const SHOWN_PLACES: usize = 12;

/// The strategies, each with its text in the form.
const STRATEGIES: [(&str, &str); 5] = [
    ("pull-request", "Open a change request"),
    ("commit", "Commit to the branch"),
    ("notification", "Send a notification"),
    ("webhook", "Call a webhook"),
    ("", "Only show the environments"),
];
/// The forges, each with its name in the form.
const FORGES: [(&str, &str); 7] = [
    ("github", "GitHub"),
    ("gitlab", "GitLab"),
    ("gitea", "Gitea"),
    ("forgejo", "Forgejo"),
    ("bitbucket", "Bitbucket Cloud"),
    ("bitbucket-server", "Bitbucket Data Center"),
    ("azure-devops", "Azure DevOps"),
];

/// The contents of the form.
pub(super) struct DraftForm {
    /// What was entered.
    pub draft: Draft,
    /// The Pipeline that is edited; `None` for a new one.
    pub edited: Option<Pipeline>,
    /// The manifest, and the problems that were found in it.
    pub checked: CheckedDraft,
    /// The files of a first set-up, or why there are none; `None` if the draft starts from no application.
    pub setup: Option<Setup>,
    /// What the person may choose.
    pub choices: Choices,
    /// The permission that the person lacks.
    pub missing_right: Option<String>,
    /// What the person has seen of the Pipeline that is edited, before the edit.
    pub seen: String,
    /// Whether people may act from the pages (`--api-actions`).
    pub actions: bool,
    /// Whether empty required fields count as problems. They do not at first.
    pub shows_missing: bool,
}

impl DraftForm {
    /// Whether there are no problems.
    pub(super) fn is_complete(&self) -> bool {
        self.checked.problems.is_empty() && draft_first_setup::problems(self.setup.as_ref()).is_empty()
    }

    /// Returns everything that a person can download: the Pipeline, and the files of a first set-up with their paths.
    pub(super) fn download(&self) -> String {
        let mut text = self.checked.yaml.clone();
        for file in self.setup.iter().flatten().flat_map(|setup| &setup.files) {
            text.push_str(&format!("---\n# {}\n{}", file.path, file.yaml));
        }
        text
    }

    /// Whether the person can propose the manifest in git: the Pipeline must open change requests, because the
    /// proposal goes to their repository.
    pub(super) fn may_propose(&self) -> bool {
        self.actions && self.missing_right.is_none() && self.draft.delivery.strategy == "pull-request"
    }

    /// Returns why the person cannot propose the manifest, if the Pipeline is the reason.
    fn why_no_proposal(&self) -> Option<String> {
        let strategy = self.draft.delivery.strategy.as_str();
        let is_reason = self.actions && self.missing_right.is_none() && strategy != "pull-request";
        is_reason.then(|| {
            let uses = match strategy {
                "" => "has no strategy".into(),
                strategy => format!("uses the strategy {strategy}"),
            };
            format!(
                "Sluice proposes a file only by a change request, and this pipeline {uses}. Download the YAML and commit it."
            )
        })
    }

    /// Whether the person sees this cluster, or its name is not complete yet.
    fn has_cluster(&self, key: &ClusterKey) -> bool {
        match key {
            ClusterKey::Remote { namespace, name } if !namespace.is_empty() && !name.is_empty() => {
                self.choices.keys.contains(key)
            }
            _ => true,
        }
    }

    /// Returns the clusters of targets that the person does not see, each once.
    pub(super) fn unknown_clusters(&self) -> BTreeSet<ClusterKey> {
        let targets = self.draft.environments.iter().flat_map(|environment| &environment.targets);
        let keys = targets.map(|target| target.cluster_key(&self.draft.namespace));
        keys.filter(|key| !self.has_cluster(key)).collect()
    }

    /// Returns how many fields are still empty.
    pub(super) fn missing(&self) -> usize {
        self.checked.problems.iter().filter(|problem| problem.is_missing()).count()
    }

    /// Returns the problems of the field at a path.
    fn problems_at(&self, path: &str) -> Vec<&SchemaProblem> {
        let all = self.checked.problems.iter();
        all.filter(|problem| self.is_shown(problem) && is_of(problem, path)).collect()
    }

    fn is_shown(&self, problem: &SchemaProblem) -> bool {
        self.shows_missing || !problem.is_missing()
    }

    /// Returns the problems that belong to no field of the form.
    pub(super) fn other_problems(&self) -> Vec<&SchemaProblem> {
        let paths = self.paths();
        let all = self.checked.problems.iter().filter(|problem| self.is_shown(problem));
        all.filter(|problem| !paths.iter().any(|path| is_of(problem, path))).collect()
    }

    /// Returns the paths of the fields that the form shows.
    fn paths(&self) -> Vec<String> {
        let mut paths = vec![NAMESPACE.into(), NAME.into(), APP_KIND.into(), STRATEGY.into()];
        if self.edited.is_some() {
            paths.retain(|path| path != NAMESPACE && path != NAME);
        }
        if !self.draft.app_kind.is_empty() {
            paths.push(APP_NAME.into());
        }
        let strategy: &[&str] = match self.draft.delivery.strategy.as_str() {
            "pull-request" => &["type", "url", "baseBranch", "secretRef"],
            "commit" => &["url", "branch", "secretRef"],
            "webhook" => &["url", "secretRef"],
            _ => &[],
        };
        paths.extend(strategy.iter().map(|field| self.strategy_path(field)));
        if !self.draft.delivery.strategy.is_empty() {
            paths.push(READY.into());
        }
        for (at, environment) in self.draft.environments.iter().enumerate() {
            paths.push(format!("{}.name", environment_path(at)));
            if at > 0 {
                paths.push(format!("{}.after", environment_path(at)));
            }
            let targets = environment.targets.len();
            for target in (0..targets).map(|target| target_path(at, target)) {
                paths.extend(["clusterRef", "namespace"].map(|field| format!("{target}.{field}")));
                paths.extend((targets > 1).then(|| format!("{target}.name")));
            }
        }
        paths
    }

    fn strategy_path(&self, field: &str) -> String {
        format!("spec.promotion.strategy.{}.{field}", self.draft.delivery.strategy)
    }
}

/// Whether a problem is one of the field at a path. A reference to an object is one field.
fn is_of(problem: &SchemaProblem, path: &str) -> bool {
    problem
        .path
        .strip_prefix(path)
        .is_some_and(|below| below.is_empty() || path.ends_with("Ref") && below.starts_with('.'))
}

fn environment_path(at: usize) -> String {
    format!("spec.environments[{at}]")
}

fn target_path(at: usize, target: usize) -> String {
    format!("spec.environments[{at}].targets[{target}]")
}

/// One field with a text.
struct TextField<'a> {
    /// The name of the field, which is its id too.
    name: &'a str,
    /// The path of what is wrong with it.
    path: &'a str,
    question: &'a str,
    example: &'a str,
    value: &'a str,
    /// The id of the list of choices; empty for none.
    list: &'a str,
}

impl DraftForm {
    fn text(&self, field: &TextField<'_>) -> Markup {
        let problems = self.problems_at(field.path);
        let described = format!("{}-why", field.name);
        html! {
            div.field {
                label for=(field.name) { (field.question) }
                input type="text" id=(field.name) name=(field.name) value=(field.value) autocomplete="off" spellcheck="false"
                    list=[(!field.list.is_empty()).then_some(field.list)]
                    aria-invalid=[(!problems.is_empty()).then_some("true")] aria-describedby=(described);
                (why(&described, &problems, field.example))
            }
        }
    }

    fn choice(
        &self,
        (name, path): (&str, &str),
        question: &str,
        options: &[(&str, &str)],
        value: &str,
    ) -> Markup {
        let problems = self.problems_at(path);
        let described = format!("{name}-why");
        // What somebody else has written may be no choice.
        let is_known = options.iter().any(|(option, _)| *option == value);
        html! {
            div.field {
                label for=(name) { (question) }
                select id=(name) name=(name) aria-invalid=[(!problems.is_empty()).then_some("true")] aria-describedby=(described) {
                    @if !is_known { option value=(value) selected { (value) } }
                    @for (option, words) in options { option value=(option) selected[*option == value] { (words) } }
                }
                (why(&described, &problems, ""))
            }
        }
    }
}

/// Returns the text below a field: its problems, or an example if there are none.
fn why(id: &str, problems: &[&SchemaProblem], example: &str) -> Markup {
    html! {
        div id=(id) {
            @for problem in problems { p.wrong { (sentence(&problem.message)) } }
            @if problems.is_empty() && !example.is_empty() { p.small.quieter { (example) } }
        }
    }
}

fn button(step: &DraftStep, words: &str) -> Markup {
    html! { button.small name=(DO) value=(step.value()) { (words) } }
}

fn list(id: &str, choices: &[String]) -> Markup {
    html! { datalist id=(id) { @for choice in choices { option value=(choice) {} } } }
}

/// Returns all fields.
pub(super) fn fields(form: &DraftForm) -> Markup {
    html! {
        // Enter in a field presses the first button.
        button.skip name=(DO) value=(DraftStep::Check.value()) { "Check" }
        (lists(form))
        @if form.edited.is_none() { (from_application(form)) }
        (what(form))
        (environments(form))
        (delivery(form))
        div.do {
            button.main name=(DO) value=(DraftStep::Check.value()) { "Check" }
            button name=(DO) value=(DraftStep::Download.value()) { "Download the YAML" }
            @if form.may_propose() {
                button name=(DO) value=(DraftStep::Propose.value()) { "Propose in git …" }
            }
        }
        @if let Some(why) = form.why_no_proposal() { p.small.quiet { (why) } }
    }
}

/// Returns the lists of choices.
fn lists(form: &DraftForm) -> Markup {
    let Choices { homes, clusters, apps, namespaces, .. } = &form.choices;
    html! {
        (list("homes", homes))
        (list("clusters", clusters))
        (list("apps", apps))
        @for (at, names) in namespaces.values().enumerate() { (list(&format!("namespaces-{at}"), names)) }
    }
}

/// Returns the first step: an application that runs, whose manifest is copied into the other environments.
fn from_application(form: &DraftForm) -> Markup {
    let manifest = &form.draft.manifest;
    let problems = draft_first_setup::problems(form.setup.as_ref());
    html! {
        fieldset {
            legend { "First set-up" }
            details open[form.setup.is_some()] {
                summary { "Start from an application that runs" }
                div.field {
                    p.small.quiet {
                        "Sluice copies its manifest for each environment, with the marker that promotions set. Paste the manifest here; or name an application on the cluster with Sluice below, and start from it there."
                    }
                    label for=(MANIFEST) { "Manifest of a HelmRelease or Kustomization" }
                    // The reader of HTML skips one line break at the begin.
                    textarea id=(MANIFEST) name=(MANIFEST) rows="8" spellcheck="false" autocomplete="off"
                        aria-invalid=[(!problems.is_empty()).then_some("true")] aria-describedby="manifest-why" { "\n" (manifest) }
                    div id="manifest-why" {
                        @for problem in &problems { p.wrong { (sentence(problem)) "." } }
                        p.small.quieter { "The output of kubectl get helmrelease podinfo -n podinfo -o yaml. Its values are copied as they are: paste no passwords" }
                    }
                    div.do { (button(&DraftStep::UseManifest, "Start from this manifest")) }
                }
                @if !manifest.is_empty() {
                    (form.text(&TextField { name: FILES, path: FILES, question: "Path of each new file",
                        example: "From the top of the repository, with {environment}, {target}, {cluster} or {namespace}", value: &form.draft.files, list: "" }))
                }
            }
        }
    }
}

fn what(form: &DraftForm) -> Markup {
    let draft = &form.draft;
    let kinds = APP_KINDS.map(|kind| (kind.name(), kind.name()));
    let kinds = [&kinds[..], &[("", "Chosen by labels")]].concat();
    html! {
        fieldset {
            legend { "Application" }
            @if form.edited.is_none() {
                (form.text(&TextField { name: "namespace", path: NAMESPACE, question: "Namespace of the pipeline",
                    example: "On the cluster with Sluice, for example apps", value: &draft.namespace, list: "homes" }))
                (form.text(&TextField { name: "name", path: NAME, question: "Name of the pipeline",
                    example: "For example podinfo", value: &draft.name, list: "" }))
            }
            (form.choice(("kind", APP_KIND), "What Flux applies", &kinds, &draft.app_kind))
            @if draft.app_kind.is_empty() {
                p.small.quieter {
                    "Every Kustomization and HelmRelease in a target's namespace with the label "
                    code { "pipelines.weave.works/pipeline: " (draft.name) }
                }
            } @else {
                (form.text(&TextField { name: "app", path: APP_NAME, question: "Its name, the same in every environment",
                    example: "For example podinfo", value: &draft.app_name, list: "apps" }))
                (places(form))
            }
        }
    }
}

/// Returns where the application runs and no target is yet.
fn places(form: &DraftForm) -> Markup {
    let targets = || form.draft.environments.iter().flat_map(|environment| &environment.targets);
    let home = form.draft.namespace.as_str();
    let is_taken = |cluster: &ClusterKey, namespace: &str| {
        targets().any(|target| target.cluster_key(home) == *cluster && target.namespace == namespace)
    };
    let open: Vec<_> =
        form.choices.places.iter().filter(|place| !is_taken(&place.key, &place.namespace)).collect();
    html! {
        @if !open.is_empty() {
            ul.list aria-label="Where it runs" {
                @for place in open.iter().take(SHOWN_PLACES) {
                    li {
                        span {
                            (icon(Shape::of_health(place.health), &place.health.to_string())) " "
                            (cluster_words(&place.cluster)) " / " (place.namespace) " "
                            (words::revision(&place.version))
                        }
                        span.do {
                            @if place.cluster.is_empty() && form.edited.is_none() {
                                (button(&DraftStep::ReadApplication(place.namespace.clone()), "Start from it"))
                            }
                            (button(&DraftStep::AddPlace(place.cluster.clone(), place.namespace.clone()), "Add as an environment"))
                        }
                    }
                }
            }
            @if open.len() > SHOWN_PLACES { p.small.quieter { "And " (open.len() - SHOWN_PLACES) " more places." } }
        }
    }
}

/// Returns a cluster in words.
fn cluster_words(cluster: &str) -> &str {
    if cluster.is_empty() { "hub" } else { cluster }
}

fn environments(form: &DraftForm) -> Markup {
    let environments = &form.draft.environments;
    html! {
        @for (at, entered) in environments.iter().enumerate() {
            fieldset id={ "e" (at) } {
                legend { "Environment " (at + 1) @if !entered.name.is_empty() { ": " (entered.name) } }
                (environment(form, at, entered))
                @for (n, target) in entered.targets.iter().enumerate() {
                    (one_target(form, (at, n), target, entered.targets.len()))
                }
                div.do {
                    (button(&DraftStep::AddTarget(at), "Add a target"))
                    @if environments.len() > 1 { (button(&DraftStep::RemoveEnvironment(at), "Remove this environment")) }
                }
            }
        }
        div.do { (button(&DraftStep::AddEnvironment, "Add an environment")) }
    }
}

fn environment(form: &DraftForm, at: usize, entered: &DraftEnvironment) -> Markup {
    let path = environment_path(at);
    let (name, after) = (environment_field(at, "name"), environment_field(at, "after"));
    let approval = environment_field(at, "approval");
    html! {
        @if let Some(was) = entered.was { input type="hidden" name=(environment_field(at, "was")) value=(was); }
        (form.text(&TextField { name: &name, path: &format!("{path}.name"), question: "Name",
            example: "For example prod", value: &entered.name, list: "" }))
        @if at > 0 {
            (form.text(&TextField { name: &after, path: &format!("{path}.after"), question: "Comes after",
                example: "The environments that prove a revision first; empty for the one before", value: &entered.after, list: "" }))
        }
        @if at > 0 || entered.approval {
            label.check { input type="checkbox" name=(approval) value="yes" checked[entered.approval]; "A person approves each revision" }
        }
    }
}

fn one_target(form: &DraftForm, (at, n): (usize, usize), target: &DraftTarget, count: usize) -> Markup {
    let path = target_path(at, n);
    let field = |field: &str| target_field(at, n, field);
    let (cluster, namespace, name) = (field("cluster"), field("namespace"), field("name"));
    let key = target.cluster_key(&form.draft.namespace);
    let known = form.choices.namespaces.keys().position(|known| *known == key);
    let list = known.map(|known| format!("namespaces-{known}")).unwrap_or_default();
    html! {
        div.target {
            @if let Some(was) = target.was { input type="hidden" name=(field("was")) value=(was); }
            (form.text(&TextField { name: &cluster, path: &format!("{path}.clusterRef"), question: "Cluster",
                example: "Empty for the cluster with Sluice", value: &target.cluster, list: "clusters" }))
            @if !form.has_cluster(&key) { p.wrong { (no_cluster(&key)) } }
            (form.text(&TextField { name: &namespace, path: &format!("{path}.namespace"), question: "Namespace",
                example: "", value: &target.namespace, list: &list }))
            @if count > 1 {
                (form.text(&TextField { name: &name, path: &format!("{path}.name"), question: "Name of the target",
                    example: "Empty: made of cluster and namespace", value: &target.name, list: "" }))
                (button(&DraftStep::RemoveTarget(at, n), "Remove this target"))
            } @else if !target.name.is_empty() {
                input type="hidden" name=(name) value=(target.name);
            }
            (draft_first_setup::in_git(&form.draft, target, &field("git")))
            (runs(form, target))
        }
    }
}

/// Returns that there is no such cluster.
pub(super) fn no_cluster(key: &ClusterKey) -> String {
    let name = match key {
        ClusterKey::Local => String::new(),
        ClusterKey::Remote { namespace, name } => format!("{namespace}/{name}"),
    };
    format!("No such cluster: there is no GitopsCluster {name}, or you may not get it.")
}

/// Returns what a target runs now.
fn runs(form: &DraftForm, target: &DraftTarget) -> Markup {
    let draft = &form.draft;
    if draft.app_kind.is_empty() || draft.app_name.is_empty() || target.namespace.is_empty() {
        return html! {};
    }
    html! {
        p.small.quiet {
            @if let Some(place) = form.choices.place(&target.cluster_key(&draft.namespace), &target.namespace) {
                (icon(Shape::of_health(place.health), &place.health.to_string())) " runs " (words::revision(&place.version)) " "
                @if place.cluster.is_empty() && form.edited.is_none() && draft.manifest.is_empty() {
                    (button(&DraftStep::ReadApplication(place.namespace.clone()), "Start from it"))
                }
                @if !draft.manifest.is_empty() && !target.in_git {
                    ": Sluice makes a new file for it. If its manifest is in git already, mark it"
                }
            } @else {
                "You see no " (draft.app_kind) " " (draft.app_name) " there now"
            }
        }
    }
}

fn delivery(form: &DraftForm) -> Markup {
    let delivery = &form.draft.delivery;
    let strategy = delivery.strategy.as_str();
    let path = |field: &str| form.strategy_path(field);
    let branch = if strategy == "pull-request" { "baseBranch" } else { "branch" };
    html! {
        fieldset {
            legend { "How a revision gets into the next environment" }
            (form.choice(("strategy", STRATEGY), "Sluice will", &STRATEGIES, strategy))
            @if strategy == "pull-request" {
                @let forges = [&[("", "Choose")][..], &FORGES].concat();
                (form.choice(("forge", &path("type")), "Forge", &forges, &delivery.forge))
            }
            @if !matches!(strategy, "" | "notification") {
                (form.text(&TextField { name: "url", path: &path("url"), question: "Address",
                    example: if strategy == "webhook" { "For example https://ci.example.com/promote" } else { "As for git clone, for example https://git.example.com/team/fleet" },
                    value: &delivery.url, list: "" }))
                @if strategy != "webhook" {
                    (form.text(&TextField { name: "branch", path: &path(branch), question: "Branch",
                        example: "Empty for main", value: &delivery.branch, list: "" }))
                }
                (form.text(&TextField { name: "secret", path: &path("secretRef"), question: "Secret with the credentials",
                    example: "In the namespace of the pipeline. Write its name, not its content", value: &delivery.secret, list: "" }))
            }
            @if !strategy.is_empty() {
                (form.text(&TextField { name: "ready", path: READY,
                    question: "How many targets must run a revision healthily first",
                    example: "For example 2 or 100%; empty for 1", value: &delivery.min_ready_targets, list: "" }))
            }
        }
    }
}
