//! The admission policy for Promotions: the API server decides who may approve, reject and retry, by the authenticated user
//! and RBAC.
//!
//! `request.userInfo`, `authorizer` and `variables` are those of
//! [ValidatingAdmissionPolicy](https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/),
//! which is served as v1 since Kubernetes 1.30.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::GROUP;

/// The name of the policy, and of its binding.
pub const NAME: &str = "promotions.pipelines.weave.works";

/// The verb for approving and rejecting a promotion.
pub const APPROVE: &str = "approve";
/// The verb for requesting another try of a promotion.
pub const RETRY: &str = "retry";
/// The verb for the writes of the controller: new Promotions, and the statuses of both kinds.
pub const RECORD: &str = "record";

/// How many labels, and how many annotations, people may give a Promotion. An object that is too large cannot be approved or
/// rejected, and its status cannot be written. The API server bounds annotations to 256 KiB together
/// (`TotalAnnotationSizeLimitB` in apimachinery), labels not at all, and lists the keys of both for each manager that
/// applies them.
const MAX_KEYS: usize = 32;
/// How many managers may apply a Promotion. Those that update it do not count: the API server keeps ten of them, and a person
/// who approves is one more.
const MAX_APPLIERS: usize = 16;

/// Returns the expression that checks a verb on the object of the request. A Promotion that is created may have no name
/// yet. Empty fields of `request` are absent.
fn may(verb: &str) -> String {
    let named = "(variables.name == '' ? variables.here : variables.here.name(variables.name))";
    format!("{named}.check('{verb}').allowed()")
}

fn variable(name: &str, expression: String) -> Variable {
    Variable { name: name.into(), expression }
}

/// Returns a validation: `expression` must be true. `message` is a CEL expression, because the message names the user and
/// the object.
fn validation(expression: &str, message: &str) -> Validation {
    Validation {
        expression: expression.into(),
        message_expression: Some(message.into()),
        reason: Some("Forbidden".into()),
        ..Validation::default()
    }
}

fn variables() -> Vec<Variable> {
    let changed = |field: &str| {
        format!(
            "!variables.isStatus && request.operation == 'UPDATE' && \
             object.spec.?{field} != oldObject.spec.?{field}"
        )
    };
    let kept = |path: &str| format!("object.metadata.?{path} == oldObject.metadata.?{path}");
    let label = |name: &str| {
        let of = |object: &str| format!("{object}.metadata.?labels[?'{GROUP}/{name}']");
        format!("{} == {}", of("object"), of("oldObject"))
    };
    vec![
        variable("isStatus", "request.?subResource.orValue('') == 'status'".into()),
        variable("user", "request.userInfo.username".into()),
        variable(
            "here",
            format!(
                "authorizer.group('{GROUP}').resource(request.resource.resource).namespace(request.namespace)"
            ),
        ),
        variable("name", "request.?name.orValue(object.metadata.?name.orValue(''))".into()),
        variable("what", "request.resource.resource + ' ' + request.namespace + '/' + variables.name".into()),
        variable("mayRecord", may(RECORD)),
        variable("mayApprove", may(APPROVE)),
        variable("mayRetry", may(RETRY)),
        variable("approves", changed("approval")),
        variable("rejects", changed("rejection")),
        variable("retries", changed("retry")),
        // A retry would undo what a person rejected.
        variable(
            "wasRejected",
            "request.operation == 'UPDATE' && has(oldObject.spec.rejection) && \
             oldObject.spec.rejection.?retries.orValue(0) == oldObject.?status.?retries.orValue(0)"
                .into(),
        ),
        // The garbage collector removes owners and finalizers of objects.
        variable(
            "isSystem",
            "'system:serviceaccounts:kube-system' in request.userInfo.?groups.orValue([]) || \
             variables.user == 'system:kube-controller-manager'"
                .into(),
        ),
        variable(
            "keepsItsPlace",
            [kept("ownerReferences"), kept("finalizers"), label("pipeline"), label("environment")]
                .join(" && "),
        ),
        variable("keepsItsSize", keeps_its_size()),
    ]
}

/// Returns the expression that is true if the labels, the annotations and the managers of a Promotion are few, or not more than
/// before.
fn keeps_its_size() -> String {
    let bounded = |most: usize, count: &dyn Fn(&str) -> String| {
        let (now, before) = (count("object"), count("oldObject"));
        format!("({now} <= {most} || {now} <= {before})")
    };
    let labels = |object: &str| format!("size({object}.metadata.?labels.orValue({{}}))");
    let annotations = |object: &str| format!("size({object}.metadata.?annotations.orValue({{}}))");
    let appliers = |object: &str| {
        format!("size({object}.metadata.?managedFields.orValue([]).filter(m, m.operation == 'Apply'))")
    };
    [bounded(MAX_KEYS, &labels), bounded(MAX_KEYS, &annotations), bounded(MAX_APPLIERS, &appliers)]
        .join(" && ")
}

