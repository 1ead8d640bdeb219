//! Changes of a promotion's spec by a person. The write carries the version of the promotion that was read, so that it
//! fails if the promotion has changed since.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::{Pipeline, Promotion};
use sluice_view::change::{ChangeCheck, describe};

use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::find::{self, PromotionArgs};
use crate::terminal::{Io, Symbol};

/// The field manager of writes by this command line.
pub(crate) const FIELD_MANAGER: &str = "sluice-cli";

/// How often a change is tried if other writers change the promotion at the same time.
const MAX_TRIES: usize = 5;

/// The change of a promotion by a command.
pub(crate) struct PromotionChange<'a> {
    /// Checks whether the change applies to a promotion of this pipeline. Without a pipeline, it checks the promotion
    /// alone.
    pub check: &'a dyn Fn(&Promotion, Option<&Pipeline>) -> ChangeCheck,
    /// Returns the fields of the spec to write.
    pub spec: &'a dyn Fn(&Promotion) -> Value,
}

/// A promotion that a command has changed, or that was in the wanted state already.
pub(crate) struct Changed {
    /// The promotion before the change.
    pub promotion: Promotion,
    /// Its pipeline, if it can be read.
    pub pipeline: Option<Pipeline>,
    /// False if there was nothing to do, which is printed.
    pub applied: bool,
}

/// Finds the promotion, checks the change and writes it. Reads the promotion again if another writer has changed it in the
/// meantime.
pub(crate) async fn apply(
    connection: &Connection,
    args: &PromotionArgs,
    revision: Option<&str>,
    change: &PromotionChange<'_>,
    io: &mut Io<'_>,
) -> Outcome<Changed> {
    for _ in 0..MAX_TRIES {
        let fits = |p: &Promotion| (change.check)(p, None) == ChangeCheck::Apply;
        let promotion = find::promotion(connection, args, revision, &fits, io).await?;
        let pipeline = find::pipeline_of(connection, &promotion, io).await;
        match (change.check)(&promotion, pipeline.as_ref()) {
            ChangeCheck::Apply => {}
            ChangeCheck::NothingToDo(why) => {
                io.progress(Symbol::Done, &why);
                return Ok(Changed { promotion, pipeline, applied: false });
            }
            ChangeCheck::Refuse(message, hint) => {
                return Err(Failure { exit: Exit::Refused, message, hint });
            }
        }
        match write(connection, &promotion, (change.spec)(&promotion)).await {
            Ok(()) => return Ok(Changed { promotion, pipeline, applied: true }),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(connection.explain(error)),
        }
    }
    Err(Failure::new(Exit::Error, "the promotion keeps changing: try again"))
}

/// Merges fields into the spec of a promotion, unless the promotion has changed since it was read.
pub(crate) async fn write(connection: &Connection, promotion: &Promotion, spec: Value) -> kube::Result<()> {
    let namespace = promotion.namespace().unwrap_or_else(|| connection.namespace.clone());
    let api: Api<Promotion> = Api::namespaced(connection.client.clone(), &namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = json!({"metadata": {"resourceVersion": promotion.resource_version()}, "spec": spec});
    api.patch(&promotion.name_any(), &params, &Patch::Merge(patch)).await.map(drop)
}

/// Prints a note if the pipeline of a changed promotion is suspended. Returns true if it is.
pub(crate) fn note_suspension(pipeline: Option<&Pipeline>, io: &mut Io<'_>) -> bool {
    let Some(pipeline) = pipeline.filter(|pipeline| pipeline.spec.suspend) else { return false };
    let name = pipeline.name_any();
    let note =
        format!("pipeline {name} is suspended: nothing is done until it is resumed: sluice resume {name}");
    io.progress(Symbol::Waiting, &note);
    true
}

/// Refuses a promotion of another revision than `--revision` names.
pub(crate) fn refuse_other_revision(promotion: &Promotion, revision: Option<&str>) -> Option<ChangeCheck> {
    let meant = revision.filter(|meant| *meant != promotion.spec.revision)?;
    let message = format!("{meant} is not what waits here: {} is {}", describe(promotion), promotion.phase());
    let hint = format!("see what waits now: sluice get promotions --pipeline {}", promotion.spec.pipeline);
    Some(ChangeCheck::Refuse(message, Some(hint)))
}
