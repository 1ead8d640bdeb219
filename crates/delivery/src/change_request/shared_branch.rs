//! The head branch of the predecessor's template, which two environments can have. What one of them has pushed or opened is
//! not changed for the other.

use super::body_mark;
use super::job::ChangeRequestJob;
use crate::commit_message;
use crate::error::{DeliveryError, DeliveryResult};
use crate::forge::ForgeChangeRequest;
use crate::git::Commit;
use crate::template::TemplateError;

impl ChangeRequestJob<'_> {
    /// Returns the error of a head branch whose newest commit names another environment. It is known before a push, without a
    /// call of the forge, and only those who may push can cause it. Commits of people and of the predecessor name none.
    pub(super) fn branch_conflict(&self, head: &Commit) -> Option<TemplateError> {
        let named =
            commit_message::environment_named(&head.message).filter(|_| self.order.may_share_branch())?;
        if named == commit_message::environment_trailers(self.order) {
            return None;
        }
        let what = format!(
            "it gives {}, whose newest commit is of another environment ({}); write a branch that ends with \
             {{namespace}}/{{pipeline}}/{{environment}}, or rename the pipeline or the environment, or delete the branch if \
             that environment does not need it any more",
            self.branch,
            named.join(", ")
        );
        Some(TemplateError::new("branch", what))
    }

    /// Whether an open change request from the head branch has the marker of another environment. A forge or a person may have
    /// put a commit on top of that environment's that names none. Who may edit the body can write any marker.
    pub(super) fn is_marked_by_another(&self, open: &ForgeChangeRequest) -> bool {
        self.order.may_share_branch()
            && body_mark::environment_marked(&open.body)
                .is_some_and(|marked| marked != body_mark::environment_of(self.order))
    }

    /// Refuses to change an open change request that is marked by another environment.
    pub(super) fn check_mark(&self, open: &ForgeChangeRequest) -> DeliveryResult<()> {
        if !self.is_marked_by_another(open) {
            return Ok(());
        }
        let what = format!(
            "it gives {}, from which another environment has the open change request {}; write a branch that ends with \
             {{namespace}}/{{pipeline}}/{{environment}}, or rename the pipeline or the environment, or close that change \
             request if its pipeline is gone",
            self.branch, open.request.url
        );
        Err(DeliveryError::from(TemplateError::new("branch", what)))
    }
}
