//! `sluice get`: reads a kind once or keeps watching it, and shows it in the form asked for. What is
//! particular to a kind is in its own file; here is what they share.

mod lines;
mod pipelines;
mod promotions;
mod read;
mod targets;
mod watch;

use std::fmt::Debug;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::api::{ListParams, ObjectMeta};
use kube::core::NamespaceScope;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::Pipeline;

use self::read::{lean_metadata, objects, seen_in};
use crate::connect::{Connect, Connection};
use crate::exit::{Exit, Failure, Outcome};
use crate::find;
use crate::objects;
use crate::output::{self, DataFormat, Format};
use crate::sign::{Io, Sign};
use crate::suggest::instead;
use crate::table::{Row, Table};

/// Arguments of `sluice get`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # The pipelines of the current namespace, and of all namespaces
  sluice get pipelines
  sluice get pipelines -A

  # Those of one team
  sluice get pipelines -A -l team=web

  # What runs where
  sluice get targets podinfo -n apps

  # What was and is being promoted, as it happens
  sluice get promotions --pipeline podinfo -n apps -w")]
#[command(subcommand_value_name = "pipelines|promotions|targets")]
pub struct Get {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    #[command(visible_aliases = ["pipeline", "pl"])]
    Pipelines(pipelines::Pipelines),
    #[command(visible_aliases = ["promotion", "promo"])]
    Promotions(promotions::Promotions),
    #[command(visible_aliases = ["target"])]
    Targets(targets::Targets),
}

/// How to show it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "View")]
pub(crate) struct View {
    /// Look in all namespaces
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Only those with these labels, such as app=podinfo,team!=web; for targets, the pipelines' labels
    #[arg(short = 'l', long, value_name = "LABELS", global = true)]
    selector: Option<String>,
    /// What to print: table, wide, json, yaml or name
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        global = true,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    output: Format,
    /// Keep watching, and print what changes; Ctrl-C ends it
    #[arg(short, long, global = true)]
    watch: bool,
    /// Leave out the line with the names of the columns
    #[arg(long, visible_alias = "no-header", global = true)]
    no_headers: bool,
}

/// Which columns a table has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// More of them.
    pub wide: bool,
    /// The namespace too.
    pub namespaces: bool,
}

impl View {
    fn shape(&self) -> Shape {
        Shape { wide: self.output == Format::Wide, namespaces: self.all_namespaces }
    }

    /// What a list is asked for.
    fn params(&self) -> ListParams {
        ListParams { label_selector: self.selector.clone(), ..ListParams::default().match_any() }
    }
}

/// Said of what has no status.
const NOT_SEEN: &str = "not looked at yet: is sluice controller running?";

/// One thing that `get` shows.
pub(crate) trait Listing {
    /// The object it is read from, with no more fields than the table shows.
    type Seen: Resource<DynamicType = (), Scope: NamespaceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static;

    /// The columns of the kind's definition that hold all a table shows; none where that does not
    /// suffice.
    const CELLS: &'static [&'static str] = &[];

    /// An object from an API server's row with [`Listing::CELLS`], in their order.
    fn from_cells(_metadata: ObjectMeta, _cells: Vec<String>) -> Option<Self::Seen> {
        None
    }
    /// The one object that was asked for.
    fn name(&self) -> Option<&str>;
    /// What is shown, for sentences: `pipelines`.
    fn shows(&self) -> &'static str;
    /// Which pipeline and environment it is narrowed to, if any.
    fn narrowed(&self) -> Option<Narrowed<'_>> {
        None
    }
    /// Whether an object belongs here.
    fn wants(&self, _seen: &Self::Seen) -> bool {
        true
    }
    /// Puts the objects in the order in which they are shown.
    fn sort(&self, _seen: &mut Vec<Self::Seen>) {}
    /// The names of the columns.
    fn columns(&self, shape: Shape) -> Vec<&'static str>;
    /// The lines of one object.
    fn rows(&self, seen: &Self::Seen, shape: Shape, now: Timestamp) -> Vec<Row>;
    /// What `-o json` and `-o yaml` show of one object: itself, where nothing else is said.
    fn documents(&self, object: Value, _seen: &Self::Seen) -> Vec<Value> {
        vec![object]
    }
    /// What `-o name` shows of one object.
    fn names(&self, seen: &Self::Seen) -> Vec<String> {
        let kind = Self::Seen::kind(&()).to_ascii_lowercase();
        vec![format!("{kind}.{}/{}", sluice_api::GROUP, seen.name_any())]
    }
    /// An object that cannot be read: it is shown with the error, and hides no other.
    fn unreadable(metadata: ObjectMeta, error: String) -> Self::Seen;
    /// What is said at the end, to the person: what he should not miss.
    fn warning(&self, _seen: &[Self::Seen]) -> Option<String> {
        None
    }
}

