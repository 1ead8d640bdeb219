//! The API of each forge, by its kind.

use std::sync::Arc;

use sluice_delivery::ForgeKind;

use super::forge_api::ForgeApi;
use super::{azure_devops, bitbucket, bitbucket_server, gitea, github, gitlab};

pub(super) fn forge_api(kind: ForgeKind) -> Arc<dyn ForgeApi> {
    match kind {
        ForgeKind::GitHub => Arc::new(github::GitHubApi),
        ForgeKind::GitLab => Arc::new(gitlab::GitLabApi),
        ForgeKind::Gitea => Arc::new(gitea::GiteaApi { is_forgejo: false }),
        ForgeKind::Forgejo => Arc::new(gitea::GiteaApi { is_forgejo: true }),
        ForgeKind::Bitbucket => Arc::new(bitbucket::BitbucketApi),
        ForgeKind::BitbucketServer => Arc::new(bitbucket_server::BitbucketServerApi),
        ForgeKind::AzureDevOps => Arc::new(azure_devops::AzureDevOpsApi),
        other => panic!("no stand-in for {other:?}"),
    }
}
