//! The outcome of a check.

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    Green,
    Pending,
    Failed,
}

impl CheckOutcome {
    /// Selects the name of this outcome.
    pub(super) fn word(
        self,
        green: &'static str,
        pending: &'static str,
        failed: &'static str,
    ) -> &'static str {
        match self {
            CheckOutcome::Green => green,
            CheckOutcome::Pending => pending,
            CheckOutcome::Failed => failed,
        }
    }
}
