//! Fire: a forge and git server behind a door at which any call can meet any fault, a wire to an API
//! server that can be cut, and clashes at each write to one. The forge watches over what Sluice promises while it burns, and
//! counts; what is drawn from a seed burns the same way again.

mod clash;
mod door;
mod forge;
mod plan;
mod pulls;
mod wire;

pub use clash::{Blow, Clash};
pub use door::{Call, Door};
pub use forge::{Forge, Hosted, github};
pub use plan::{Fault, Plan, draw};
pub use pulls::{Request, State};
pub use wire::Wire;
