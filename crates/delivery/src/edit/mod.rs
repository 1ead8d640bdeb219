//! Sets the values of an order in the files of a commit.

pub(crate) mod error;
pub(crate) mod file;

use std::sync::Arc;

use sluice_core::Revision;
use sluice_core::setters::{self, EditedFile, MarkerRequest, Plan, SetValue, UpdateError};

use crate::edit_slots::EditSize;
use crate::error::{DeliveryError, DeliveryResult};
use crate::fair_queue::Slot;
use crate::git::{
    ChangedFile, FoundFiles, GitError, GitResult, LockedRepository, ReadFile, UnreadFile, UnreadReason,
    YamlFiles,
};
use crate::order::{Order, Values};
pub use error::EditError;
use sluice_core::hex::sha256_hex;

/// The changes of a delivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileEdits {
    /// The files that change. Empty if every value is set already.
    pub(crate) files: Vec<ChangedFile>,
    /// The values that change, with the path of their file.
    pub(crate) values: Vec<(String, SetValue)>,
    /// A hash of the files before the change. A commit for the same files is still good when other files of the branch
    /// have changed.
    pub(crate) onto: String,
}

/// Whether the files of a commit, which is in the cache, have every value of an order. `at` is the branch and the commit.
pub(crate) async fn is_set(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    at: (&str, &str),
) -> DeliveryResult<bool> {
    match edit(order, repository, at).await {
        Ok(edit) => Ok(edit.files.is_empty()),
        // There is nothing to set. The next delivery reports that.
        Err(DeliveryError::Edit(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the values of an order in the files of a commit of a branch.
pub(crate) async fn edit(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    at: (&str, &str),
) -> DeliveryResult<FileEdits> {
    let edited = edit_files(order, repository, at).await;
    repository.release_large_slot();
    edited
}

async fn edit_files(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    (branch, commit): (&str, &str),
) -> DeliveryResult<FileEdits> {
    let url = repository.access.address.text.clone();
    let not_read = |wanted: String, unread: &[UnreadFile]| {
        let (repository, branch) = (url.clone(), branch.to_string());
        DeliveryError::Edit(EditError::NotRead { repository, branch, wanted, unread: listed(unread) })
    };
    let (done, unread) = match &order.values {
        Values::Marked => {
            let wanted = WantedFiles::Marked { commit, needle: order.key() };
            let (slot, (found, unread)) = read_in_slot(repository, &wanted, 1).await?;
            let order = order.clone();
            (computed(slot, move || set_marked(&order, found)).await?, unread)
        }
        Values::Files(change) => (file::edit(change, repository, (branch, commit)).await?, Vec::new()),
        Values::Listed { updates, places } => {
            let wrong = |error| {
                let (repository, branch) = (url.clone(), branch.to_string());
                DeliveryError::Edit(EditError::Update { repository, branch, error: Box::new(error) })
            };
            let (updates, places, only) = (updates.clone(), places.clone(), order.target.clone());
            let slot = repository.edit_slot(EditSize::of_edit(0, updates.len() * places.len())).await;
            let plan = computed(slot, move || Plan::new(&updates, &places, only.as_deref()));
            let plan = plan.await.map_err(wrong)?;
            let listing = repository.list_files(commit).await?;
            let (paths, of) = (listing.paths(), plan.clone());
            let slot = repository.edit_slot(EditSize::of_selection(paths.len(), plan.len())).await;
            let selected = computed(slot, move || of.select(&paths)).await.map_err(wrong)?;
            let wanted = WantedFiles::These(listing.only(&selected));
            repository.release_large_slot();
            let (slot, (found, unread)) = read_in_slot(repository, &wanted, plan.len()).await?;
            let revision = order.revision.clone();
            match computed(slot, move || set_listed(&revision, &plan, found)).await {
                Err(_) if !unread.is_empty() => return Err(not_read("the value to set".into(), &unread)),
                done => (done.map_err(wrong)?, unread),
            }
        }
    };
    if done.is_empty() && !unread.is_empty() {
        return Err(not_read(format!("the marker {}", order.marker()), &unread));
    }
    if done.is_empty() {
        let similar = similar_marker(order, repository, commit).await?;
        let (repository, branch) = (url.clone(), branch.to_string());
        return Err(EditError::NoMarker { repository, branch, marker: order.marker(), similar }.into());
    }
    Ok(FileEdits::of(done))
}

/// The files that an edit needs.
enum WantedFiles<'a> {
    /// Those of a commit that have markers with this text.
    Marked {
        commit: &'a str,
        needle: String,
    },
    These(YamlFiles),
}

impl WantedFiles<'_> {
    async fn read(&self, repository: &mut LockedRepository<'_>) -> GitResult<FoundFiles> {
        match self {
            WantedFiles::Marked { commit, needle } => repository.read_marked_files(commit, needle).await,
            WantedFiles::These(files) => repository.read_files(files.clone()).await,
        }
    }
}

/// Returns the marker that is most similar to that of an order, if the files with markers are not too large.
async fn similar_marker(
    order: &Order,
    repository: &mut LockedRepository<'_>,
    commit: &str,
) -> DeliveryResult<Option<String>> {
    let wanted = WantedFiles::Marked { commit, needle: setters::MARKER_KEY.into() };
    let (slot, (found, _)) = match read_in_slot(repository, &wanted, 1).await {
        Ok(read) => read,
        Err(GitError::Revoked) => return Err(DeliveryError::Revoked),
        Err(_) => return Ok(None),
    };
    let key = order.key();
    let similar = move || {
        let files = found.iter().map(|file| (file.path_text(), file.bytes.as_slice()));
        setters::similar_marker(files, &key)
    };
    Ok(computed(slot, similar).await)
}

/// Reads files, and waits for a slot to edit them by this many entries. Large files are read again with the slot, from the
/// cache: many deliveries may wait, and a server may be slow.
async fn read_in_slot(
    repository: &mut LockedRepository<'_>,
    wanted: &WantedFiles<'_>,
    entries: usize,
) -> GitResult<(Arc<Slot>, FoundFiles)> {
    let found = wanted.read(repository).await?;
    let size = EditSize::of_edit(found.0.iter().map(|file| file.bytes.len()).sum(), entries);
    let small = (size == EditSize::Small).then_some(found);
    if small.is_some() {
        repository.release_large_slot();
    }
    let slot = repository.edit_slot(size).await;
    let found = match small {
        Some(found) => found,
        None => wanted.read(repository).await?,
    };
    Ok((slot, found))
}

/// Computes on a blocking thread: 16 MiB of YAML take seconds, and would stop other tasks for that time. The slot is released
/// when the thread has ended, also if nobody waits any more.
async fn computed<T: Send + 'static>(slot: Arc<Slot>, compute: impl FnOnce() -> T + Send + 'static) -> T {
    let compute = move || {
        let done = compute();
        drop(slot);
        done
    };
    match tokio::task::spawn_blocking(compute).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// A list of the files that were not read, with the reasons.
fn listed(unread: &[UnreadFile]) -> String {
    const NAMED: usize = 5;
    let name = |file: &UnreadFile| match file.reason {
        UnreadReason::TooLarge(bytes) => format!("{} has {} MiB", file.path, bytes >> 20),
        UnreadReason::LfsPointer => format!("{} is in Git LFS", file.path),
    };
    let mut names: Vec<String> = unread.iter().take(NAMED).map(name).collect();
    if unread.len() > NAMED {
        names.push(format!("and {} more", unread.len() - NAMED));
    }
    names.join(", ")
}

/// Sets every value with a marker of the order.
fn set_marked(order: &Order, found: Vec<ReadFile>) -> Result<Vec<(ReadFile, EditedFile)>, EditError> {
    let wanted = MarkerRequest {
        namespace: &order.namespace,
        pipeline: &order.pipeline,
        environment: &order.environment,
        target: order.target.as_deref(),
        revision: &order.revision,
    };
    let set = |file: ReadFile| {
        let edited = setters::set_marked(&file.path_text(), &file.bytes, &wanted);
        edited.map(|edited| edited.map(|edited| (file, edited))).transpose()
    };
    found.into_iter().filter_map(set).collect::<Result<_, _>>().map_err(EditError::Set)
}

/// Sets the values of a list.
fn set_listed(
    revision: &Revision,
    plan: &Plan,
    found: Vec<ReadFile>,
) -> Result<Vec<(ReadFile, EditedFile)>, UpdateError> {
    let files: Vec<_> = found.iter().map(|file| (file.path_text(), &file.bytes)).collect();
    let edited = plan.set(&files, revision)?;
    Ok(found.into_iter().zip(edited).filter_map(|(file, edited)| Some((file, edited?))).collect())
}

impl FileEdits {
    fn of(done: Vec<(ReadFile, EditedFile)>) -> FileEdits {
        let mut edit = FileEdits::default();
        let mut before = Vec::new();
        for (file, edited) in done.into_iter().filter(|(file, edited)| edited.text.as_bytes() != file.bytes) {
            let path = file.path_text();
            let changed = edited.values.into_iter().filter(|v| v.old != v.new);
            edit.values.extend(changed.map(|v| (path.clone(), v)));
            before.extend([file.path.as_slice(), b"\0", &file.bytes, b"\0"].concat());
            edit.files.push(ChangedFile { path: file.path, mode: file.mode, text: edited.text });
        }
        edit.onto = sha256_hex(&before)[..16].into();
        edit
    }
}
