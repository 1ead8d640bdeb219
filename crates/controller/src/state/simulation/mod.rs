//! The controller's state in random histories: what it works with is simulated, and the promises P1 to P9 are checked on its
//! effects.

mod checks;
mod clusters;
mod controller_simulation;
mod end;
mod forge;
mod happening;
mod people;
mod properties;
mod races;
mod request_properties;
mod server;

pub(super) use clusters::helm_release;
pub(super) use controller_simulation::RunningVersion;
