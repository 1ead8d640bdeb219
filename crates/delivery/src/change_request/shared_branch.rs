//! The head branch of the predecessor's template, which two environments can have. What one of them has pushed or opened is
//! not changed for the other.

use super::body_mark;
use super::job::ChangeRequestJob;
use crate::commit_message;
use crate::error::{DeliveryError, DeliveryResult};
use crate::forge::{ForgeChangeRequest, ForgeResult};
use crate::git::Commit;
use crate::template::TemplateError;

impl ChangeRequestJob<'_> {
    /// Returns the address of an open change request from the head branch with the marker of another environment. Other
    /// templates than the predecessor's keep environments apart, so they cost no call.
    pub(super) async fn find_marked_by_another(&self) -> ForgeResult<Option<String>> {
        if !self.order.may_share_branch() {
            return Ok(None);
        }
        let open = self.forge.find_open(&self.branch, self.target.base).await?;
        Ok(open.filter(|open| self.is_marked_by_another(open)).map(|open| open.request.url))
    }

    /// Returns the error of a head branch whose newest commit is another environment's. That commit says whose it is, and only
    /// those who may push can write it. If it names none, since a forge or a person has put it on top of that environment's,
    /// the marker of the open change request counts (`marked`). Commits of the predecessor name none, and its change requests
    /// have no marker.
    pub(super) fn branch_conflict(&self, head: &Commit, marked: Option<&str>) -> Option<TemplateError> {
        if !self.order.may_share_branch() {
            return None;
        }
        match (commit_message::environment_named(&head.message), marked) {
            (Some(named), _) if named == commit_message::environment_trailers(self.order) => None,
            (Some(named), _) => Some(
                self.shared(&format!("whose newest commit is of another environment ({})", named.join(", "))),
            ),
            (None, Some(url)) => Some(self.shared_with_open(url)),
            (None, None) => None,
        }
    }

    /// Whether an open change request from the head branch has the marker of another environment. Who may edit the body can
    /// write any marker.
    pub(super) fn is_marked_by_another(&self, open: &ForgeChangeRequest) -> bool {
        self.order.may_share_branch()
            && body_mark::environment_marked(&open.body)
                .is_some_and(|marked| marked != body_mark::environment_of(self.order))
    }

    /// Refuses to change an open change request that is marked by another environment.
    pub(super) fn check_mark(&self, open: &ForgeChangeRequest) -> DeliveryResult<()> {
        match self.is_marked_by_another(open) {
            true => Err(DeliveryError::from(self.shared_with_open(&open.request.url))),
            false => Ok(()),
        }
    }

    fn shared_with_open(&self, url: &str) -> TemplateError {
        self.shared(&format!("from which another environment has the open change request {url}"))
    }

    fn shared(&self, how: &str) -> TemplateError {
        let what = format!(
            "it gives {}, {how}; write a branch that ends with {{namespace}}/{{pipeline}}/{{environment}}, or rename the \
             pipeline or the environment, or close that change request and delete the branch if that environment does not \
             need them any more",
            self.branch
        );
        TemplateError::new("branch", what)
    }
}
