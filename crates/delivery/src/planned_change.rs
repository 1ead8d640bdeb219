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

/// Reads the files of an order that changes files: the text of each, and `None` for one that does not exist.
pub(crate) async fn files(
    resources: &Resources,
    order: &Order,
    began: Instant,
) -> DeliveryResult<Vec<Option<String>>> {
    let Some((change, base)) = order.requested() else { return Ok(Vec::new()) };
    let paths: Vec<&str> = change.files.iter().map(|file| file.path.as_str()).collect();
    let mut repository = resources.lock(order, order.repository(), None).await?;
    loop {
        let texts = read_files(&mut repository, (base, &paths), began).await;
        if is_final(order, &mut repository, &texts) {
            return texts;
        }
    }
}

async fn read_files(
    repository: &mut LockedRepository<'_>,
    (branch, paths): (&str, &[&str]),
    began: Instant,
) -> DeliveryResult<Vec<Option<String>>> {
    let commit = repository.tips(branch, began).await?.base.id;
    let mut texts = Vec::new();
    for path in paths {
        texts.push(file::read(repository, (branch, &commit), path).await?.map(|(_, text)| text));
    }
    Ok(texts)
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
