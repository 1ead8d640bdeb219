//! `sluice status -w`: the screen as it changes. In a terminal it is updated in place; into a pipe, each changed
//! environment is a line.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event, Result as WatchResult};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_api::lenient;
use sluice_api::{Pipeline, Promotion};
use sluice_core::revision::shortened;
use sluice_view::explain::explain;
use sluice_view::pipeline_screen::{PipelineScreen, status};

use super::screen::Page;
use crate::connection::Connection;
use crate::document_kind::DocumentKind;
use crate::exit::{Exit, Failure, Outcome};
use crate::find::missing;
use crate::live_output::LiveOutput;
use crate::output::{DataFormat, view};
use crate::table::{Cell, Row, Table, same};
use crate::terminal::{Io, Size};
use crate::watching::{self, Report, Reports, watch_failure};

/// A report of one of the two watches.
type WatchReport = WatchResult<Report<DynamicObject>>;

/// The two watches.
const PIPELINES: usize = 0;
const PROMOTIONS: usize = 1;

/// What the watches have reported.
#[derive(Default)]
struct Observed {
    pipeline: Option<Pipeline>,
    promotions: BTreeMap<String, Promotion>,
    /// The names in the list that is being received.
    listed: BTreeSet<String>,
    /// True after each watch has listed its objects once.
    lists: (bool, bool),
    /// The interruption of each watch, until it continues.
    interruptions: [Option<String>; 2],
    /// Which promotion cannot be read, until the next event.
    unreadable: Option<String>,
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
    let mut pipelines = reports::<Pipeline>(connection, by_name);
    let mut promotions = reports::<Promotion>(connection, Config::default());
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
            report = pipelines.next() => {
                observed.pipeline_report(report, name, connection).await?;
                false
            }
            report = promotions.next() => {
                observed.promotion_report(report, name, connection)?;
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
        shown.show(pipeline, &promotions, observed.trouble(), &mut live)?;
    }
}

/// Watches a kind in the namespace.
fn reports<K: Resource<DynamicType = ()>>(connection: &Connection, config: Config) -> Reports<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    let api = |client| Api::namespaced_with(client, &connection.namespace, &resource);
    watching::reports(connection, api, config)
}

/// Reads an object, without the unreadable parts of a status.
fn read<K: DeserializeOwned>(object: DynamicObject) -> Result<K, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    lenient::from_value(value).map(|read| read.object).map_err(|error| error.to_string())
}

impl Observed {
    async fn pipeline_report(
        &mut self,
        report: Option<WatchReport>,
        name: &str,
        connection: &Connection,
    ) -> Outcome {
        let Some(event) = self.event(report, PIPELINES, connection)? else { return Ok(()) };
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

    fn promotion_report(
        &mut self,
        report: Option<WatchReport>,
        pipeline: &str,
        connection: &Connection,
    ) -> Outcome {
        let Some(event) = self.event(report, PROMOTIONS, connection)? else { return Ok(()) };
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
                    Err(error) => self.unreadable = Some(format!("promotion {name} cannot be read: {error}")),
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

    /// Returns the event of a report. `watch` is [`PIPELINES`] or [`PROMOTIONS`].
    fn event(
        &mut self,
        report: Option<WatchReport>,
        watch: usize,
        connection: &Connection,
    ) -> Outcome<Option<Event<DynamicObject>>> {
        match report {
            None => Err(Failure::new(Exit::Error, "the watch has ended")),
            Some(Err(error)) => Err(watch_failure(error, connection)),
            Some(Ok(Report::Interrupted(error))) if self.lists != (true, true) => {
                Err(watch_failure(error, connection))
            }
            Some(Ok(Report::Interrupted(error))) => {
                self.interruptions[watch] = Some(watching::interruption(error, connection));
                Ok(None)
            }
            Some(Ok(Report::Resumed)) => {
                self.interruptions[watch] = None;
                Ok(None)
            }
            Some(Ok(Report::Event(event))) => {
                self.unreadable = None;
                Ok(Some(event))
            }
        }
    }

    /// Returns why the screen may be outdated.
    fn trouble(&self) -> Option<&str> {
        self.interruptions.iter().chain([&self.unreadable]).find_map(Option::as_deref)
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
        view(format, DocumentKind::PipelineStatus, &screen, self.io.out)?;
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
