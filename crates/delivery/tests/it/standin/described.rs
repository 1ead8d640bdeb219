//! The published descriptions of the forges. Each call of a stand-in is compared with them. Gitea runs in the tests itself, too.

use std::sync::Arc;

use sluice_delivery::ForgeKind;
use sluice_testkit::api_description::{self, CallChecker};

pub(super) fn call_checker(kind: ForgeKind) -> Arc<CallChecker> {
    let (facts, servers): (_, &[&str]) = match kind {
        ForgeKind::GitHub => (api_description::GITHUB, &["/api/v3", "/api"]),
        ForgeKind::GitLab => (api_description::GITLAB, &[]),
        ForgeKind::Bitbucket => (api_description::BITBUCKET, &["/2.0"]),
        ForgeKind::BitbucketServer => (api_description::BITBUCKET_SERVER, &["/bitbucket/rest"]),
        ForgeKind::AzureDevOps => (api_description::AZURE_DEVOPS, &[]),
        // Gitea, and Forgejo, which kept its API.
        _ => (api_description::GITEA, &[]),
    };
    CallChecker::new(facts, servers).unwrap()
}
