//! The time type of all objects.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, written in RFC 3339 and in UTC.
///
/// A text that is not a time is read as the Unix epoch, so that one bad field of an object does not hide the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// Returns a moment with its fraction of a second.
    pub fn exact(moment: Timestamp) -> Time {
        Time(moment)
    }

    /// Returns a moment without its fraction of a second, as Kubernetes writes times.
    pub fn to_second(moment: Timestamp) -> Time {
        Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
    }
}

impl Deref for Time {
    type Target = Timestamp;

    fn deref(&self) -> &Timestamp {
        &self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Time {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Time, jiff::Error> {
        text.parse().map(Time)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.parse().unwrap_or_default())
    }
}

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    /// It is a pattern and not a format, because an API server accepts lists for a text with a format.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$";
        json_schema!({ "type": "string", "pattern": pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_any_zone_and_written_in_utc() {
        for (read, written) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05.999999999Z"),
            ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
            ("soon", "1970-01-01T00:00:00Z"),
        ] {
            let time: Time = serde_json::from_value(read.into()).unwrap();
            assert_eq!(serde_json::to_value(time).unwrap(), written);
        }
        assert!(serde_json::from_value::<Time>(7.into()).is_err());
        let exact = "2026-01-02T03:04:05.999999999Z".parse().unwrap();
        assert_eq!(Time::to_second(exact).to_string(), "2026-01-02T03:04:05Z");
    }
}
