//! RECORD. What is written to Kubernetes: the status of pipelines, the records of promotions and
//! events. Statuses are composed by pure functions and written only when they have changed.

mod create;
pub mod events;
pub mod promotion;
pub mod queue;
pub mod size;
pub mod status;
pub mod tampered;

pub use create::create;

/// Shortens a text to so many bytes: what others say has no bound, and what an object may hold has.
pub(crate) fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}
