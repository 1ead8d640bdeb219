//! `-w`: in a terminal a table that is updated in place, until Ctrl-C. Into a pipe, the table once, then every changed row.
//! After an interruption of the connection, the rows that have changed in the meantime are printed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::pin;

use futures::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use sluice_view::object_name::ObjectName;

use super::fetch::{api_with, item_from, key, whole};
use super::listing::{Listing, Query, none_found};
use super::screen::Screen;
use crate::exit::Outcome;
use crate::find;
use crate::live_output::LiveOutput;
use crate::output::{self, DataFormat, Format};
use crate::table::{Row, Table, same};
use crate::terminal::{Io, Symbol};
use crate::watching::{self, Report, watch_failure};

/// What was printed last as lines.
struct WatchView<'a, L: Listing> {
    query: &'a Query<'a, L>,
    table: Table,
    headed: bool,
    last: BTreeMap<ObjectName, Last>,
}

/// What was last printed for one object.
#[derive(Default)]
struct Last {
    version: Option<String>,
    rows: Vec<Row>,
}

/// Where the objects are shown.
enum Shown<'a, L: Listing> {
    Lines(WatchView<'a, L>),
    Screen(Screen<'a, L>),
}

impl<L: Listing> Shown<'_, L> {
    /// Replaces all objects: at the start, and after an interruption.
    fn replace(&mut self, objects: Vec<DynamicObject>, io: &mut Io<'_>) -> Outcome {
        match self {
            Shown::Lines(lines) => lines.replace(objects, io),
            Shown::Screen(screen) => screen.replace(objects),
        }
    }

    fn apply(&mut self, object: DynamicObject, io: &mut Io<'_>) -> Outcome {
        match self {
            Shown::Lines(lines) => lines.apply(vec![object], io),
            Shown::Screen(screen) => screen.apply(object),
        }
    }

    fn delete(&mut self, key: &ObjectName, io: &mut Io<'_>) {
        match self {
            Shown::Lines(lines) => lines.delete(key, io),
            Shown::Screen(screen) => screen.delete(key),
        }
    }
}

pub(super) async fn run<L: Listing>(query: &Query<'_, L>, io: &mut Io<'_>) -> Outcome {
    let Query { listing, view, connection } = query;
    let mut config = watcher::Config::default().any_semantic();
    config.label_selector.clone_from(&view.selector);
    if let Some(name) = listing.name() {
        config = config.fields(&format!("metadata.name={name}"));
    }
    let api = |client| api_with(client, query);
    let mut reports = watching::reports(connection, api, config);
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let mut live = LiveOutput::new(matches!(view.output, Format::Table | Format::Wide), io);
    let mut shown = shown(query, live.is_screen(), io.color);
    let (mut initial, mut started, mut interruption) = (Vec::new(), false, None);
    loop {
        let report = tokio::select! {
            _ = &mut interrupt => return Ok(()),
            () = live.due(), if started && live.is_screen() => {
                if let Shown::Screen(screen) = &shown {
                    live.draw(interruption.as_deref(), io, |size| screen.lines(size))?;
                }
                continue;
            }
            report = reports.next() => report,
        };
        match report {
            None => return Ok(()),
            Some(Err(error)) => return Err(watch_failure(error, connection)),
            Some(Ok(Report::Interrupted(error))) if !started => return Err(watch_failure(error, connection)),
            Some(Ok(Report::Interrupted(error))) => {
                interruption = Some(watching::interruption(error, connection));
            }
            Some(Ok(Report::Resumed)) => interruption = None,
            Some(Ok(Report::Event(event))) => match event {
                Event::Init => initial.clear(),
                Event::InitApply(object) => initial.push(object),
                Event::InitDone => {
                    let objects = std::mem::take(&mut initial);
                    if objects.is_empty() && !started {
                        none_at_start(query, &live, io).await?;
                    }
                    shown.replace(objects, io)?;
                    started = true;
                }
                Event::Apply(object) => shown.apply(object, io)?,
                Event::Delete(object) => shown.delete(&key(&object), io),
            },
        }
        match live.is_screen() {
            true => live.changed(),
            false => live.note(interruption.as_deref(), io),
        }
    }
}

