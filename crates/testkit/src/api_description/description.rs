//! A table of facts, once it is read.

use std::collections::BTreeMap;

/// The documented API of a forge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiDescription {
    pub(super) operations: Vec<Operation>,
    /// The statuses that every operation may answer.
    pub(super) every: BTreeMap<u16, Option<Slot>>,
    pub(super) types: BTreeMap<String, Vec<Field>>,
}

/// A documented call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) method: String,
    /// The parts of the path. A part with `{` stands for any text.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<Field>,
    pub(super) body: Option<Slot>,
    /// The statuses, each with the type of its body if the body is documented.
    pub(super) answers: BTreeMap<u16, Option<Slot>>,
}

/// A documented field of an object, or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub(super) name: String,
    pub(super) is_required: bool,
    pub(super) arguments: Vec<String>,
    pub(super) slot: Slot,
}

/// A type, and whether `null` may be in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) kind: Kind,
    pub(super) may_be_null: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    Any,
    /// One of these texts.
    Words(Vec<String>),
    List(Box<Slot>),
    Object(Vec<Field>),
    /// One of the types with these names.
    Named(Vec<String>),
}

impl ApiDescription {
    /// Returns a field of a type.
    pub fn field(&self, of: &str, name: &str) -> Option<&Field> {
        self.types.get(of)?.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// The names of the arguments of a GraphQL field.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The names of the types of the object, or of the objects in the list. Other fields have none.
    pub fn type_names(&self) -> &[String] {
        let mut kind = &self.slot.kind;
        while let Kind::List(of) = kind {
            kind = &of.kind;
        }
        if let Kind::Named(names) = kind { names } else { &[] }
    }
}
