//! RECORD: the objects that the controller writes: the status of pipelines, the records of promotions, and events.
//! Pure functions compose the statuses.

mod create;
pub mod event_sender;
pub mod pending_event;
mod progress_event_fields;
pub mod progress_queue;
pub mod promotion;
pub mod promotion_events;
mod shared_revisions;
pub mod status;
pub mod status_size;
mod summary;
pub mod tampered;
pub mod unwritten_status;

pub use create::create;

use sluice_core::value_check;
pub(crate) use sluice_core::value_check::cut;

/// Makes the text of a status safe to print, and shortens it, with [`safe_message`]: names in it may be those of a spec.
pub(crate) fn limit(text: &mut String, max_bytes: usize) {
    *text = safe_message(text, max_bytes);
}

/// Returns the message of another program without characters that a terminal would interpret or that no reader sees, in
/// at most this many bytes and an ellipsis.
pub(crate) fn safe_message(text: &str, max_bytes: usize) -> String {
    let is_safe = |c: &char| !value_check::is_unsafe(*c) || matches!(c, '\n' | '\t');
    let mut message: String = text.chars().filter(is_safe).take(max_bytes + 1).collect();
    cut(&mut message, max_bytes);
    message
}
