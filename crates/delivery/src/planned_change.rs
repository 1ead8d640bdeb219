//! What a delivery to git would change. Only reads.

use std::time::Instant;

use sluice_core::planned_change::{PlannedChange, PlannedValue};

use crate::edit::{edit, file};
use crate::error::DeliveryResult;
use crate::git::LockedRepository;
use crate::order::{DeliveryStrategy, Order};
use crate::resources::{Resources, is_final};

/// Computes what the delivery of an order would change now; `None` if it does not write to git.
pub(crate) async fn planned_change(
    resources: &Resources,
    order: &Order,
    began: Instant,
) -> DeliveryResult<Option<PlannedChange>> {
    let (url, branch) = match &order.strategy {
        DeliveryStrategy::Commit { url, branch } => (url, branch),
        DeliveryStrategy::PullRequest { url, base, .. } => (url, base),
        DeliveryStrategy::Notification(_) | DeliveryStrategy::Webhook { .. } => return Ok(None),
    };
    let mut repository = resources.lock(order, url, None).await?;
    loop {
        let planned = plan(order, &mut repository, branch, began).await;
        if is_final(order, &mut repository, &planned) {
            return planned.map(Some);
        }
    }
}

/// Reads the file of an order that changes one; `None` if there is no file, or the order is another one.
pub(crate) async fn file(
    resources: &Resources,
    order: &Order,
    began: Instant,
) -> DeliveryResult<Option<String>> {
    let Some((change, base)) = order.file() else { return Ok(None) };
    let mut repository = resources.lock(order, order.repository(), None).await?;
    loop {
        let text = read_file(&mut repository, (base, &change.path), began).await;
        if is_final(order, &mut repository, &text) {
            return text;
        }
    }
}

async fn read_file(
    repository: &mut LockedRepository<'_>,
    (branch, path): (&str, &str),
    began: Instant,
) -> DeliveryResult<Option<String>> {
    let commit = repository.tips(branch, began).await?.base.id;
    Ok(file::read(repository, (branch, &commit), path).await?.map(|(_, text)| text))
}

async fn plan(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    branch: &str,
    began: Instant,
) -> DeliveryResult<PlannedChange> {
    let commit = repository.tips(branch, began).await?.base.id;
    let edit = edit(order, repository, (branch, &commit)).await?;
    let value = |(path, value): (String, sluice_core::setters::SetValue)| PlannedValue {
        path,
        line: value.line,
        old: Some(value.old),
        new: value.new,
    };
    Ok(PlannedChange {
        repository: repository.access.address.text.clone(),
        branch: branch.into(),
        commit,
        values: edit.values.into_iter().map(value).collect(),
    })
}
