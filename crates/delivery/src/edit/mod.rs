//! Sets the values of an order in the files of a commit.

pub(crate) mod error;
pub(crate) mod file;

use sluice_core::Revision;
use sluice_core::setters::{self, EditedFile, MarkerRequest, Plan, SetValue, UpdateError};

use crate::error::{DeliveryError, DeliveryResult};
use crate::git::{ChangedFile, LockedRepository, ReadFile, UnreadFile, UnreadReason};
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
    (branch, commit): (&str, &str),
) -> DeliveryResult<FileEdits> {
    let url = repository.access.address.text.clone();
    let not_read = |wanted: String, unread: &[UnreadFile]| {
        let (repository, branch) = (url.clone(), branch.to_string());
        DeliveryError::Edit(EditError::NotRead { repository, branch, wanted, unread: listed(unread) })
    };
    let (done, unread) = match &order.values {
        Values::Marked => {
            let (found, unread) = repository.read_marked_files(commit, &order.key()).await?;
            let order = order.clone();
            (computed(move || set_marked(&order, found)).await?, unread)
        }
        Values::Files(change) => (file::edit(change, repository, (branch, commit)).await?, Vec::new()),
        Values::Listed { updates, places } => {
            let wrong = |error| {
                let (repository, branch) = (url.clone(), branch.to_string());
                DeliveryError::Edit(EditError::Update { repository, branch, error: Box::new(error) })
            };
            let (updates, places, only) = (updates.clone(), places.clone(), order.target.clone());
            let plan =
                computed(move || Plan::new(&updates, &places, only.as_deref())).await.map_err(wrong)?;
            let listing = repository.list_files(commit).await?;
            let (paths, of) = (listing.paths(), plan.clone());
            let selected = computed(move || of.select(&paths)).await.map_err(wrong)?;
            let (found, unread) = repository.read_files(listing.only(&selected)).await?;
            let revision = order.revision.clone();
            match computed(move || set_listed(&revision, &plan, found)).await {
                Err(_) if !unread.is_empty() => return Err(not_read("the value to set".into(), &unread)),
                done => (done.map_err(wrong)?, unread),
            }
        }
    };
    if done.is_empty() && !unread.is_empty() {
        return Err(not_read(format!("the marker {}", order.marker()), &unread));
    }
    if done.is_empty() {
        let (repository, branch) = (url.clone(), branch.to_string());
        return Err(EditError::NoMarker { repository, branch, marker: order.marker() }.into());
    }
    Ok(FileEdits::of(done))
}

/// Computes on a blocking thread: 16 MiB of YAML take seconds, and would stop other tasks for that time.
async fn computed<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> T {
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
        let edited = setters::set(&file.path_text(), &file.bytes, &wanted);
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