/// Returns the expression that is true unless a person edits a Promotion without keeping this. Creations and statuses have rules
/// of their own.
fn edit_keeps(what: &str) -> String {
    format!(
        "variables.isStatus || request.operation == 'CREATE' || variables.{what} || variables.mayRecord || \
         variables.isSystem"
    )
}

fn validations() -> Vec<Validation> {
    let own_name = |what: &str| {
        format!(
            "!variables.{what}s || (has(object.spec.{field}) && object.spec.{field}.by == variables.user)",
            field = if what == "approve" { "approval" } else { "rejection" }
        )
    };
    let own_name_message = |what: &str, field: &str| {
        format!(
            "'spec.{field}.by must be your own name, ' + variables.user + ': you can {what} only in your own name'"
        )
    };
    let needs = |verb: &str, role: &str| {
        format!(
            "variables.user + ' may not {verb} ' + variables.what + ': it needs the verb {verb} on \
             promotions.{GROUP} (ClusterRole {role})'"
        )
    };
    vec![
        validation(
            "variables.mayRecord || !(variables.isStatus || request.operation == 'CREATE')",
            &format!(
                "variables.user + ' may not ' + (variables.isStatus ? 'write the status of ' : 'create ') + \
                 variables.what + ': only the controller does, with the verb {RECORD} on ' + \
                 request.resource.resource + '.{GROUP} (ClusterRole sluice-controller)'"
            ),
        ),
        validation("!variables.approves || variables.mayApprove", &needs(APPROVE, "sluice-approver")),
        validation(
            "!variables.rejects || variables.mayApprove",
            &needs(APPROVE, "sluice-approver").replace(" may not approve ", " may not reject "),
        ),
        // After the permissions: a user without the permission must not be told to write another name first.
        validation(&own_name("approve"), &own_name_message("approve", "approval")),
        validation(&own_name("reject"), &own_name_message("reject", "rejection")),
        validation("!variables.retries || variables.mayRetry", &needs(RETRY, "sluice-editor")),
        validation(
            "!(variables.retries && variables.wasRejected) || variables.mayApprove",
            &format!(
                "oldObject.spec.rejection.by + ' rejected ' + variables.what + ': to retry it, ' + variables.user + \
                 ' needs the verb {APPROVE} on promotions.{GROUP} (ClusterRole sluice-approver)'"
            ),
        ),
        validation(
            &edit_keeps("keepsItsPlace"),
            "variables.user + ' may not change ownerReferences, finalizers or the labels of Sluice on ' + \
             variables.what + ': they say which pipeline the promotion belongs to'",
        ),
        validation(
            &edit_keeps("keepsItsSize"),
            &format!(
                "variables.user + ' may not give ' + variables.what + ' more than {MAX_KEYS} labels, {MAX_KEYS} \
                 annotations or {MAX_APPLIERS} managers that apply it: it has to fit into the store when it is approved and \
                 recorded'"
            ),
        ),
    ]
}

/// Returns the policy: the rules that depend on the user. Rules for all users are in the CRDs.
pub fn policy() -> ValidatingAdmissionPolicy {
    let rule = |resources: &[&str], operations: &[&str]| {
        let strings = |of: &[&str]| Some(of.iter().map(|s| (*s).to_string()).collect());
        NamedRuleWithOperations {
            api_groups: strings(&[GROUP]),
            api_versions: strings(&["*"]),
            operations: strings(operations),
            resources: strings(resources),
            ..NamedRuleWithOperations::default()
        }
    };
    ValidatingAdmissionPolicy {
        metadata: metadata(),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".into()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(vec![
                    rule(&["promotions"], &["CREATE", "UPDATE"]),
                    rule(&["promotions/status", "pipelines/status"], &["UPDATE"]),
                ]),
                ..MatchResources::default()
            }),
            variables: Some(variables()),
            validations: Some(validations()),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    }
}

/// Returns the binding that enforces the policy in all namespaces.
pub fn binding() -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: metadata(),
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(NAME.into()),
            validation_actions: Some(vec!["Deny".into()]),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
    }
}

fn metadata() -> ObjectMeta {
    let annotation = ("kustomize.toolkit.fluxcd.io/substitute".to_string(), "disabled".to_string());
    let label = ("app.kubernetes.io/part-of".to_string(), "sluice".to_string());
    ObjectMeta {
        name: Some(NAME.into()),
        annotations: Some([annotation].into()),
        labels: Some([label].into()),
        ..ObjectMeta::default()
    }
}

