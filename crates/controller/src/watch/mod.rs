//! Watches: the tasks that hold connections and tell the fold what happened. Each cluster has its
//! own, so that one which is slow, broken or gone delays nobody else.

pub mod cause;
pub mod change;
pub mod connect;
pub mod fleet;
pub mod guard;
pub mod limit;
pub mod list;
pub mod relist;
pub mod served;
pub mod session;
pub mod stream;
