//! A controller that serves the pages of a fleet, and people who look at them.

use crate::controller::ControllerProcess;
use crate::options::BenchOptions;
use crate::pipelines_fixture::PipelinesOnOneCluster;
use crate::viewers::viewers;
use anyhow::Result;

/// The list with those of the fleet's pipelines whose number is below 1,000.
pub const LIST: &str = "/?q=app-00";
/// The most pipelines that the list shows.
const LISTED: usize = 1000;
/// How many live pages one person may have open.
pub const LIVE_PAGES_OF_ONE: usize = 20;

/// A controller that serves the pages of a fleet.
pub struct PageServer {
    /// The process.
    pub controller: ControllerProcess,
    /// Where the pages are, such as `http://127.0.0.1:8083`.
    pub base: String,
    /// The tokens of people who may see everything.
    pub viewers: Vec<String>,
}

impl PageServer {
    /// Starts a controller on a fleet whose pipelines have statuses and promotions.
    ///
    /// # Errors
    /// It does not start, or the API server rejects an object.
    pub async fn start(options: &BenchOptions, fleet: &PipelinesOnOneCluster) -> Result<PageServer> {
        let address = ControllerProcess::free_address()?;
        let flags = ["--hook-addr=0", "--trust-proxy-token", &format!("--api-addr={address}")];
        let mut controller = ControllerProcess::start_with(options, &fleet.cluster, &flags)?;
        controller.settled(fleet.size).await?;
        controller.at_rest().await?;
        let viewers = viewers(&fleet.cluster, options.live_pages.div_ceil(LIVE_PAGES_OF_ONE)).await?;
        Ok(PageServer { controller, base: format!("http://{address}"), viewers })
    }
}

/// Returns how many pipelines [`LIST`] shows.
pub fn listed(fleet: &PipelinesOnOneCluster) -> usize {
    fleet.size.min(LISTED)
}