/// What a listing is narrowed to by flags.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Narrowed<'a> {
    pipeline: Option<&'a str>,
    environment: Option<&'a str>,
}

impl Narrowed<'_> {
    /// Fails if there is no such pipeline, or if it has no such environment: a typing error is not "none found".
    async fn check(&self, view: &View, connection: &Connection) -> Outcome {
        let Some(name) = self.pipeline else { return Ok(()) };
        let namespace = (!view.all_namespaces).then_some(connection.namespace.as_str());
        let params = ListParams::default().match_any().fields(&format!("metadata.name={name}"));
        // A user who may not read pipelines still sees promotions.
        let Ok(found) = objects::list::<Pipeline>(connection, namespace, &params).await else {
            return Ok(());
        };
        if let Some(bad) = found.unreadable.first() {
            return Err(objects::failure(&objects::said::<Pipeline, _>(bad)));
        }
        if found.items.is_empty() {
            return Err(find::missing::<Pipeline>(connection, name, view.all_namespaces).await);
        }
        let known = found.items.into_iter().flat_map(|p| p.spec.environments).map(|e| e.name);
        let known: Vec<String> = known.collect();
        match self.environment {
            // A promotion into one target is `prod/eu`.
            Some(wanted) if !known.iter().any(|e| *e == wanted || wanted.starts_with(&format!("{e}/"))) => {
                let end = instead(wanted, &known, "environments", &format!("pipeline {name}"));
                let why = format!("pipeline {name} has no environment {wanted}{end}");
                Err(Failure::new(Exit::NotFound, why))
            }
            _ => Ok(()),
        }
    }

    fn sentence(&self) -> String {
        let pipeline = self.pipeline.map(|name| format!(" of pipeline {name}")).unwrap_or_default();
        let environment = self.environment.map(|name| format!(" into {name}")).unwrap_or_default();
        pipeline + &environment
    }
}

