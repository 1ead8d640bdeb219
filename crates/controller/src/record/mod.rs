//! RECORD: the objects that the controller writes: the status of pipelines, the records of promotions, and events.
//! Pure functions compose the statuses.

mod create;
pub mod events;
pub mod news_queue;
pub mod promotion;
pub mod size;
pub mod status;
mod summary;
pub mod tampered;

pub use create::create;

/// Shortens a text to at most this many bytes, and an ellipsis. Messages of other programs can be of any length,
/// and an object cannot.
pub(crate) fn cut(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let end = (0..=max_bytes).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}
