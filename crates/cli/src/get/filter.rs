//! The pipeline and the environment to which `sluice get promotions` is limited.

use kube::api::ListParams;
use sluice_api::Pipeline;

use super::flags::View;
use crate::connection::Connection;
use crate::exit::Outcome;
use crate::find;
use crate::objects;
use crate::suggest::no_environment;

/// The pipeline and the environment whose promotions are shown, if flags name them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PromotionFilter<'a> {
    pub pipeline: Option<&'a str>,
    pub environment: Option<&'a str>,
}

impl PromotionFilter<'_> {
    /// Fails if the pipeline does not exist or does not have the environment: a misspelled name is an error.
    pub(super) async fn check(&self, view: &View, connection: &Connection) -> Outcome {
        let Some(name) = self.pipeline else { return Ok(()) };
        let namespace = (!view.all_namespaces).then_some(connection.namespace.as_str());
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        // A user without the permission to read pipelines still sees promotions.
        let Ok(found) = objects::list::<Pipeline>(connection, namespace, &params).await else {
            return Ok(());
        };
        if let Some(bad) = found.unreadable.first() {
            return Err(objects::failure(&objects::describe::<Pipeline, _>(bad)));
        }
        if found.items.is_empty() {
            return Err(find::missing::<Pipeline>(connection, name, view.all_namespaces).await);
        }
        let known = found.items.into_iter().flat_map(|p| p.spec.environments).map(|e| e.name);
        let known: Vec<String> = known.collect();
        match self.environment {
            // A promotion into one target is `prod/eu`.
            Some(wanted) if !known.iter().any(|e| *e == wanted || wanted.starts_with(&format!("{e}/"))) => {
                Err(no_environment(name, wanted, &known))
            }
            _ => Ok(()),
        }
    }

    /// Returns the filter as a part of a sentence: ` of pipeline podinfo into prod`.
    pub(super) fn describe(&self) -> String {
        let pipeline = self.pipeline.map(|name| format!(" of pipeline {name}")).unwrap_or_default();
        let environment = self.environment.map(|name| format!(" into {name}")).unwrap_or_default();
        pipeline + &environment
    }
}
