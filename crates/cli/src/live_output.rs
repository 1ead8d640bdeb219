//! The output of commands that watch: a screen of a terminal that is updated in place, or lines into a pipe.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::drawing::Drawing;
use crate::terminal::{Io, Size, Symbol, wrapped};
use sluice_view::safe_text;

/// How often the ages on a screen are updated.
const TICK: Duration = Duration::from_secs(1);
/// The shortest time between two updates of a screen.
const PAUSE: Duration = Duration::from_millis(100);

/// What was shown last, and when.
pub(crate) struct LiveOutput {
    is_screen: bool,
    drawing: Drawing,
    drawn: Instant,
    due: Instant,
    /// The last interruption that was printed as a line.
    interruption: Option<String>,
}

impl LiveOutput {
    /// Returns an output to which nothing was written yet. `is_for_people` is false for data, which is never a screen.
    pub(crate) fn new(is_for_people: bool, io: &Io<'_>) -> LiveOutput {
        let now = Instant::now();
        LiveOutput {
            is_screen: is_for_people && io.terminal.is_some(),
            drawing: Drawing::default(),
            drawn: now,
            due: now,
            interruption: None,
        }
    }

    /// Returns true for a screen. Then nothing else may write to the terminal.
    pub(crate) fn is_screen(&self) -> bool {
        self.is_screen
    }

    /// Waits until the screen is to be updated: soon after a change, and at least each second.
    pub(crate) async fn due(&mut self) {
        sleep_until(self.due).await;
        self.drawn = Instant::now();
        self.due = self.drawn + TICK;
    }

    /// Notes that the screen is outdated.
    pub(crate) fn changed(&mut self) {
        self.due = self.due.min(self.drawn + PAUSE);
    }

    /// Updates the screen. `lines` returns what fits into a terminal of this size, except for the line about an
    /// interruption.
    pub(crate) fn draw(
        &mut self,
        interruption: Option<&str>,
        io: &mut Io<'_>,
        lines: impl FnOnce(Size) -> io::Result<Vec<String>>,
    ) -> io::Result<()> {
        let Some(size) = io.current_size() else { return Ok(()) };
        let below = interruption.map(|why| format!("{} {why}", Symbol::Waiting.glyph()));
        let below = below.map_or(Vec::new(), |line| wrapped(&safe_text::line(&line), size.width));
        let height = size.height.saturating_sub(below.len());
        let mut lines = lines(Size { height, ..size })?;
        lines.extend(below);
        let text = self.drawing.update(lines, size);
        io.out.write_all(text.as_bytes())?;
        io.flush()
    }

    /// Prints an interruption as a line, if it is a new one.
    pub(crate) fn note(&mut self, interruption: Option<&str>, io: &mut Io<'_>) {
        if self.interruption.as_deref() != interruption {
            self.interruption = interruption.map(String::from);
            interruption.iter().for_each(|why| io.progress(Symbol::Waiting, why));
        }
    }
}
