//! The text of an object while it arrives. An object of any size must not stop the watch of its kind, because a user of one
//! namespace could then stop it for all. So of a huge object only the beginning is kept, which
//! names it.

use kube::api::ObjectMeta;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use tokio::time::Instant;

use super::large_objects::{LargeObject, SMALL_BYTES};
use super::too_large::{MAX_OBJECT_BYTES, MAX_READ_BYTES, TooLarge};

/// How many bytes are kept of an object with more than [`MAX_OBJECT_BYTES`]. API servers write the name first, of the kinds
/// that they store in another form than JSON. Only these become so long.
const BEGINNING_BYTES: usize = SMALL_BYTES;

/// The text of an object, or of the line of a watch around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectText<'a> {
    /// The whole text.
    Whole(&'a [u8]),
    /// The beginning of a text of more than [`MAX_OBJECT_BYTES`].
    Beginning(&'a [u8]),
}

impl<'a> ObjectText<'a> {
    /// Returns the whole text.
    ///
    /// # Errors
    /// When the text has more than [`MAX_OBJECT_BYTES`].
    pub fn whole(self) -> Result<&'a [u8], TooLarge> {
        match self {
            ObjectText::Whole(text) => Ok(text),
            ObjectText::Beginning(_) => Err(TooLarge::Object),
        }
    }
}

/// Collects the pieces of a text.
#[derive(Debug, Default)]
pub struct ObjectBuffer {
    kept: Vec<u8>,
    /// The bytes of the whole text.
    length: usize,
    /// The permission to add to a text of more than [`SMALL_BYTES`].
    large: Option<LargeObject>,
}

impl ObjectBuffer {
    /// Waits for the permission to add more, if the text has become large.
    pub(super) async fn wait_until_permitted(
        &mut self,
        permission: impl Future<Output = Option<LargeObject>>,
    ) {
        if self.length > SMALL_BYTES && self.length <= MAX_OBJECT_BYTES && self.large.is_none() {
            self.large = permission.await;
        }
    }

    /// Returns when the text must have arrived, if it is long.
    pub fn deadline(&self) -> Option<Instant> {
        self.large.as_ref().map(|large| large.until)
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// When the text has more than [`MAX_READ_BYTES`].
    pub fn add(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        self.length += piece.len();
        if self.length > MAX_READ_BYTES {
            return Err(TooLarge::Object);
        }
        let limit = if self.length > MAX_OBJECT_BYTES { BEGINNING_BYTES } else { usize::MAX };
        let room = limit.saturating_sub(self.kept.len()).min(piece.len());
        self.kept.extend_from_slice(&piece[..room]);
        if self.kept.len() > limit {
            self.kept.truncate(limit);
            self.kept.shrink_to_fit();
            self.large = None;
        }
        Ok(())
    }

    /// Returns the number of bytes that were added.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns what is kept.
    pub fn text(&self) -> ObjectText<'_> {
        match self.length > MAX_OBJECT_BYTES {
            true => ObjectText::Beginning(&self.kept),
            false => ObjectText::Whole(&self.kept),
        }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.kept.shrink_to(SMALL_BYTES);
        (self.length, self.large) = (0, None);
    }
}

/// What the beginning of a text says about the object.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// The type of the event, in the line of a watch.
    pub event_type: Option<String>,
    /// The name, namespace, UID and resource version, as far as the text has them.
    pub metadata: ObjectMeta,
}

impl Beginning {
    /// Reads the beginning of an object, or of the line of a watch.
    pub(super) fn read(text: &[u8]) -> Self {
        let mut beginning = Self::default();
        // The text always ends too early. What was read before counts.
        let _ = Map(&mut beginning).deserialize(&mut serde_json::Deserializer::from_slice(text));
        beginning
    }
}

/// Takes over the entries of an object one by one, so that those before an error are not lost.
struct Map<'a, T>(&'a mut T);

trait Entries {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

impl Entries for Beginning {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.event_type = Some(map.next_value()?),
            "object" => map.next_value_seed(Map(self))?,
            "metadata" => map.next_value_seed(Map(&mut self.metadata))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl Entries for ObjectMeta {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let field = match key {
            "name" => &mut self.name,
            "namespace" => &mut self.namespace,
            "uid" => &mut self.uid,
            "resourceVersion" => &mut self.resource_version,
            _ => return map.next_value::<IgnoredAny>().map(drop),
        };
        *field = map.next_value()?;
        Ok(())
    }
}

impl<'de, T: Entries> DeserializeSeed<'de> for Map<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Entries> Visitor<'de> for Map<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.take(&key, &mut map)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_huge_text_only_the_beginning_is_kept_whatever_the_size_of_its_pieces() {
        let text: Vec<u8> = (0..MAX_OBJECT_BYTES + 1).map(|n| (n % 251) as u8).collect();
        for size in [1 << 10, 100_000, text.len()] {
            let mut buffer = ObjectBuffer::default();
            text[1..].chunks(size).for_each(|piece| buffer.add(piece).unwrap());
            assert_eq!(buffer.text(), ObjectText::Whole(&text[1..]));
            buffer.clear();
            text.chunks(size).for_each(|piece| buffer.add(piece).unwrap());
            assert_eq!(buffer.text(), ObjectText::Beginning(&text[..BEGINNING_BYTES]));
            assert_eq!(buffer.len(), text.len());
        }
        let mut buffer = ObjectBuffer::default();
        let endless = std::iter::repeat_n(&text, 1000);
        assert_eq!(endless.map(|piece| buffer.add(piece)).find(Result::is_err), Some(Err(TooLarge::Object)));
    }

    #[test]
    fn the_beginning_of_a_text_names_the_object_wherever_it_ends() {
        let text = r#"{"type":"MODIFIED","object":{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"apps","uid":"u","resourceVersion":"7","labels":{"a":"b"}},"spec":{"name":"no"}}}"#;
        for end in text.find("\"labels").unwrap()..text.len() {
            let Beginning { event_type, metadata } = Beginning::read(&text.as_bytes()[..end]);
            assert_eq!(event_type.as_deref(), Some("MODIFIED"), "{}", &text[..end]);
            assert_eq!(metadata.name.as_deref(), Some("web"));
            assert_eq!(metadata.namespace.as_deref(), Some("apps"));
            assert_eq!(
                (metadata.uid.as_deref(), metadata.resource_version.as_deref()),
                (Some("u"), Some("7"))
            );
        }
        for text in ["", "7", "[]", "{\"metadata\":7}", "{\"metadata\":{\"name\":{}}}"] {
            assert_eq!(Beginning::read(text.as_bytes()).metadata, ObjectMeta::default(), "{text}");
        }
    }
}
