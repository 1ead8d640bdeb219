//! RECORD. What is written to Kubernetes: the status of pipelines, the records of promotions and
//! events. Statuses are composed by pure functions and written only when they have changed.

pub mod events;
pub mod pace;
pub mod promotion;
pub mod status;
pub mod writer;
