//! Writes statuses like the loop.

use anyhow::{Context, Result, ensure};
use kube::Client;
use sluice_controller::runtime::status_writer::StatusWriter;
use sluice_controller::state::Input;
use sluice_controller::state::status_queue::{
    Basis, SerializedStatus, StatusOwner, StatusQueue, WriteOutcome,
};
use sluice_delivery::FencingToken;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A queue of status writes, and their sender.
pub struct Writer {
    pub queue: StatusQueue,
    sender: StatusWriter,
    ended: UnboundedReceiver<Input>,
}

impl Writer {
    pub fn new(client: Client) -> Self {
        let (tx, ended) = unbounded_channel();
        Self { queue: StatusQueue::default(), sender: StatusWriter::new(client, tx), ended }
    }

    /// Queues a status, and sends it if no other write of the object is in flight.
    pub fn push(
        &mut self,
        owner: &StatusOwner,
        status: SerializedStatus,
        basis: Basis,
        fencing_token: FencingToken,
    ) {
        let write = self.queue.push(owner.clone(), status, basis, fencing_token, Instant::now());
        write.into_iter().for_each(|write| self.sender.send(write));
    }

    /// Waits until a write has ended. Returns its outcome, and whether it counts for the queue.
    pub async fn ended(&mut self, owner: &StatusOwner) -> Result<(WriteOutcome, bool)> {
        let Input::StatusWritten(of, number, outcome) = self.ended.recv().await.context("an input")? else {
            anyhow::bail!("another input")
        };
        ensure!(of == *owner);
        let next = self.queue.ended(owner, number, &outcome, Instant::now());
        let counts = next.is_some();
        next.flatten().into_iter().for_each(|write| self.sender.send(write));
        Ok((outcome, counts))
    }

    /// Writes a status, and waits for the outcome.
    pub async fn write(
        &mut self,
        owner: &StatusOwner,
        status: SerializedStatus,
        basis: Basis,
        fencing_token: FencingToken,
    ) -> Result<WriteOutcome> {
        self.push(owner, status, basis, fencing_token);
        let (outcome, counts) = self.ended(owner).await?;
        ensure!(counts, "{outcome:?}");
        Ok(outcome)
    }
}
