//! Passwords that are common words: Sluice removes them from messages, and still finds the reason of each error.

use sluice_delivery::{DeliveryStrategy, Order};
use sluice_testkit::GitServer;

use crate::any_forge::ForgeFixture;
use crate::commit::to_main;
use crate::fixture::{FILE, bench, yaml};
use crate::git_trouble::with_password;
use crate::standin::{CallKind, ForgeFault};

/// Words of the messages that decide about a reason. A password with such a word is removed from the messages.
const COMMON_WORDS: [&str; 14] = [
    "p",
    "t",
    "e",
    "repository",
    "not found",
    "fatal",
    "error",
    "remote",
    "branch",
    "Authentication failed",
    "pre-receive",
    "declined",
    "exists",
    "cannot create",
];

#[tokio::test]
async fn a_password_that_is_a_common_word_changes_no_reason() {
    let server = GitServer::start().unwrap();
    let repo = server.create_repo("fleet", &[(FILE, &yaml("6.1.5"))]).unwrap();
    let guarded = server.create_repo("guarded", &[(FILE, &yaml("6.1.5"))]).unwrap();
    guarded.hook("pre-receive", "echo 'fatal: the branch main is not found' >&2; exit 1").unwrap();
    let to = |url: &str, branch: &str| Order {
        strategy: DeliveryStrategy::Commit { url: url.into(), branch: branch.into() },
        ..to_main(&repo, "6.1.8")
    };
    for (order, reason) in [
        (to(&repo.url().replace("fleet", "other"), "main"), "RepositoryNotFound"),
        (to(repo.url(), "release"), "BranchNotFound"),
        (to(guarded.url(), "main"), "PushRejected"),
    ] {
        for word in COMMON_WORDS {
            let mut order = order.clone();
            order.credentials.token = Some(word.into());
            let error = bench().delivery.deliver(&order).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{word}: {error}");
        }
    }
    for word in COMMON_WORDS {
        let order = with_password(to(repo.url(), "main"), "sluice", word);
        let error = bench().delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "AuthenticationFailed", "{word}: {error}");
    }
}

#[tokio::test]
async fn a_password_that_is_a_common_word_changes_no_reason_of_a_forge() {
    const REFUSED: &str =
        r#"{"message": "fatal error: the repository has no branch p, not found", "error": "t declined"}"#;
    for (status, reason) in [(401, "AuthenticationFailed"), (403, "PermissionDenied"), (422, "ForgeRefused")]
    {
        let fixture = ForgeFixture::github().await;
        for word in ["p", "repository", "not found", "fatal error"] {
            let mut order = fixture.order("6.1.8");
            // Nothing is signed without a key, but the passphrase is removed from the messages.
            order.credentials.signing_passphrase = Some(word.into());
            fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(status, vec![], REFUSED));
            let error = bench().delivery.deliver(&order).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{word}: {error}");
        }
    }
}

#[tokio::test]
async fn a_password_that_is_a_common_word_hides_no_rate_limit() {
    const LIMITED: &str =
        r#"{"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}"#;
    for word in ["rate limit", "limit", "t"] {
        let fixture = ForgeFixture::github().await;
        let mut order = fixture.order("6.1.8");
        order.credentials.signing_passphrase = Some(word.into());
        fixture.standin().inject_fault(CallKind::Open, ForgeFault::Answer(403, vec![], LIMITED));
        let error = bench().delivery.deliver(&order).await.unwrap_err();
        assert_eq!(error.reason(), "RateLimited", "{word}: {error}");
    }
}
