//! `sluice get`: reads objects once or watches them, and shows them in the requested form. Each kind has its own file with
//! a [`Listing`].

mod fetch;
mod filter;
mod flags;
mod listing;
mod pipelines;
mod promotions;
mod screen;
mod target_lines;
mod targets;
mod watch;

pub(crate) use target_lines::TargetLine;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use self::fetch::item_from;
use self::flags::View;
use self::listing::{Listing, Query, none_found};
use crate::cluster_flags::ClusterFlags;
use crate::connection::API_CALL_TIMEOUT;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, DataFormat, Format};
use crate::table::{Row, Table};
use crate::terminal::{Io, Symbol};

/// Arguments of `sluice get`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # The pipelines of the current namespace, and of all namespaces
  sluice get pipelines
  sluice get pipelines -A

  # Those of one team
  sluice get pipelines -A -l team=web

  # The status of each, one after the other
  sluice get pipelines -A -o name | xargs -L1 sluice status

  # What runs where
  sluice get targets podinfo -n apps

  # What was and is being promoted, as it happens
  sluice get promotions --pipeline podinfo -n apps -w")]
#[command(subcommand_value_name = "pipelines|promotions|targets")]
pub struct Get {
    #[command(subcommand)]
    what: GetCommand,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    cluster: ClusterFlags,
}

#[derive(Subcommand, Clone, Debug)]
enum GetCommand {
    #[command(visible_aliases = ["pipeline", "pl"])]
    Pipelines(pipelines::Pipelines),
    #[command(visible_aliases = ["promotion", "promo"])]
    Promotions(promotions::Promotions),
    #[command(visible_aliases = ["target"])]
    Targets(targets::Targets),
}

/// Runs `sluice get`.
pub(crate) async fn run(args: &Get, io: &mut Io<'_>) -> Outcome {
    match &args.what {
        GetCommand::Pipelines(listing) => show(listing, args, io).await,
        GetCommand::Promotions(listing) => show(listing, args, io).await,
        GetCommand::Targets(listing) => show(listing, args, io).await,
    }
}

async fn show<L: Listing>(listing: &L, args: &Get, io: &mut Io<'_>) -> Outcome {
    let view = &args.view;
    if let (Some(name), Some(_)) = (listing.name(), &view.selector) {
        let why = format!("{name} is one by its name, and --selector picks many");
        return Err(Failure::new(Exit::Usage, why).hinted("leave one of them out"));
    }
    let query = Query { listing, view, connection: &args.cluster.open(Some(API_CALL_TIMEOUT))? };
    if view.watch {
        return watch::run(&query, io).await;
    }
    if let Some(format) = view.output.data() {
        return documents(&query, format, io).await;
    }
    let seen = read(&query).await?;
    if let (Some(filter), []) = (listing.filter(), &seen[..]) {
        filter.check(view, query.connection).await?;
    }
    if view.output == Format::Name {
        let mut names = seen.iter().flat_map(|s| listing.printed_names(s, view));
        return Ok(names.try_for_each(|name| io.copyable_line(name))?);
    }
    table(&query, &seen, io)
}

/// Reads the objects that a listing shows, in its order.
async fn read<L: Listing>(query: &Query<'_, L>) -> Outcome<Vec<L::Item>> {
    let mut seen = None;
    if query.listing.name().is_none() && !L::CELLS.is_empty() {
        seen = fetch::columns(query).await?;
    }
    let mut seen = match seen {
        Some(seen) => seen,
        None => fetch::objects(query).await?.iter().map(item_from::<L>).collect::<Outcome<_>>()?,
    };
    seen.retain(|s| query.listing.wants(s));
    query.listing.sort(&mut seen);
    Ok(seen)
}

fn table<L: Listing>(query: &Query<'_, L>, seen: &[L::Item], io: &mut Io<'_>) -> Outcome {
    let Query { listing, view, .. } = query;
    let (shape, now) = (view.shape(), Timestamp::now());
    let rows: Vec<Row> = seen.iter().flat_map(|s| listing.rows(s, shape, now)).collect();
    if rows.is_empty() {
        io.note(&none_found(query));
        return Ok(());
    }
    let mut table = Table::new(listing.columns(shape), io.color);
    let rows = table.fit_terminal(rows, L::OPTIONAL, io);
    if !view.no_headers {
        table.header(io.out)?;
    }
    table.rows(&rows, io.out)?;
    io.flush()?;
    if let Some(warning) = listing.warning(seen) {
        io.progress(Symbol::Failed, &warning);
    }
    Ok(())
}

async fn documents<L: Listing>(query: &Query<'_, L>, format: DataFormat, io: &mut Io<'_>) -> Outcome {
    let mut documents = Vec::new();
    for value in fetch::objects(query).await? {
        let seen = item_from::<L>(&value)?;
        if query.listing.wants(&seen) {
            documents.extend(query.listing.documents(value, &seen));
        }
    }
    let named = L::NAMES_OBJECTS && query.listing.name().is_some();
    Ok(output::data(format, &output::list(documents, named), io.out)?)
}
