//! `sluice approve`: approves a pending promotion.

use clap::Args;
use sluice_view::change::{approve, describe};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::{Exit, Failure, Outcome};
use crate::find::PromotionArgs;
use crate::promotion_change::{Changed, PromotionChange, apply, note_suspension, refuse_other_revision};
use crate::terminal::{Io, Symbol};
use crate::user_name::user_name;
use crate::wait::WaitFlags;

/// Arguments of `sluice approve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # Which promotions wait for an approval?
  sluice get promotions -A -o wide

  # Approve one: by the pipeline and the environment, or by its own name
  sluice approve podinfo --environment prod -n apps
  sluice approve podinfo-prod-5f1c9a -n apps

  # In a script: only if exactly this revision waits
  sluice approve podinfo --revision 6.1.8 -n apps

  # Approve it, and wait until prod runs it, for at most half an hour
  sluice approve podinfo --environment prod -n apps --wait --timeout 30m

An approval is in your own name, as the API server reports it (kubectl auth whoami). An approval needs the verbs get, \
list, patch and approve on promotions.pipelines.weave.works, and watch with --wait. The ClusterRole sluice-approver has \
them.

Exit codes with --wait: 0 if the promotion has succeeded, 8 if it has ended otherwise, 9 if the time is up. 10 means that \
it needs a person again, for example to merge its change request.")]
pub struct Approve {
    #[command(flatten)]
    which: PromotionArgs,
    /// Refuse if another revision waits
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Removed: approvals are in the name of the user who gives them
    #[arg(long, value_name = "NAME", hide = true)]
    by: Option<String>,
    #[command(flatten)]
    wait: WaitFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Approve, io: &mut Io<'_>) -> Outcome {
    if args.by.is_some() {
        let message = "--by was removed: an approval is in the name of the user who gives it";
        return Err(Failure::new(Exit::Usage, message).hinted(
            "leave --by out; a bot approves as its own user, or as another with --as, if RBAC allows it",
        ));
    }
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let by = user_name(&connection).await?;
    let revision = args.revision.as_deref();
    let change = PromotionChange {
        check: &|promotion, _| {
            refuse_other_revision(promotion, revision).unwrap_or_else(|| approve::check(promotion))
        },
        spec: &|promotion| approve::spec(promotion, &by),
    };
    let Changed { promotion, pipeline, applied } =
        apply(&connection, &args.which, revision, &change, io).await?;
    if applied {
        io.progress(Symbol::Done, &format!("approved {} (as {by})", describe(&promotion)));
    }
    let suspended = (applied || args.wait.is_set()) && note_suspension(pipeline.as_ref(), io);
    args.wait.until_ended(&connection, &[promotion], suspended, io).await
}
