//! `sluice status -w`: the screen as it changes. In a terminal it is updated in place; into a pipe, each changed
//! environment is a line.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::lenient;
use sluice_api::{Pipeline, Promotion};
use sluice_core::revision::shortened;
use sluice_view::explain::explain;
use sluice_view::pipeline_screen::{PipelineScreen, status};

use super::drawing::Drawing;
use super::screen::Page;
use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::find::missing;
use crate::output::{DataFormat, view};
use crate::table::{Cell, Row, Table, same};
use crate::terminal::{Io, Symbol};
use crate::watching::{WATCH_SECONDS, is_refused, watch_failure};

/// How often the ages on the screen of a terminal are updated.
const TICK: Duration = Duration::from_secs(1);

/// An event of one of the two watches.
type WatchEvent = kube::runtime::watcher::Result<Event<DynamicObject>>;

/// What the watches have reported.
#[derive(Default)]
struct Observed {
    pipeline: Option<Pipeline>,
    promotions: BTreeMap<String, Promotion>,
    /// The names in the list that is being received.
    listed: BTreeSet<String>,
    /// True after each watch has listed its objects once.
    lists: (bool, bool),
    /// The last interruption, until the next event.
    interruption: Option<String>,
}

/// What was shown last.
struct Shown<'a, 'b> {
    output: Option<DataFormat>,
    drawing: Drawing,
    table: Table,
    rows: BTreeMap<String, Row>,
    is_headed: bool,
    document: Option<PipelineScreen>,
    io: &'a mut Io<'b>,
    /// The last interruption that was printed.
    interruption: Option<String>,
}

pub(super) async fn run(
    connection: &Connection,
    name: &str,
    output: Option<DataFormat>,
    io: &mut Io<'_>,
) -> Outcome {
    let by_name = Config::default().fields(&format!("metadata.name={name}"));
    let mut pipelines = pin!(events::<Pipeline>(connection, by_name));
    let mut promotions = pin!(events::<Promotion>(connection, Config::default()));
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let mut ticks = tokio::time::interval(TICK);
    let is_screen = io.terminal.is_some() && output.is_none();
    let mut observed = Observed::default();
    let mut shown = Shown {
        output,
        drawing: Drawing::default(),
        table: Table::new(
            vec!["ENVIRONMENT", "RUNS", "HEALTH", "SINCE", "INCOMING", "STATE", "WHY"],
            io.color,
        ),
        rows: BTreeMap::new(),
        is_headed: false,
        document: None,
        io,
        interruption: None,
    };
    loop {
        tokio::select! {
            _ = &mut interrupt => return Ok(()),
            _ = ticks.tick(), if is_screen => {}
            event = pipelines.next() => observed.pipeline_event(event, name, connection).await?,
            event = promotions.next() => observed.promotion_event(event, name, connection)?,
        }
        let Some(pipeline) = observed.pipeline.as_ref().filter(|_| observed.lists == (true, true)) else {
            continue;
        };
        let promotions: Vec<Promotion> = observed.promotions.values().cloned().collect();
        shown.show(pipeline, &promotions, observed.interruption.as_deref())?;
    }
}

/// Returns the events of a kind in the namespace.
fn events<K: Resource<DynamicType = ()>>(
    connection: &Connection,
    config: Config,
) -> impl Stream<Item = WatchEvent> + use<K> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(connection.client.clone(), &connection.namespace, &resource);
    watcher(api, config.timeout(WATCH_SECONDS)).default_backoff()
}

/// Reads an object, without the unreadable parts of a status.
fn read<K: DeserializeOwned>(object: DynamicObject) -> Result<K, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    lenient::from_value(value).map(|read| read.object).map_err(|error| error.to_string())
}

impl Observed {
    async fn pipeline_event(
        &mut self,
        event: Option<WatchEvent>,
        name: &str,
        connection: &Connection,
    ) -> Outcome {
        let Some(event) = self.interrupted(event, connection)? else { return Ok(()) };
        match event {
            Event::Init => self.pipeline = None,
            Event::Apply(object) | Event::InitApply(object) => {
                let cannot =
                    |error| Failure::new(Exit::Error, format!("pipeline {name} cannot be read: {error}"));
                self.pipeline = Some(read(object).map_err(cannot)?);
            }
            Event::InitDone if self.pipeline.is_some() => self.lists.0 = true,
            Event::InitDone if !self.lists.0 => {
                return Err(missing::<Pipeline>(connection, name, false).await);
            }
            Event::InitDone | Event::Delete(_) => {
                return Err(Failure::new(Exit::NotFound, format!("pipeline {name} was deleted")));
            }
        }
        Ok(())
    }