fn shown<'a, L: Listing>(query: &'a Query<'a, L>, is_screen: bool, color: bool) -> Shown<'a, L> {
    if is_screen {
        return Shown::Screen(Screen::new(query, color));
    }
    let table = Table::new(query.listing.columns(query.view.shape()), color);
    Shown::Lines(WatchView { query, table, headed: query.view.no_headers, last: BTreeMap::new() })
}

/// Says that there are no objects yet. A named one must exist.
async fn none_at_start<L: Listing>(query: &Query<'_, L>, live: &LiveOutput, io: &mut Io<'_>) -> Outcome {
    if let Some(name) = query.listing.name() {
        return Err(find::missing::<L::Item>(query.connection, name, query.view.all_namespaces).await);
    }
    if !live.is_screen() {
        io.progress(Symbol::Waiting, &none_found(query));
    }
    Ok(())
}

impl<L: Listing> WatchView<'_, L> {
    /// Replaces all objects: at the start, and after an interruption.
    fn replace(&mut self, objects: Vec<DynamicObject>, io: &mut Io<'_>) -> Outcome {
        let there: Vec<ObjectName> = objects.iter().map(key).collect();
        let gone: Vec<ObjectName> = self.last.keys().filter(|k| !there.contains(k)).cloned().collect();
        gone.iter().for_each(|k| self.delete(k, io));
        self.apply(objects, io)
    }

    fn delete(&mut self, key: &ObjectName, io: &mut Io<'_>) {
        if self.last.remove(key).is_some() {
            io.progress(Symbol::Action, &format!("{key} was deleted"));
        }
    }

    /// Prints the rows that these objects change.
    fn apply(&mut self, objects: Vec<DynamicObject>, io: &mut Io<'_>) -> Outcome {
        let (mut values, mut seen) = (Vec::new(), Vec::new());
        for object in objects {
            let (key, version) = (key(&object), object.resource_version());
            let value = whole(object)?;
            let s = item_from::<L>(&value)?;
            let last = self.last.entry(key);
            if !self.query.listing.wants(&s)
                || matches!(&last, Entry::Occupied(o) if o.get().version == version)
            {
                continue;
            }
            last.or_default().version = version;
            values.extend(self.query.listing.documents(value, &s));
            seen.push(s);
        }
        self.query.listing.sort(&mut seen);
        match (self.query.view.output, self.query.view.output.data()) {
            (_, Some(format)) => documents(&values, format, io)?,
            (Format::Name, None) => {
                let mut names =
                    seen.iter().flat_map(|s| self.query.listing.printed_names(s, self.query.view));
                names.try_for_each(|name| io.copyable_line(name))?;
            }
            (_, None) => self.lines(&seen, io)?,
        }
        Ok(io.flush()?)
    }

    fn lines(&mut self, seen: &[L::Item], io: &mut Io<'_>) -> Outcome {
        let rows = self.changed(seen);
        if rows.is_empty() {
            return Ok(());
        }
        self.table.fit(&rows);
        if !std::mem::replace(&mut self.headed, true) {
            self.table.header(io.out)?;
        }
        Ok(self.table.rows(&rows, io.out)?)
    }

    fn changed(&mut self, seen: &[L::Item]) -> Vec<Row> {
        let (shape, now) = (self.query.view.shape(), Timestamp::now());
        let mut changed = Vec::new();
        for s in seen {
            let rows = self.query.listing.rows(s, shape, now);
            let last = self.last.entry(key(s)).or_default();
            changed.extend(rows.iter().filter(|row| !last.rows.iter().any(|l| same(l, row))).cloned());
            last.rows = rows;
        }
        changed
    }
}

fn documents(values: &[Value], format: DataFormat, io: &mut Io<'_>) -> Outcome {
    for value in values {
        if matches!(format, DataFormat::Yaml) {
            writeln!(io.out, "---")?;
        }
        output::data(format, value, io.out)?;
    }
    Ok(())
}
