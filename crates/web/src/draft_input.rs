//! The fields of the form for a Pipeline: their names, the draft that they make, and what a button does with it.

use sluice_view::draft::{Draft, DraftTarget};

/// The most environments and targets that are read from a form: one more than the rules allow, so that the rules say so.
const MAX_ENVIRONMENTS: usize = 17;
const MAX_TARGETS: usize = 129;

/// The name of the field with the manifest that a first set-up starts from, and of the field with the path of its files.
pub(crate) const MANIFEST: &str = "manifest";
/// See [`MANIFEST`].
pub(crate) const FILES: &str = "files";
/// The name of the buttons' field.
pub(crate) const DO: &str = "do";

/// What a person wants done with a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DraftStep {
    /// Say what is wrong so far. The script of the page asks for it at each change.
    #[default]
    Look,
    /// Say everything that is wrong.
    Check,
    /// Add an environment.
    AddEnvironment,
    /// Remove the environment with this index.
    RemoveEnvironment(usize),
    /// Add a target to the environment with this index.
    AddTarget(usize),
    /// Remove a target of an environment.
    RemoveTarget(usize, usize),
    /// Add an environment for a place in which the application runs: a cluster as people enter it, and a namespace.
    AddPlace(String, String),
    /// Start from the manifest that was entered.
    UseManifest,
    /// Start from the application in this namespace of the hub.
    ReadApplication(String),
    /// Send the manifest as a file.
    Download,
    /// Propose the manifest in git.
    Propose,
}

impl DraftStep {
    /// Reads the value of a button.
    pub(crate) fn parse(text: &str) -> DraftStep {
        let (word, of) = text.split_once(' ').unwrap_or((text, ""));
        let (first, second) = of.split_once(' ').unwrap_or((of, ""));
        let index = |text: &str| text.parse::<usize>().ok();
        match (word, index(first), index(second)) {
            ("check", ..) => DraftStep::Check,
            ("use-manifest", ..) => DraftStep::UseManifest,
            ("read-application", ..) if !first.is_empty() => DraftStep::ReadApplication(first.into()),
            ("download", ..) => DraftStep::Download,
            ("propose", ..) => DraftStep::Propose,
            ("add-environment", ..) => DraftStep::AddEnvironment,
            ("remove-environment", Some(at), _) => DraftStep::RemoveEnvironment(at),
            ("add-target", Some(at), _) => DraftStep::AddTarget(at),
            ("remove-target", Some(at), Some(target)) => DraftStep::RemoveTarget(at, target),
            ("add-place", ..) if !first.is_empty() => DraftStep::AddPlace(second.into(), first.into()),
            _ => DraftStep::Look,
        }
    }

    /// Returns the value of the button.
    pub(crate) fn value(&self) -> String {
        match self {
            DraftStep::Look => "look".into(),
            DraftStep::Check => "check".into(),
            DraftStep::UseManifest => "use-manifest".into(),
            DraftStep::ReadApplication(namespace) => format!("read-application {namespace}"),
            DraftStep::Download => "download".into(),
            DraftStep::Propose => "propose".into(),
            DraftStep::AddEnvironment => "add-environment".into(),
            DraftStep::RemoveEnvironment(at) => format!("remove-environment {at}"),
            DraftStep::AddTarget(at) => format!("add-target {at}"),
            DraftStep::RemoveTarget(at, target) => format!("remove-target {at} {target}"),
            DraftStep::AddPlace(cluster, namespace) => format!("add-place {namespace} {cluster}"),
        }
    }

