//! The head branch of the predecessor's template, which two environments can have. The open change request of one is not
//! changed for the other.

use super::body_mark;
use super::job::ChangeRequestJob;
use crate::forge::{ForgeChangeRequest, ForgeResult};
use crate::template::TemplateError;

impl ChangeRequestJob<'_> {
    /// Returns the error of a head branch from which another environment has an open change request. It is called just before a
    /// push, while no other delivery of this process pushes to the repository. Between the push and the opening of the other
    /// one's change request nobody can tell. Other templates than the predecessor's keep environments apart, so they cost no
    /// call.
    pub(super) async fn find_branch_conflict(&self) -> ForgeResult<Option<TemplateError>> {
        if !self.order.may_share_branch() {
            return Ok(None);
        }
        let open = self.forge.find_open(&self.branch, self.target.base).await?;
        Ok(open.and_then(|open| self.branch_conflict(&open)))
    }

    /// Returns the error if an open change request from the head branch has the marker of another environment. Everybody
    /// who may open a change request from the branch, or edit its body, can write one, and then the delivery fails. A change
    /// request of the predecessor has none.
    pub(super) fn branch_conflict(&self, open: &ForgeChangeRequest) -> Option<TemplateError> {
        let marked = body_mark::environment_marked(&open.body).filter(|_| self.order.may_share_branch())?;
        if marked == body_mark::environment_of(self.order) {
            return None;
        }
        let [namespace, pipeline, environment] = marked.map(|name| name.replace("%2d", "-"));
        let what = format!(
            "it gives {}, from which environment {environment} of pipeline {namespace}/{pipeline} has the open change \
             request {}; write a branch that ends with {{namespace}}/{{pipeline}}/{{environment}}, or rename the pipeline \
             or the environment, or close that change request if its pipeline is gone",
            self.branch, open.request.url
        );
        Some(TemplateError::new("branch", what))
    }
}