    fn promotion_event(
        &mut self,
        event: Option<WatchEvent>,
        pipeline: &str,
        connection: &Connection,
    ) -> Outcome {
        let Some(event) = self.interrupted(event, connection)? else { return Ok(()) };
        match event {
            Event::Init => self.listed.clear(),
            Event::Apply(object) | Event::InitApply(object) => {
                let name = object.name_any();
                self.listed.insert(name.clone());
                match read::<Promotion>(object) {
                    Ok(promotion) if promotion.spec.pipeline == pipeline => {
                        self.promotions.insert(name, promotion);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        self.interruption = Some(format!("promotion {name} cannot be read: {error}"))
                    }
                }
            }
            Event::InitDone => {
                self.promotions.retain(|name, _| self.listed.contains(name));
                self.lists.1 = true;
            }
            Event::Delete(object) => drop(self.promotions.remove(&object.name_any())),
        }
        Ok(())
    }

    /// Returns the event, or stores why there is none.
    fn interrupted(
        &mut self,
        event: Option<WatchEvent>,
        connection: &Connection,
    ) -> Outcome<Option<Event<DynamicObject>>> {
        match event {
            None => Err(Failure::new(Exit::Error, "the watch has ended")),
            Some(Ok(event)) => {
                self.interruption = None;
                Ok(Some(event))
            }
            Some(Err(error)) if self.lists != (true, true) || is_refused(&error) => {
                Err(watch_failure(error, connection))
            }
            Some(Err(error)) => {
                self.interruption = Some(format!("{}; trying again", watch_failure(error, connection)));
                Ok(None)
            }
        }
    }
}

impl Shown<'_, '_> {
    /// Shows what has changed.
    fn show(&mut self, pipeline: &Pipeline, promotions: &[Promotion], interruption: Option<&str>) -> Outcome {
        let now = Timestamp::now();
        let screen = status(pipeline, promotions, now);
        match (self.output, self.io.current_size()) {
            (Some(format), _) => self.document(format, screen)?,
            (None, Some(size)) => {
                let page = Page { now, color: self.io.color, width: Some(size.width) };
                let mut lines = page.lines(&screen)?;
                lines
                    .extend(interruption.map(|why| page.note(&format!("{} {why}", Symbol::Waiting.glyph()))));
                let text = self.drawing.update(lines, size);
                self.io.out.write_all(text.as_bytes())?;
            }
            (None, None) if self.is_interrupted(interruption) => {}
            (None, None) => self.changed_rows(pipeline, promotions, &screen, now)?,
        }
        Ok(self.io.flush()?)
    }

    /// Prints a new interruption. Returns true if there is one.
    fn is_interrupted(&mut self, interruption: Option<&str>) -> bool {
        if self.interruption.as_deref() != interruption {
            self.interruption = interruption.map(String::from);
            interruption.iter().for_each(|why| self.io.progress(Symbol::Waiting, why));
        }
        interruption.is_some()
    }

    fn document(&mut self, format: DataFormat, screen: PipelineScreen) -> Outcome {
        if self.document.as_ref() == Some(&screen) {
            return Ok(());
        }
        if matches!(format, DataFormat::Yaml) {
            self.io.line("---")?;
        }
        view(format, "PipelineStatus", &screen, self.io.out)?;
        self.document = Some(screen);
        Ok(())
    }

    /// Prints the environments that have changed.
    fn changed_rows(
        &mut self,
        pipeline: &Pipeline,
        promotions: &[Promotion],
        screen: &PipelineScreen,
        now: Timestamp,
    ) -> Outcome {
        let explanations = explain(pipeline, promotions, now);
        let mut changed = Vec::new();
        for (line, explanation) in screen.environments.iter().zip(&explanations) {
            let incoming =
                line.incoming.as_ref().map(|(revision, phase)| format!("{} {phase}", shortened(revision)));
            let row = vec![
                Cell::new(&line.environment),
                Cell::new(line.runs.as_deref().map(shortened).unwrap_or_default()),
                Cell::new(line.health.to_string()).tone(line.health.into()),
                Cell::age(line.since.as_deref().copied(), now),
                Cell::new(incoming.unwrap_or_default()),
                Cell::new(line.situation.words()),
                Cell::new(explanation.sentences.first().map(String::as_str).unwrap_or_default()),
            ];
            if !self.rows.get(&line.environment).is_some_and(|last| same(last, &row)) {
                self.rows.insert(line.environment.clone(), row.clone());
                changed.push(row);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.table.fit(&changed);
        if !std::mem::replace(&mut self.is_headed, true) {
            self.table.header(self.io.out)?;
        }
        Ok(self.table.rows(&changed, self.io.out)?)
    }
}