    /// Changes a draft.
    pub(crate) fn apply(&self, draft: &mut Draft) {
        match self {
            DraftStep::Look | DraftStep::Check | DraftStep::Download | DraftStep::Propose => {}
            // The page starts from them, because they take a call or a while.
            DraftStep::UseManifest | DraftStep::ReadApplication(_) => {}
            DraftStep::AddEnvironment if draft.environments.len() < MAX_ENVIRONMENTS => {
                draft.add_environment();
            }
            DraftStep::RemoveEnvironment(at) if *at < draft.environments.len() => {
                draft.environments.remove(*at);
            }
            DraftStep::AddTarget(at) => {
                if let Some(environment) = draft.environments.get_mut(*at)
                    && environment.targets.len() < MAX_TARGETS
                {
                    environment.targets.push(DraftTarget::default());
                }
            }
            DraftStep::RemoveTarget(at, target) => {
                if let Some(environment) = draft.environments.get_mut(*at)
                    && *target < environment.targets.len()
                {
                    environment.targets.remove(*target);
                }
            }
            DraftStep::AddPlace(cluster, namespace) if draft.environments.len() < MAX_ENVIRONMENTS => {
                draft.add_place(cluster, namespace);
            }
            DraftStep::AddEnvironment | DraftStep::RemoveEnvironment(_) | DraftStep::AddPlace(..) => {}
        }
    }
}

/// The name of a field of an environment.
pub(crate) fn environment_field(at: usize, field: &str) -> String {
    format!("e{at}.{field}")
}

/// The name of a field of a target.
pub(crate) fn target_field(at: usize, target: usize, field: &str) -> String {
    format!("e{at}.t{target}.{field}")
}

/// Reads a draft from the fields of a form. Blanks around a value, and fields of other names, are ignored. In a manifest,
/// blanks have a meaning, and browsers send line breaks as CR LF.
pub(crate) fn draft(fields: &[(String, String)]) -> Draft {
    let mut draft = Draft::default();
    for (name, value) in fields {
        match name.as_str() {
            MANIFEST => draft.manifest = value.replace("\r\n", "\n"),
            _ => set(&mut draft, name, value.trim()),
        }
    }
    draft
}

fn set(draft: &mut Draft, name: &str, value: &str) {
    let text = match name {
        "namespace" => &mut draft.namespace,
        "name" => &mut draft.name,
        "kind" => &mut draft.app_kind,
        "app" => &mut draft.app_name,
        "strategy" => &mut draft.delivery.strategy,
        "forge" => &mut draft.delivery.forge,
        "url" => &mut draft.delivery.url,
        "branch" => &mut draft.delivery.branch,
        "secret" => &mut draft.delivery.secret,
        FILES => &mut draft.files,
        "ready" => &mut draft.delivery.min_ready_targets,
        _ => {
            set_environment(draft, name, value);
            return;
        }
    };
    *text = value.into();
}

fn set_environment(draft: &mut Draft, name: &str, value: &str) {
    let Some((at, field)) = indexed(name, 'e', MAX_ENVIRONMENTS) else { return };
    grow(&mut draft.environments, at);
    let environment = &mut draft.environments[at];
    match field {
        "was" => environment.was = value.parse().ok(),
        "name" => environment.name = value.into(),
        "after" => environment.after = value.into(),
        "approval" => environment.approval = !value.is_empty(),
        _ => {
            let Some((at, field)) = indexed(field, 't', MAX_TARGETS) else { return };
            grow(&mut environment.targets, at);
            let target = &mut environment.targets[at];
            match field {
                "was" => target.was = value.parse().ok(),
                "name" => target.name = value.into(),
                "cluster" => target.cluster = value.into(),
                "namespace" => target.namespace = value.into(),
                "git" => target.in_git = !value.is_empty(),
                _ => {}
            }
        }
    }
}

/// Returns the index and the rest of a name such as `e3.name`; `None` if it has no index below a limit.
fn indexed(name: &str, letter: char, limit: usize) -> Option<(usize, &str)> {
    let (index, field) = name.strip_prefix(letter)?.split_once('.')?;
    Some((index.parse().ok().filter(|at| *at < limit)?, field))
}

