//! `sluice status -w`: the screen as it changes. In a terminal it is updated in place; into a pipe, each changed
//! environment is a line.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::lenient;
use sluice_api::{Pipeline, Promotion};
use sluice_core::revision::shortened;
use sluice_view::explain::explain;
use sluice_view::pipeline_screen::{PipelineScreen, status};

use super::screen::Page;
use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::find::missing;
use crate::live_output::LiveOutput;
use crate::output::{DataFormat, view};
use crate::table::{Cell, Row, Table, same};
use crate::terminal::{Io, Size};
use crate::watching::{self, is_refused, watch_failure};

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
    table: Table,
    rows: BTreeMap<String, Row>,
    is_headed: bool,
    document: Option<PipelineScreen>,
    io: &'a mut Io<'b>,
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
    let mut live = LiveOutput::new(output.is_none(), io);
    let mut observed = Observed::default();
    let mut shown = Shown {
        output,
        table: Table::new(
            vec!["ENVIRONMENT", "RUNS", "HEALTH", "SINCE", "INCOMING", "STATE", "WHY"],
            io.color,
        ),
        rows: BTreeMap::new(),
        is_headed: false,
        document: None,
        io,
    };
    loop {
        let is_screen = live.is_screen();
        let is_due = tokio::select! {
            _ = &mut interrupt => return Ok(()),
            () = live.due(), if is_screen => true,
            event = pipelines.next() => {
                observed.pipeline_event(event, name, connection).await?;
                false
            }
            event = promotions.next() => {
                observed.promotion_event(event, name, connection)?;
                false
            }
        };
        let Some(pipeline) = observed.pipeline.as_ref().filter(|_| observed.lists == (true, true)) else {
            continue;
        };
        if is_screen && !is_due {
            live.changed();
            continue;
        }
        let promotions: Vec<Promotion> = observed.promotions.values().cloned().collect();
        shown.show(pipeline, &promotions, observed.interruption.as_deref(), &mut live)?;
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
    watching::events(api, config)
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
    fn show(
        &mut self,
        pipeline: &Pipeline,
        promotions: &[Promotion],
        interruption: Option<&str>,
        live: &mut LiveOutput,
    ) -> Outcome {
        let now = Timestamp::now();
        let screen = status(pipeline, promotions, now);
        if live.is_screen() {
            let color = self.io.color;
            let page = |size: Size| Page { now, color, width: Some(size.width) }.lines(&screen);
            return Ok(live.draw(interruption, self.io, page)?);
        }
        match self.output {
            Some(format) => self.document(format, screen)?,
            None => {
                live.note(interruption, self.io);
                if interruption.is_none() {
                    self.changed_rows(pipeline, promotions, &screen, now)?;
                }
            }
        }
        Ok(self.io.flush()?)
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
