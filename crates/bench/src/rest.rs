//! Doing nothing: what the controller costs while nothing happens.

use crate::controller::Controller;
use crate::fleet::Fleet;
use crate::options::Options;
use crate::outside::{held_memory, megabytes, processor_time};
use crate::table::{Table, Verdict, say};
use crate::writes::Writes;
use anyhow::Result;

/// Watches a controller at rest.
pub async fn measure(
    options: &Options,
    fleet: &Fleet,
    controller: &Controller,
    table: &mut Table,
) -> Result<()> {
    say(&format!("at rest for {} s", options.rest.as_secs()));
    let before = (Writes::so_far(&fleet.client).await?, processor_time(controller.pid())?);
    tokio::time::sleep(options.rest).await;
    let used = processor_time(controller.pid())? - before.1;
    let writes = Writes::so_far(&fleet.client).await?.since(&before.0, &[]);
    let share = 100.0 * used.as_secs_f64() / options.rest.as_secs_f64();
    let what = format!("at rest, {} s: API writes", options.rest.as_secs());
    table.add(&what, "0", writes.to_string(), Verdict::of(writes.count() == 0));
    table.add("  processor", "< 1 % of a core", format!("{share:.2} %"), Verdict::of(share < 1.0));
    let held = megabytes(held_memory(controller.pid())?);
    table.add("  memory held", "", held, Verdict::None);
    Ok(())
}
