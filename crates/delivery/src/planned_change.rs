//! What a delivery to git would change, or has changed. Only reads.

use std::time::Instant;

use sluice_core::planned_change::{PlannedChange, PlannedValue};
use sluice_core::setters::SetValue;

use crate::edit::{edit, file};
use crate::error::DeliveryResult;
use crate::git::LockedRepository;
use crate::order::Order;
use crate::resources::{Resources, is_final};

/// Computes what the delivery of an order would change now; `None` if it does not write to git.
pub(crate) async fn planned_change(
    resources: &Resources,
    order: &Order,
    began: Instant,
) -> DeliveryResult<Option<PlannedChange>> {
    let Some((url, branch)) = order.strategy.written_branch() else { return Ok(None) };
    let mut repository = resources.lock(order, url, None).await?;
    loop {
        let planned = plan(order, &mut repository, branch, began).await;
        if is_final(order, &mut repository, &planned) {
            return planned.map(Some);
        }
    }
}

/// Computes what a commit has changed of the values of an order; `None` if the order does not write to git. Of a merge
/// commit, the difference to its first parent counts. A value that the order does not name any more is not found.
pub(crate) async fn delivered_change(
    resources: &Resources,
    order: &Order,
    commit: &str,
) -> DeliveryResult<Option<PlannedChange>> {
    let Some((url, branch)) = order.strategy.written_branch() else { return Ok(None) };
    let mut repository = resources.lock(order, url, None).await?;
    loop {
        let change = compare(order, &mut repository, (branch, commit)).await;
        if is_final(order, &mut repository, &change) {
            return change.map(Some);
        }
    }
}

async fn compare(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, commit): (&str, &str),
) -> DeliveryResult<PlannedChange> {
    repository.fetch_commit(commit).await?;
    let mut values = Vec::new();
    if let Some(before) = repository.read_commit(commit).await?.parents.first() {
        repository.fetch_commit(before).await?;
        values = edit(order, repository, (branch, before)).await?.values;
        // A value that the commit has left as it was.
        let left = edit(order, repository, (branch, commit)).await?.values;
        values.retain(|(path, value)| {
            !left.iter().any(|(other, left)| (other, left.line) == (path, value.line))
        });
    }
    Ok(change(repository, (branch, commit.into()), values))
}

fn change(
    repository: &LockedRepository<'_>,
    (branch, commit): (&str, String),
    values: Vec<(String, SetValue)>,
) -> PlannedChange {
    let value = |(path, value): (String, SetValue)| PlannedValue {
        path,
        line: value.line,
        old: Some(value.old),
        new: value.new,
    };
    PlannedChange {
        repository: repository.access.address.text.clone(),
        branch: branch.into(),
        commit,
        values: values.into_iter().map(value).collect(),
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
    Ok(change(repository, (branch, commit), edit.values))
}
