//! Deletes the branch of a merged change request.

use super::job::ChangeRequestJob;
use crate::error::DeliveryError;

impl ChangeRequestJob<'_> {
    /// Deletes the branch of a merged change request, if the branch is at the commit that was merged. If that fails,
    /// the delivery does not: the forge may have deleted the branch, and the next revision uses it again.
    pub(super) async fn delete_branch(&self, head: &str) {
        let deleted = async {
            self.lock().await?.delete(&self.branch, head, &self.order.fencing_token).await?;
            Ok::<_, DeliveryError>(())
        };
        if let Err(error) = deleted.await {
            let (promotion, repository, branch) = (&self.order.promotion, self.target.url, &self.branch);
            tracing::warn!(
                promotion,
                repository,
                branch,
                %error,
                "the branch of a merged change request was not deleted"
            );
        }
    }
}
