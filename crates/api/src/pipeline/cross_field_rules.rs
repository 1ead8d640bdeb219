//! The rules of a Pipeline that compare several fields or elements, as CEL expressions for the API server. The attribute of
//! the struct or list that a rule is about names the rule. A rule for the text of one field is in the attribute itself.

use kube::core::Rule;

/// All indices that a list of environments can have. A CEL rule has no index of the current element.
const INDICES: &str = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";

/// The condition that a target `t` has no `observe: Push`.
const IS_WATCHED: &str = "!has(t.observe) || t.observe != 'Push'";

fn rule(expression: impl Into<String>, message: &str) -> Rule {
    Rule::new(expression).message(message)
}

// Rules of `spec`.

pub(super) fn push_needs_an_application() -> Rule {
    let names_workloads = "(has(t.workloads) && t.workloads.size() > 0)";
    rule(
        format!(
            "has(self.appRef) || \
             self.environments.all(e, e.targets.all(t, {IS_WATCHED} || {names_workloads}))"
        ),
        "the labels of objects cannot be read for a target with observe: Push: name its application in spec.appRef, or \
         in the target's workloads",
    )
}

pub(super) fn push_tracks_no_images() -> Rule {
    let tracks_images = "self.tracks.exists(t, t == 'images' || t.startsWith('image:'))";
    rule(
        format!(
            "!has(self.tracks) || !{tracks_images} || \
             self.environments.all(e, e.targets.all(t, {IS_WATCHED}))"
        ),
        "events do not contain images: with a target of observe: Push, tracks may name chart, app, tag, digest and \
         source",
    )
}

/// The key of an environment is in the Secret of its own policy, or of a following environment.
pub(super) fn push_needs_a_report_key() -> Rule {
    let of_pipeline =
        "has(self.promotion) && has(self.promotion.strategy) && has(self.promotion.strategy.secretRef)";
    let of_environment = "has(self.environments[j].promotion.strategy) && \
                          has(self.environments[j].promotion.strategy.secretRef)";
    let has_secret = format!("(has(self.environments[j].promotion) ? {of_environment} : {of_pipeline})");
    rule(
        format!(
            "{INDICES}.all(i, i >= self.environments.size() || \
             self.environments[i].targets.all(t, {IS_WATCHED}) || \
             {INDICES}.exists(j, j >= i && j < self.environments.size() && {has_secret}))"
        ),
        "a target with observe: Push is observed by signed events only: name a Secret with a key report-key.<cluster> \
         for each cluster in promotion.strategy.secretRef, of its environment or of one that comes after it",
    )
}

// Rules of `environments` and `targets`.

pub(super) fn environments_have_unique_names() -> Rule {
    rule(
        "self.all(e, self.exists_one(x, x.name == e.name))",
        "two environments have the same name: give each its own",
    )
}

pub(super) fn after_names_earlier_environments() -> Rule {
    rule(
        format!(
            "{INDICES}.all(i, i >= self.size() || !has(self[i].after) || \
             self[i].after.all(a, {INDICES}.exists(j, j < i && self[j].name == a)))"
        ),
        "after may only name earlier environments of the list: correct the name, move the environment down, or remove \
         the name from after",
    )
}

/// The names are collected once, and compared by functions of the API server. It evaluates this rule in each write of a
/// status, and an expression that compares each target with each other takes it ten seconds for 2,048 targets.
pub(super) fn targets_have_unique_names() -> Rule {
    rule(
        "[self.filter(t, has(t.name)).map(t, t.name)].all(names, \
         names.all(name, names.indexOf(name) == names.lastIndexOf(name)))",
        "two targets of this environment have the same name: give each its own",
    )
}

pub(super) fn push_needs_a_cluster() -> Rule {
    rule(
        "!has(self.observe) || self.observe != 'Push' || has(self.clusterRef)",
        "a target with observe: Push needs a clusterRef: its events must name that cluster",
    )
}

// Rules of `promotion`.

pub(super) fn pull_request_is_not_of_an_older_form() -> Rule {
    rule(
        "!has(self.pullRequest)",
        "promotion.pullRequest is an older form: write promotion: {strategy: {pull-request: {type: github, url: ..., \
         baseBranch: main, secretRef: {name: ...}}}}",
    )
}

pub(super) fn strategy_has_a_level_of_its_own() -> Rule {
    rule(
        "!has(self.pull__dash__request) && !has(self.notification)",
        "the strategy has a level of its own: write promotion: {strategy: {pull-request: {...}}} or promotion: \
         {strategy: {notification: {}}}",
    )
}

pub(super) fn webhook_is_not_of_an_older_form() -> Rule {
    rule(
        "!has(self.webhook)",
        "promotion.webhook is an older form: write promotion: {strategy: {webhook: {url: ..., secretRef: {name: ...}}}}",
    )
}

pub(super) fn promotion_has_a_strategy() -> Rule {
    rule(
        "has(self.strategy) || has(self.pullRequest) || has(self.pull__dash__request) || has(self.notification) || \
         has(self.webhook)",
        "promotion needs a strategy: write promotion: {strategy: {pull-request: {...}}} or one of commit, notification, \
         webhook",
    )
}

pub(super) fn strategy_is_exactly_one() -> Rule {
    rule(
        "[has(self.pull__dash__request), has(self.commit), has(self.notification), \
         has(self.webhook)].filter(x, x).size() == 1",
        "a strategy is exactly one of pull-request, commit, notification and webhook",
    )
}

// Rules of `pull-request`: what each kind of forge has.

pub(super) fn draft_is_not_merged() -> Rule {
    rule(
        "!has(self.merge) || self.merge == 'Never' || !has(self.draft) || !self.draft",
        "a draft is not merged: remove draft, or write merge: Never",
    )
}

pub(super) fn forge_has_a_merge_queue() -> Rule {
    rule(
        "!has(self.merge) || self.merge != 'Queue' || self.type in ['github', 'gitlab', 'bitbucket']",
        "only GitHub, GitLab and Bitbucket Cloud have a merge queue: write merge: WhenGreen",
    )
}

pub(super) fn forge_has_labels() -> Rule {
    rule(
        "!has(self.labels) || !(self.type in ['bitbucket', 'bitbucket-server'])",
        "Bitbucket has no labels on pull requests: remove labels",
    )
}

pub(super) fn forge_has_assignees() -> Rule {
    rule(
        "!has(self.assignees) || !(self.type in ['bitbucket', 'bitbucket-server', 'azure-devops'])",
        "Bitbucket and Azure DevOps have no assignees on pull requests: remove assignees, and name reviewers",
    )
}

pub(super) fn reviewers_of_bitbucket_are_ids() -> Rule {
    rule(
        "!has(self.reviewers) || self.type != 'bitbucket' || \
         self.reviewers.all(r, r.matches('^([{][0-9a-fA-F-]{36}[}]|[0-9a-fA-F]+:[0-9a-fA-F-]+|[0-9a-f]{24})$'))",
        "Bitbucket Cloud identifies reviewers by uuid or account id: write '{504c3b62-8120-4f0c-a7bc-87800b9d6f70}' or \
         557058:ba8948b2-49da-43a9-9e8b-e7249b8e324a",
    )
}

pub(super) fn reviewers_of_azure_devops_are_ids() -> Rule {
    rule(
        "!has(self.reviewers) || self.type != 'azure-devops' || \
         self.reviewers.all(r, r.matches('^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'))",
        "Azure DevOps identifies reviewers by the id of their identity: write one such as \
         d6245f20-2af8-44f4-9451-8107cb2767db",
    )
}
