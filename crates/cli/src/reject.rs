//! `sluice reject`: ends a promotion that is not delivered yet. The controller closes its change request.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use sluice_view::change::{describe, reject};

use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::Outcome;
use crate::find::PromotionArgs;
use crate::promotion_change::{PromotionChange, apply, note_suspension, refuse_other_revision};
use crate::terminal::{Io, Symbol};
use crate::user_name::user_name;

/// Arguments of `sluice reject`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  sluice reject podinfo-prod-5f1c9a -n apps --reason 'migration is not tested'
  sluice reject podinfo --environment prod -n apps --reason 'not before Monday'

The promotion ends as Rejected, and its change request is closed with the reason. The revision is not promoted again \
until somebody retries it (sluice retry); newer revisions are. A rejection is in your own name, as the API server reports \
it, and needs the same verbs as an approval: the ClusterRole sluice-approver.")]
pub struct Reject {
    #[command(flatten)]
    which: PromotionArgs,
    /// The reason, which the promotion and its change request show
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Refuse if another revision is promoted
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) async fn run(args: &Reject, io: &mut Io<'_>) -> Outcome {
    let connection = args.cluster.open(Some(API_CALL_TIMEOUT))?;
    let by = user_name(&connection).await?;
    let revision = args.revision.as_deref();
    let change = PromotionChange {
        check: &|promotion, _| {
            refuse_other_revision(promotion, revision).unwrap_or_else(|| reject::check(promotion))
        },
        spec: &|promotion| reject::spec(promotion, &by, &args.reason),
    };
    let changed = apply(&connection, &args.which, revision, &change, io).await?;
    if changed.applied {
        io.progress(Symbol::Done, &format!("rejected {} (as {by})", describe(&changed.promotion)));
        note_suspension(changed.pipeline.as_ref(), io);
    }
    Ok(())
}
