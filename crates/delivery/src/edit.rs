//! From marked files to changed ones: which values are set, and why none could be.

use sluice_core::setters::{self, SetError, SetValue, Wanted};

use crate::git::{ChangedFile, MarkedFile, hex_hash};
use crate::order::Order;

/// Why the files cannot be set.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum EditError {
    #[error(
        "no file in {repository} at {branch} has the marker {marker}: add # {marker} behind the value to set, \
         in a .yaml or .yml file, or correct the repository or branch in the pipeline"
    )]
    NoMarker { repository: String, branch: String, marker: String },

    #[error(transparent)]
    Set(#[from] SetError),
}

impl EditError {
    /// One word for the condition, the event and the metric alike.
    pub fn reason(&self) -> &'static str {
        match self {
            EditError::NoMarker { .. } => "NoMarker",
            EditError::Set(e) => e.reason(),
        }
    }
}

/// What a delivery changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    /// The files that change; none where every value is set already.
    pub(crate) files: Vec<ChangedFile>,
    /// Every value that changes, with the path of its file.
    pub(crate) values: Vec<(String, SetValue)>,
    /// What the files held before, as a hash: a commit made on top of the same is still good, however
    /// far the branch has moved elsewhere.
    pub(crate) onto: String,
}

/// Sets every marker for the order in these files.
pub(crate) fn edit(
    order: &Order,
    repository: &str,
    branch: &str,
    found: Vec<MarkedFile>,
) -> Result<Edit, EditError> {
    let wanted = Wanted {
        namespace: &order.namespace,
        pipeline: &order.pipeline,
        environment: &order.environment,
        target: order.target.as_deref(),
        revision: &order.revision,
    };
    let mut edit = Edit::default();
    let mut before = Vec::new();
    let mut marked = false;
    for file in found {
        let path = String::from_utf8_lossy(&file.path).into_owned();
        let Some(edited) = setters::set(&path, &file.bytes, &wanted)? else { continue };
        marked = true;
        if edited.text.as_bytes() != file.bytes {
            let changed = edited.values.into_iter().filter(|v| v.old != v.new);
            edit.values.extend(changed.map(|v| (path.clone(), v)));
            before.extend([file.path.as_slice(), b"\0", &file.bytes, b"\0"].concat());
            edit.files.push(ChangedFile { path: file.path, mode: file.mode, text: edited.text });
        }
    }
    if !marked {
        let (repository, branch) = (repository.to_string(), branch.to_string());
        return Err(EditError::NoMarker { repository, branch, marker: order.marker() });
    }
    edit.onto = hex_hash(&before)[..16].into();
    Ok(edit)
}
