//! The draft of a Pipeline that is edited.

use sluice_api::Pipeline;
use sluice_api::pipeline::{Environment, IntOrPercent, PromotionPolicy};

use super::entered::{Draft, DraftDelivery, DraftEnvironment, DraftTarget};

impl From<&Pipeline> for Draft {
    fn from(pipeline: &Pipeline) -> Draft {
        let spec = &pipeline.spec;
        let namespace = pipeline.metadata.namespace.clone().unwrap_or_default();
        let app = spec.app_ref.clone().unwrap_or_default();
        let environments = spec.environments.iter().enumerate().map(|(at, known)| DraftEnvironment {
            was: Some(at),
            name: known.name.clone(),
            after: known.after.iter().map(|name| name.0.as_str()).collect::<Vec<_>>().join(", "),
            approval: spec.policy(known).is_some_and(|policy| policy.manual),
            targets: targets(known, &namespace),
        });
        Draft {
            environments: environments.collect(),
            name: pipeline.metadata.name.clone().unwrap_or_default(),
            app_kind: app.kind,
            app_name: app.name,
            delivery: spec.promotion.as_ref().map(delivery).unwrap_or_default(),
            namespace,
            manifest: String::new(),
            files: String::new(),
        }
    }
}

fn targets(environment: &Environment, home: &str) -> Vec<DraftTarget> {
    let target = |(at, known): (usize, &sluice_api::pipeline::Target)| DraftTarget {
        was: Some(at),
        name: known.name.clone().unwrap_or_default(),
        cluster: known.cluster_name(home),
        namespace: known.namespace.clone(),
        in_git: false,
    };
    environment.targets.iter().enumerate().map(target).collect()
}

fn delivery(policy: &PromotionPolicy) -> DraftDelivery {
    let secret = |secret: Option<&sluice_api::pipeline::SecretRef>| {
        secret.map(|secret| secret.name.clone()).unwrap_or_default()
    };
    let min_ready_targets = match &policy.min_ready_targets {
        None => String::new(),
        Some(IntOrPercent::Count(count)) => count.to_string(),
        Some(IntOrPercent::Percent(text)) => text.clone(),
    };
    let strategy = policy.strategy.clone().unwrap_or_default();
    let mut delivery = DraftDelivery { min_ready_targets, ..DraftDelivery::default() };
    if let Some(settings) = strategy.pull_request {
        delivery.strategy = "pull-request".into();
        delivery.secret = secret(Some(&settings.secret_ref));
        (delivery.forge, delivery.url, delivery.branch) =
            (settings.forge, settings.url, settings.base_branch);
    } else if let Some(settings) = strategy.commit {
        delivery.strategy = "commit".into();
        delivery.secret = secret(settings.secret_ref.as_ref());
        (delivery.url, delivery.branch) = (settings.url, settings.branch);
    } else if let Some(settings) = strategy.webhook {
        delivery.strategy = "webhook".into();
        delivery.secret = secret(settings.secret_ref.as_ref());
        delivery.url = settings.url;
    } else if strategy.notification.is_some() {
        delivery.strategy = "notification".into();
    }
    delivery
}
