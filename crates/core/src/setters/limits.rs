//! Limits of the memory that parsed files take.

/// The most parser events that are read of one file. Each takes about 250 bytes of memory.
pub(super) const MAX_FILE_EVENTS: usize = 200_000;

/// The most documents that the entries of an `update` list look at, each entry's counted by themselves. Ten million take about
/// a second.
pub(super) const MAX_VISITED_DOCUMENTS: usize = 10_000_000;

/// The most parser events that are read of all files of an `update` list together: they are kept until the values are
/// set.
pub(super) const MAX_UPDATE_EVENTS: usize = 500_000;