fn grow<T: Default>(items: &mut Vec<T>, at: usize) {
    while items.len() <= at {
        items.push(T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn a_form_is_read_and_hostile_names_are_ignored() {
        let draft = draft(&fields(&[
            ("name", " podinfo "),
            ("kind", "HelmRelease"),
            ("e0.name", "dev"),
            ("e0.t0.namespace", "a"),
            ("e1.approval", "yes"),
            ("e1.t2.cluster", "fleet/eu"),
            ("e1.was", "3"),
            ("e1.t2.git", "yes"),
            ("manifest", "  a: 1\r\n  b: 2\n"),
            ("files", " a.yaml "),
            ("e17.name", "too many"),
            ("e99999999999999999999.name", "x"),
            ("e0.t129.name", "x"),
            ("e-1.name", "x"),
            ("e0", "x"),
            ("e0.t0", "x"),
            ("", "x"),
            ("é0.name", "x"),
        ]));
        assert_eq!((draft.name.as_str(), draft.app_kind.as_str()), ("podinfo", "HelmRelease"));
        let [dev, prod] = &draft.environments[..] else { panic!("{draft:?}") };
        assert_eq!(
            (dev.name.as_str(), dev.targets.len(), dev.targets[0].namespace.as_str()),
            ("dev", 1, "a")
        );
        assert_eq!((prod.approval, prod.was, prod.targets.len()), (true, Some(3), 3));
        assert_eq!((prod.targets[2].cluster.as_str(), prod.targets[2].in_git), ("fleet/eu", true));
        assert_eq!((draft.manifest.as_str(), draft.files.as_str()), ("  a: 1\n  b: 2\n", "a.yaml"));
    }

    #[test]
    fn each_button_does_what_it_says_and_only_that() {
        let two = |draft: &Draft| draft.environments.iter().map(|e| e.targets.len()).collect::<Vec<_>>();
        let start =
            draft(&fields(&[("e0.t0.namespace", "a"), ("e1.t0.namespace", "b"), ("e1.t1.namespace", "c")]));
        for (step, left) in [
            (DraftStep::Look, vec![1, 2]),
            (DraftStep::Check, vec![1, 2]),
            (DraftStep::Download, vec![1, 2]),
            (DraftStep::Propose, vec![1, 2]),
            (DraftStep::UseManifest, vec![1, 2]),
            (DraftStep::ReadApplication("apps".into()), vec![1, 2]),
            (DraftStep::AddEnvironment, vec![1, 2, 1]),
            (DraftStep::RemoveEnvironment(0), vec![2]),
            (DraftStep::RemoveEnvironment(9), vec![1, 2]),
            (DraftStep::AddTarget(0), vec![2, 2]),
            (DraftStep::AddTarget(9), vec![1, 2]),
            (DraftStep::RemoveTarget(1, 0), vec![1, 1]),
            (DraftStep::RemoveTarget(1, 9), vec![1, 2]),
            (DraftStep::RemoveTarget(9, 0), vec![1, 2]),
            (DraftStep::AddPlace("fleet/eu".into(), "apps".into()), vec![1, 2, 1]),
            (DraftStep::AddPlace(String::new(), "apps".into()), vec![1, 2, 1]),
        ] {
            let step = DraftStep::parse(&step.value());
            let mut draft = start.clone();
            step.apply(&mut draft);
            assert_eq!(two(&draft), left, "{step:?}");
        }
        for text in ["", "remove-environment", "remove-target 1", "add-place", "format disk", "add-target x"]
        {
            assert_eq!(DraftStep::parse(text), DraftStep::Look, "{text}");
        }
    }

    #[test]
    fn a_place_fills_an_empty_environment_first() {
        let mut draft = Draft::new("apps");
        for (cluster, namespace) in [("", "dev"), ("fleet/eu", "prod")] {
            DraftStep::AddPlace(cluster.into(), namespace.into()).apply(&mut draft);
        }
        let places: Vec<_> = draft
            .environments
            .iter()
            .map(|e| (e.name.as_str(), e.targets[0].cluster.as_str(), e.targets[0].namespace.as_str()))
            .collect();
        assert_eq!(places, [("dev", "", "dev"), ("staging", "fleet/eu", "prod")]);
    }

    #[test]
    fn no_button_exceeds_what_a_form_may_have() {
        let mut draft = Draft::new("apps");
        for _ in 0..200 {
            for step in ["add-environment", "add-place b a", "add-target 0"] {
                DraftStep::parse(step).apply(&mut draft);
            }
        }
        assert_eq!(
            (draft.environments.len(), draft.environments[0].targets.len()),
            (MAX_ENVIRONMENTS, MAX_TARGETS)
        );
    }
}
