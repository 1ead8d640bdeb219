//! The cases of `explain_reasons.rs` about waiting and delivery: each reason of docs/troubleshooting.md, with a
//! message that the controller composes for it.

/// Where `sluice explain` reads the message of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The controller's note about the environment, which has no promotion in progress.
    Note,
    /// A promotion in this phase.
    Phase(&'static str),
    /// A closed gate of a pending promotion.
    Gate(&'static str),
    /// The error of the environment's target, which has this health.
    Target(&'static str),
    /// A condition of the Pipeline of this type.
    Condition(&'static str),
    /// The suspended Pipeline.
    Suspended,
    /// Not shown by `explain`. The text says where a person reads the reason.
    Elsewhere(&'static str),
}

/// A reason of the page.
pub struct Case {
    /// The heading above the table.
    pub section: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// Where the message is.
    pub shown: Shown,
    /// The message of the controller.
    pub message: &'static str,
}

pub(crate) const fn case(
    section: &'static str,
    reason: &'static str,
    shown: Shown,
    message: &'static str,
) -> Case {
    Case { section, reason, shown, message }
}

const NOT_STARTED: &str = "Why nothing is started";
const CONDITIONS: &str = "Conditions of a Pipeline";
const UNREADABLE: &str = "Objects that cannot be read";
const PROMOTION: &str = "Where a promotion is";

/// Why nothing is started, and where a promotion is.
pub const PROGRESS: &[Case] = &[
    case(
        NOT_STARTED,
        "WaitingForTargets",
        Shown::Note,
        "6.1.8 is healthy on 0 of 1 targets that are needed: staging/staging: it still runs 6.1.5; look whether its source has the new commit",
    ),
    case(
        NOT_STARTED,
        "NotApplied",
        Shown::Note,
        "6.1.8 does not arrive in prod: Kustomization flux-system/fleet is Failed (flux get kustomizations fleet -n flux-system): kustomize build failed",
    ),
    case(
        NOT_STARTED,
        "WaitingForGate",
        Shown::Gate("Approval"),
        "waits for approval: sluice approve -n apps podinfo-prod-1",
    ),
    case(
        NOT_STARTED,
        "WaitingForGate",
        Shown::Gate("Downgrade"),
        "is held: it is older than 6.1.9, which prod runs; to deliver it: sluice approve -n apps podinfo-prod-1; to allow all such promotions: promotion.allowDowngrade",
    ),
    case(
        NOT_STARTED,
        "WaitingForGate",
        Shown::Gate("Unreported"),
        "is held: it is unknown what prod/prod runs (it has not reported yet); to deliver it: sluice approve -n apps podinfo-prod-1; to allow all such promotions: promotion.allowDowngrade",
    ),
    case(
        NOT_STARTED,
        "NotProven",
        Shown::Note,
        "6.1.8 waits: it is not proven in staging, and 6.1.7 is older; it continues when enough targets run it healthily, or a newer revision takes its place",
    ),
    case(
        NOT_STARTED,
        "Tampered",
        Shown::Note,
        "6.1.8 waits: podinfo-prod-1: this Promotion is not as Sluice recorded it: its spec was changed after it was recorded; Sluice does not deliver it. Find out who wrote it, then delete it: kubectl delete promotion -n apps podinfo-prod-1",
    ),
    case(
        NOT_STARTED,
        "TargetNotReadable",
        Shown::Note,
        "6.1.8 waits: no target can be read: there is no GitopsCluster fleet/prod: create it, or correct the target's clusterRef",
    ),
    case(
        NOT_STARTED,
        "TargetNotSettled",
        Shown::Note,
        "6.1.8 waits until it is known what prod/prod runs: it is still progressing; if this takes long, look at Flux on its cluster",
    ),
    case(
        NOT_STARTED,
        "TooManyPromotions",
        Shown::Note,
        "the next revision waits: with it, the revisions of this pipeline's promotions would have more than 16 MiB together; let open promotions end, name fewer objects or facets, or split the pipeline",
    ),
    case(
        NOT_STARTED,
        "NoWorkloads",
        Shown::Note,
        "6.1.8 waits: no workload here has the same kind and name as a workload in staging: Sluice matches workloads by kind and name; create it, label it pipelines.weave.works/pipeline, or name it in appRef or workloads of the Pipeline",
    ),
    case(
        NOT_STARTED,
        "NoWorkloads",
        Shown::Note,
        "6.1.8 waits: no target has a workload of this pipeline yet; create it, label it pipelines.weave.works/pipeline, or name it in appRef or workloads of the Pipeline",
    ),
    case(
        NOT_STARTED,
        "WaitingForWithdrawal",
        Shown::Note,
        "6.1.8 waits until Sluice has closed the change request of 6.1.7, which is in a repository or branch that the pipeline no longer uses; its promotion says: waits for https://git.example.com/fleet/pulls/7 to be merged",
    ),
    case(
        NOT_STARTED,
        "WaitingForWithdrawal",
        Shown::Note,
        "6.1.8 waits until Sluice has closed the change request of 6.1.7, which is in a repository or branch that the pipeline no longer uses; its promotion says: https://git.example.com/fleet/pulls/7 stays open: the pipeline names another repository or branch now; close it by hand",
    ),
    case(
        NOT_STARTED,
        "Retrying",
        Shown::Note,
        "6.1.8 failed: git.example.com: refused with status 409: conflict; next try at 12:02:30; to try now: sluice retry -n apps podinfo-prod-1",
    ),
    case(
        NOT_STARTED,
        "Ended",
        Shown::Note,
        "6.1.8 was rejected and will not be retried automatically: rejected by jane; sluice retry -n apps podinfo-prod-1 tries again",
    ),
    case(
        NOT_STARTED,
        "Ended",
        Shown::Note,
        "6.1.8 was promoted before, and something else runs here now; sluice retry -n apps podinfo-prod-1 promotes it again",
    ),
    case(
        NOT_STARTED,
        "RecordFailed",
        Shown::Note,
        "6.1.8 cannot be recorded as a Promotion: promotions.pipelines.weave.works is forbidden: grant the controller the verb create on promotions",
    ),
    case(
        NOT_STARTED,
        "RecordFailed",
        Shown::Note,
        "6.1.8 cannot be recorded: Promotion podinfo-prod-1 exists, and was changed after Sluice created it (it is about 6.1.7 into prod of podinfo now); delete it (kubectl delete promotion -n apps podinfo-prod-1)",
    ),
    case(
        NOT_STARTED,
        "SourceNotReadable",
        Shown::Note,
        "6.1.8 waits: Sluice cannot read the GitRepository of prod/prod, which follows branch main. It may be the branch main of https://git.example.com/fleet.git that promotions into prod commit to. Let Sluice read this GitRepository, promote into a branch of another name, or set spec.tracks to what should be promoted, for example [images]",
    ),
    case(
        NOT_STARTED,
        "PromotesItsOwnCommits",
        Shown::Note,
        "apps/podinfo tracks the revision of the source, and prod is promoted into by commits to https://git.example.com/fleet.git (branch main), which the targets read: it would promote its own commits for ever. Set spec.tracks to what should be promoted, for example [images], or promote into another branch",
    ),
    case(
        CONDITIONS,
        "ReconciliationSucceeded",
        Shown::Elsewhere("the column READY of sluice get pipelines"),
        "",
    ),
    case(CONDITIONS, "Suspended", Shown::Suspended, "observed only: spec.suspend is true"),
    case(CONDITIONS, "Progressing", Shown::Elsewhere("the health of the environment, in sluice status"), ""),
    case(
        CONDITIONS,
        "TargetNotReadable",
        Shown::Target("Unknown"),
        "cluster fleet/prod refuses the connection (tcp connect error): start its API server, or correct the address in Secret fleet/prod",
    ),
    case(
        CONDITIONS,
        "TargetFailed",
        Shown::Target("Failed"),
        "HelmRelease/podinfo: Helm install failed: timed out waiting for the condition",
    ),
    case(
        CONDITIONS,
        "StrategyRefused",
        Shown::Note,
        "promotion.pullRequest is an older form: write promotion: {strategy: {pull-request: {...}}}",
    ),
    case(
        CONDITIONS,
        "NameNotAccepted",
        Shown::Note,
        "two environments are named prod: give each a name of its own; until then nothing is promoted",
    ),
    case(
        CONDITIONS,
        "TooLarge",
        Shown::Condition("Summarized"),
        "the status of 2048 targets is too large for one object: left out are the workloads of 2048 targets that are Ready; split the pipeline",
    ),
    case(UNREADABLE, "Unreadable", Shown::Elsewhere("an event of the object, in sluice events"), ""),
    case(UNREADABLE, "StatusTooLarge", Shown::Elsewhere("an event of the object, in sluice events"), ""),
    case(UNREADABLE, "CrdsOutdated", Shown::Elsewhere("an event of the object, in sluice events"), ""),
    case(
        PROMOTION,
        "WaitingForGate",
        Shown::Gate("Approval"),
        "waits for a new approval, since earlier approvals do not count any more: sluice approve -n apps podinfo-prod-1",
    ),
    case(
        PROMOTION,
        "DeliverySlow",
        Shown::Phase("Pending"),
        "the delivery takes long (more than 30 seconds): other deliveries are first, or the server of git.example.com/fleet main does not answer",
    ),
    case(PROMOTION, "GatesOpen", Shown::Phase("Pending"), "its gates are open"),
    case(
        PROMOTION,
        "Proposed",
        Shown::Phase("Proposed"),
        "waits for https://git.example.com/fleet/pulls/7 to be merged",
    ),
    case(PROMOTION, "ChecksFailed", Shown::Elsewhere("an event of the Pipeline, in sluice events"), ""),
    case(
        PROMOTION,
        "MergedEarlier",
        Shown::Phase("Pending"),
        "https://git.example.com/fleet/pulls/7 was merged without this revision; it will be delivered again",
    ),
    case(
        PROMOTION,
        "Merged",
        Shown::Phase("Delivered"),
        "https://git.example.com/fleet/pulls/7 was merged; waits for the targets to run it",
    ),
    case(
        PROMOTION,
        "Committed",
        Shown::Phase("Delivered"),
        "committed as 1eabc9a4; waits for the targets to run it",
    ),
    case(
        PROMOTION,
        "CommitLost",
        Shown::Phase("Pending"),
        "a forced push removed commit 1eabc9a4 from its branch; the commit is made again",
    ),
    case(
        PROMOTION,
        "Notified",
        Shown::Phase("Delivered"),
        "announced by an event; waits for the targets to run it",
    ),
    case(
        PROMOTION,
        "Called",
        Shown::Phase("Delivered"),
        "https://ci.example.com accepted the call (status 202); waits for the targets to run it",
    ),
    case(
        PROMOTION,
        "Accepted",
        Shown::Phase("Delivered"),
        "the receiver has accepted it: build 7 is queued; waits for the targets to run it",
    ),
    case(
        PROMOTION,
        "Done",
        Shown::Phase("Delivered"),
        "the receiver reports that it is done: build 7; waits for the targets to run it",
    ),
    case(
        PROMOTION,
        "CallbackFailed",
        Shown::Phase("Failed"),
        "the receiver reports that it has failed: build 7: tests failed",
    ),
    case(
        PROMOTION,
        "AlreadySet",
        Shown::Phase("Delivered"),
        "every value was set already at 1eabc9a4; waits for the targets to run it",
    ),
    case(PROMOTION, "Succeeded", Shown::Phase("Succeeded"), "prod runs 6.1.8 and is healthy"),
    case(
        PROMOTION,
        "Unhealthy",
        Shown::Phase("Failed"),
        "not healthy in time: prod/prod: Deployment/podinfo: 0 of 2 replicas are available",
    ),
    case(
        PROMOTION,
        "Tampered",
        Shown::Phase("Failed"),
        "this Promotion is not as Sluice recorded it: its spec was changed after it was recorded; Sluice does not deliver it. Find out who wrote it, then delete it: kubectl delete promotion -n apps podinfo-prod-1",
    ),
    case(
        PROMOTION,
        "Rejected",
        Shown::Phase("Rejected"),
        "https://git.example.com/fleet/pulls/7 was closed and not merged",
    ),
    case(PROMOTION, "Superseded", Shown::Phase("Superseded"), "6.1.9 came before it was seen healthy"),
    case(PROMOTION, "NotWanted", Shown::Phase("Cancelled"), "the environment has no promotion any more"),
    case(PROMOTION, "NotRetried", Shown::Elsewhere("an event of the Promotion, in sluice events"), ""),
    case(PROMOTION, "Resumed", Shown::Phase("Pending"), "it is the newest revision again"),
    case(PROMOTION, "Retried", Shown::Phase("Pending"), "a person requested another try"),
    case(
        PROMOTION,
        "ApprovalOutdated",
        Shown::Gate("Downgrade"),
        "is held: it is older than 6.1.9, which was promoted into prod last; to deliver it: sluice approve -n apps podinfo-prod-1; to allow all such promotions: promotion.allowDowngrade",
    ),
];