/// Returns why the policy is not enforced; `None` if it is. `policy` and `binding` are the objects of the API server, if it
/// has them.
pub fn gap(
    policy: Option<&ValidatingAdmissionPolicy>,
    binding: Option<&ValidatingAdmissionPolicyBinding>,
) -> Option<String> {
    let install = "sluice crds | kubectl apply --server-side -f -";
    let Some(policy) = policy else {
        return Some(format!(
            "the ValidatingAdmissionPolicy {NAME} is not installed, or Kubernetes is older than 1.30: {install}; \
             before 1.30, let only approvers patch promotions"
        ));
    };
    let Some(binding) = binding else {
        return Some(format!("the ValidatingAdmissionPolicyBinding {NAME} is not installed: {install}"));
    };
    let own = self::policy().spec.unwrap_or_default();
    let spec = policy.spec.clone().unwrap_or_default();
    let same = spec.validations == own.validations
        && spec.variables == own.variables
        && spec.match_conditions.unwrap_or_default().is_empty()
        && spec.param_kind.is_none()
        && spec.failure_policy.as_deref().is_none_or(|failure| failure == "Fail")
        && covers(spec.match_constraints.as_ref(), own.match_constraints.as_ref());
    if !same {
        return Some(format!(
            "the ValidatingAdmissionPolicy {NAME} is not that of this version of Sluice: {install}"
        ));
    }
    let binding = binding.spec.clone().unwrap_or_default();
    let denies = binding.validation_actions.unwrap_or_default().iter().any(|action| action == "Deny");
    let everywhere = binding.match_resources.as_ref().is_none_or(is_everything);
    if binding.policy_name.as_deref() != Some(NAME) || !denies || !everywhere {
        return Some(format!(
            "the ValidatingAdmissionPolicyBinding {NAME} does not enforce the policy everywhere: {install}"
        ));
    }
    None
}

/// Returns true if all resources and operations of `own` are matched. The API server adds defaults.
fn covers(constraints: Option<&MatchResources>, own: Option<&MatchResources>) -> bool {
    let rules = |of: Option<&MatchResources>| of.and_then(|m| m.resource_rules.clone()).unwrap_or_default();
    let theirs = rules(constraints);
    let same = |a: &NamedRuleWithOperations, b: &NamedRuleWithOperations| {
        (&a.api_groups, &a.api_versions, &a.operations, &a.resources)
            == (&b.api_groups, &b.api_versions, &b.operations, &b.resources)
            && a.resource_names.as_ref().is_none_or(Vec::is_empty)
            // With `Cluster`, the policy would check no object that has a namespace.
            && a.scope.as_deref().is_none_or(|scope| matches!(scope, "*" | "Namespaced"))
    };
    rules(own).iter().all(|rule| theirs.iter().any(|found| same(found, rule)))
        && constraints.is_some_and(is_everywhere)
}

fn is_everywhere(matched: &MatchResources) -> bool {
    let all = |selector: &Option<LabelSelector>| {
        selector.as_ref().is_none_or(|s| {
            s.match_labels.as_ref().is_none_or(|m| m.is_empty())
                && s.match_expressions.as_ref().is_none_or(Vec::is_empty)
        })
    };
    all(&matched.namespace_selector)
        && all(&matched.object_selector)
        && matched.exclude_resource_rules.as_ref().is_none_or(Vec::is_empty)
}

