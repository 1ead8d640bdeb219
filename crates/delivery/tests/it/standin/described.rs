//! The published descriptions of the forges that run only at their vendors. Each call of a stand-in is compared with
//! them. Gitea needs none: it runs in the tests itself.

use std::sync::Arc;

use sluice_delivery::ForgeKind;
use sluice_testkit::api_description::{self, CallChecker};

use super::{StandIn, git};

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

/// Fails the test if a call differs from the published description.
impl Drop for StandIn {
    fn drop(&mut self) {
        let differences = self.checker.as_ref().map(|checker| checker.differences()).unwrap_or_default();
        if !std::thread::panicking() {
            assert!(differences.is_empty(), "calls differ from the published description: {differences:#?}");
        }
    }
}

#[tokio::test]
#[should_panic(expected = "the parameter colour is not documented")]
async fn a_call_that_differs_from_the_description_fails_the_test() {
    let stand_in = StandIn::start(ForgeKind::GitLab, &[("a.yaml", "a: 1\n")]).await;
    let url = stand_in.url.replace("/acme/team/fleet.git", "/api/v4/users?colour=red");
    git::plain_client().get(url).send().await.unwrap();
}
