//! The costs of the controller while nothing happens.

use crate::controller::ControllerProcess;
use crate::options::BenchOptions;
use crate::pipelines_fixture::PipelinesOnOneCluster;
use crate::process_stats::{megabytes, processor_time, resident_memory};
use crate::table::{BudgetVerdict, ResultTable, progress};
use crate::writes::Writes;
use anyhow::Result;

/// Measures a controller at rest.
pub async fn measure(
    options: &BenchOptions,
    fleet: &PipelinesOnOneCluster,
    controller: &ControllerProcess,
    table: &mut ResultTable,
) -> Result<()> {
    progress(&format!("at rest for {} s", options.rest.as_secs()));
    let before = (Writes::total(&fleet.client).await?, processor_time(controller.pid())?);
    tokio::time::sleep(options.rest).await;
    let used = processor_time(controller.pid())? - before.1;
    let writes = Writes::total(&fleet.client).await?.since(&before.0, &[]);
    let share = 100.0 * used.as_secs_f64() / options.rest.as_secs_f64();
    let what = format!("at rest, {} s: API writes", options.rest.as_secs());
    table.add(&what, "0", writes.to_string(), BudgetVerdict::of(writes.count() == 0));
    table.add("  processor", "< 1 % of a core", format!("{share:.2} %"), BudgetVerdict::of(share < 1.0));
    let memory = megabytes(resident_memory(controller.pid())?);
    table.add("  memory", "", memory, BudgetVerdict::None);
    Ok(())
}