fn is_everything(matched: &MatchResources) -> bool {
    is_everywhere(matched) && matched.resource_rules.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::admissionregistration::v1::{MatchCondition, ParamKind};

    use super::*;

    type Change = (&'static str, fn(&mut ValidatingAdmissionPolicySpec));
    type BindingChange = (&'static str, fn(&mut ValidatingAdmissionPolicyBindingSpec));

    fn only_some() -> Option<LabelSelector> {
        let labels = BTreeMap::from([("team".to_string(), "a".to_string())]);
        Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() })
    }

    fn constraints(spec: &mut ValidatingAdmissionPolicySpec) -> &mut MatchResources {
        spec.match_constraints.get_or_insert_default()
    }

    fn rules(spec: &mut ValidatingAdmissionPolicySpec) -> &mut Vec<NamedRuleWithOperations> {
        constraints(spec).resource_rules.get_or_insert_default()
    }

    #[test]
    fn the_own_policy_is_enforced_also_with_the_defaults_of_the_api_server() {
        assert_eq!(gap(Some(&policy()), Some(&binding())), None);
        let (mut stored, mut bound) = (policy(), binding());
        let spec = stored.spec.get_or_insert_default();
        spec.match_conditions = Some(Vec::new());
        let constraints = constraints(spec);
        constraints.match_policy = Some("Equivalent".into());
        constraints.namespace_selector = Some(LabelSelector::default());
        constraints.object_selector = Some(LabelSelector::default());
        rules(spec).iter_mut().for_each(|rule| rule.scope = Some("*".into()));
        let everything = MatchResources {
            match_policy: Some("Equivalent".into()),
            namespace_selector: Some(LabelSelector::default()),
            ..MatchResources::default()
        };
        bound.spec.get_or_insert_default().match_resources = Some(everything);
        assert_eq!(gap(Some(&stored), Some(&bound)), None);
    }

    #[test]
    fn a_policy_for_objects_in_namespaces_only_is_enforced() {
        let mut stored = policy();
        let spec = stored.spec.get_or_insert_default();
        rules(spec).iter_mut().for_each(|rule| rule.scope = Some("Namespaced".into()));
        assert_eq!(gap(Some(&stored), Some(&binding())), None);
    }

    #[test]
    fn a_policy_that_checks_less_is_not_enforced() {
        let changes: [Change; 14] = [
            ("no validation", |spec| spec.validations = None),
            ("a validation less", |spec| drop(spec.validations.as_mut().map(Vec::pop))),
            ("another variable", |spec| {
                let variables = spec.variables.get_or_insert_default();
                variables.iter_mut().for_each(|variable| variable.expression = "true".into());
            }),
            ("a condition", |spec| {
                let never = MatchCondition { name: "never".into(), expression: "false".into() };
                spec.match_conditions = Some(vec![never]);
            }),
            ("errors are ignored", |spec| spec.failure_policy = Some("Ignore".into())),
            ("parameters", |spec| spec.param_kind = Some(ParamKind::default())),
            ("no constraints", |spec| spec.match_constraints = None),
            ("some namespaces", |spec| constraints(spec).namespace_selector = only_some()),
            ("some objects", |spec| constraints(spec).object_selector = only_some()),
            ("excluded resources", |spec| {
                constraints(spec).exclude_resource_rules = Some(vec![NamedRuleWithOperations::default()]);
            }),
            ("a rule less", |spec| drop(rules(spec).pop())),
            ("some names", |spec| rules(spec)[0].resource_names = Some(vec!["podinfo".into()])),
            ("objects without a namespace", |spec| rules(spec)[0].scope = Some("Cluster".into())),
            ("an operation less", |spec| drop(rules(spec)[0].operations.as_mut().map(Vec::pop))),
        ];
        for (name, change) in changes {
            let mut changed = policy();
            change(changed.spec.get_or_insert_default());
            let gap = gap(Some(&changed), Some(&binding())).unwrap_or_default();
            assert!(gap.contains("is not that of this version of Sluice: sluice crds |"), "{name}: {gap:?}");
        }
    }

    #[test]
    fn a_binding_that_denies_less_does_not_enforce_the_policy() {
        let changes: [BindingChange; 6] = [
            ("audit only", |spec| spec.validation_actions = Some(vec!["Audit".into(), "Warn".into()])),
            ("no action", |spec| spec.validation_actions = None),
            ("another policy", |spec| spec.policy_name = Some("other".into())),
            ("some namespaces", |spec| {
                spec.match_resources.get_or_insert_default().namespace_selector = only_some();
            }),
            ("some objects", |spec| {
                spec.match_resources.get_or_insert_default().object_selector = only_some();
            }),
            ("some resources", |spec| {
                let rules = vec![NamedRuleWithOperations::default()];
                spec.match_resources.get_or_insert_default().resource_rules = Some(rules);
            }),
        ];
        for (name, change) in changes {
            let mut changed = binding();
            change(changed.spec.get_or_insert_default());
            let gap = gap(Some(&policy()), Some(&changed)).unwrap_or_default();
            assert!(gap.contains("does not enforce the policy everywhere: sluice crds |"), "{name}: {gap:?}");
        }
    }

    #[test]
    fn a_missing_policy_or_binding_is_named_with_what_installs_it() {
        for (policy, binding, missing) in [
            (None, None, "the ValidatingAdmissionPolicy "),
            (None, Some(binding()), "the ValidatingAdmissionPolicy "),
            (Some(policy()), None, "the ValidatingAdmissionPolicyBinding "),
        ] {
            let gap = gap(policy.as_ref(), binding.as_ref()).unwrap_or_default();
            assert!(gap.starts_with(missing) && gap.contains("is not installed"), "{gap:?}");
            assert!(gap.contains(": sluice crds | kubectl apply"), "{gap:?}");
        }
    }
}
