//! Limits of the files whose values are set, and of the memory that they take when they are parsed.

/// The largest YAML file that is read, in bytes. Larger files are not configuration.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// The most parser events that are read of one file. Each takes about 250 bytes of memory.
pub(super) const MAX_FILE_EVENTS: usize = 200_000;

/// The most documents that the entries of an `update` list look at, each entry's counted by themselves. Ten million take about
/// a second.
pub(super) const MAX_VISITED_DOCUMENTS: usize = 10_000_000;

/// The most parser events that are read of all files of an `update` list together: they are kept until the values are
/// set.
pub(super) const MAX_UPDATE_EVENTS: usize = 500_000;
