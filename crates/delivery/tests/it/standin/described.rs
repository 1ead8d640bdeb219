//! The published descriptions of the forges that run only at their vendors. Each call of a stand-in is compared with
//! them. Gitea needs none: it runs in the tests itself.

use std::sync::Arc;

use sluice_delivery::ForgeKind;
use sluice_testkit::api_description::{self, CallChecker};

pub(super) fn call_checker(kind: ForgeKind) -> Option<Arc<CallChecker>> {
    let (facts, servers): (_, &[&str]) = match kind {
        ForgeKind::GitHub => (api_description::GITHUB, &["/api/v3", "/api"]),
        ForgeKind::GitLab => (api_description::GITLAB, &[]),
        ForgeKind::Bitbucket => (api_description::BITBUCKET, &["/2.0"]),
        ForgeKind::BitbucketServer => (api_description::BITBUCKET_SERVER, &["/bitbucket/rest"]),
        ForgeKind::AzureDevOps => (api_description::AZURE_DEVOPS, &[]),
        _ => return None,
    };
    Some(CallChecker::new(facts, servers).unwrap())
}
