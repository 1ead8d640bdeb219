//! Ages as kubectl prints them: one or two units.

use jiff::Timestamp;

/// Returns the time between `then` and `now`: `45s`, `5m30s`, `3h`, `2d4h`, `400d`.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let years = days / 365;
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if years < 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

fn two(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_printed_as_by_kubectl() {
        let table = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (34_560_000, "400d"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
        ];
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        for (seconds, expected) in table {
            let then = Timestamp::from_second(now.as_second() - seconds).unwrap();
            assert_eq!(since(then, now), expected, "{seconds} seconds ago");
        }
    }
}