/// The cells as so many fields.
fn fields<const N: usize>(cells: Vec<String>) -> [String; N] {
    let mut cells = cells.into_iter();
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

/// Runs `sluice get`.
pub(crate) async fn run(args: &Get, io: &mut Io<'_>) -> Outcome {
    match &args.what {
        What::Pipelines(listing) => show(listing, args, io).await,
        What::Promotions(listing) => show(listing, args, io).await,
        What::Targets(listing) => show(listing, args, io).await,
    }
}

async fn show<L: Listing>(listing: &L, args: &Get, io: &mut Io<'_>) -> Outcome {
    let view = &args.view;
    if let (Some(name), Some(_)) = (listing.name(), &view.selector) {
        return Err(Failure::new(
            Exit::Usage,
            format!("{name} is one by its name, and --selector picks many"),
        )
        .hinted("leave one of them out"));
    }
    let patience = (!view.watch).then_some(Duration::from_secs(30));
    let connection = args.connect.open(patience)?;
    if view.watch {
        return watch::run(listing, view, &connection, io).await;
    }
    match view.output {
        Format::Table | Format::Wide => {
            let seen = see(listing, view, &connection).await?;
            if let (Some(narrowed), []) = (listing.narrowed(), &seen[..]) {
                narrowed.check(view, &connection).await?;
            }
            table(listing, view, &seen, &connection, io)
        }
        Format::Name => {
            let seen = see(listing, view, &connection).await?;
            if let (Some(narrowed), []) = (listing.narrowed(), &seen[..]) {
                narrowed.check(view, &connection).await?;
            }
            let mut names = seen.iter().flat_map(|s| listing.names(s));
            Ok(names.try_for_each(|name| io.line(name))?)
        }
        Format::Json => documents(listing, view, DataFormat::Json, &connection, io).await,
        Format::Yaml => documents(listing, view, DataFormat::Yaml, &connection, io).await,
    }
}

/// What the listing wants of what there is, in its order.
async fn see<L: Listing>(listing: &L, view: &View, connection: &Connection) -> Outcome<Vec<L::Seen>> {
    let mut seen = None;
    if listing.name().is_none() && !L::CELLS.is_empty() {
        seen = read::columns::<L>(connection, view).await?;
    }
    let mut seen = match seen {
        Some(seen) => seen,
        None if listing.name().is_none() => read::all::<L>(connection, view).await?,
        None => {
            let objects = objects(connection, listing, view).await?;
            objects.iter().map(seen_in::<L>).collect::<Outcome<_>>()?
        }
    };
    seen.retain(|s| listing.wants(s));
    listing.sort(&mut seen);
    Ok(seen)
}

fn table<L: Listing>(
    listing: &L,
    view: &View,
    seen: &[L::Seen],
    connection: &Connection,
    io: &mut Io<'_>,
) -> Outcome {
    let (shape, now) = (view.shape(), Timestamp::now());
    let rows: Vec<Row> = seen.iter().flat_map(|s| listing.rows(s, shape, now)).collect();
    if rows.is_empty() {
        io.note(&nothing(listing, view, connection));
        return Ok(());
    }
    let mut table = Table::new(listing.columns(shape), io.color);
    table.fit(&rows);
    if !view.no_headers {
        table.header(io.out)?;
    }
    table.rows(&rows, io.out)?;
    io.flush()?;
    if let Some(warning) = listing.warning(seen) {
        io.tell(Sign::Failed, &warning);
    }
    Ok(())
}

async fn documents<L: Listing>(
    listing: &L,
    view: &View,
    format: DataFormat,
    connection: &Connection,
    io: &mut Io<'_>,
) -> Outcome {
    let mut documents = Vec::new();
    for value in objects(connection, listing, view).await? {
        let seen = seen_in::<L>(&value)?;
        if listing.wants(&seen) {
            documents.extend(listing.documents(value, &seen));
        }
    }
    let named = listing.name().is_some();
    Ok(output::data(format, &output::list(documents, named), io.out)?)
}

fn nothing<L: Listing>(listing: &L, view: &View, connection: &Connection) -> String {
    let labels = view.selector.as_ref().map(|labels| format!(" with labels {labels}")).unwrap_or_default();
    let labels = listing.narrowed().map(|narrowed| narrowed.sentence()).unwrap_or_default() + &labels;
    match view.all_namespaces {
        true => format!("no {}{labels} found", listing.shows()),
        false => {
            let here = &connection.namespace;
            format!("no {}{labels} found in namespace {here}; -A looks in all of them", listing.shows())
        }
    }
}

/// A revision with its hashes cut to eight letters, as Flux shows it: `main@sha1:1eabc9a4`.
fn short(version: &str) -> String {
    let cut = |part: &str| match part.len() {
        40 | 64 if part.bytes().all(|b| b.is_ascii_hexdigit()) => part[..8].to_owned(),
        _ => part.to_owned(),
    };
    version.split(':').map(cut).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_cut_as_flux_cuts_them() {
        for (whole, cut) in [
            ("main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f", "main@sha1:1eabc9a4"),
            ("6.1.8", "6.1.8"),
            (
                "6.1.8@sha256:0cc9a8446c95009ef382f5eade883a67c257f77d50f84e78ecef2aac9428d1e5",
                "6.1.8@sha256:0cc9a844",
            ),
        ] {
            assert_eq!(short(whole), cut);
        }
    }
}
