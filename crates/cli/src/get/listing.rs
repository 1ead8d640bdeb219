//! The kinds of output of `sluice get`: the trait that each implements, and what they share.

use std::fmt::Debug;

use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::core::NamespaceScope;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::filter::PromotionFilter;
use super::flags::{Shape, View};
use crate::connection::Connection;
use crate::table::Row;

/// The message for an object without a status.
pub(super) const NOT_OBSERVED: &str = "not looked at yet: is sluice controller running?";

/// A kind of output of `sluice get`.
pub(crate) trait Listing {
    /// The object to read, with only the fields that the table shows.
    type Item: Resource<DynamicType = (), Scope: NamespaceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static;

    /// The columns of the kind's definition from which a table can be made; empty if they do not have all of its data.
    const CELLS: &'static [&'static str] = &[];

    /// The columns that a narrow terminal does not show, the least important first.
    const OPTIONAL: &'static [&'static str];

    /// False if `-o name` prints no names of objects.
    const NAMES_OBJECTS: bool = true;

    /// Makes an object from a row of the API server's table with the columns of [`Listing::CELLS`].
    fn from_cells(_metadata: ObjectMeta, _cells: Vec<String>) -> Option<Self::Item> {
        None
    }
    /// Returns the name of the requested object, if only one is requested.
    fn name(&self) -> Option<&str>;
    /// Returns the plural of the kind, for messages: `pipelines`.
    fn plural(&self) -> &'static str;
    /// Returns the pipeline and environment that flags name, if they do.
    fn filter(&self) -> Option<PromotionFilter<'_>> {
        None
    }
    /// Returns true if an object is to be shown.
    fn wants(&self, _item: &Self::Item) -> bool {
        true
    }
    /// Sorts the objects for the output; default is by namespace and name.
    fn sort(&self, items: &mut Vec<Self::Item>) {
        items.sort_by_cached_key(|item| (item.namespace(), item.name_any()));
    }
    /// Returns the names of the columns.
    fn columns(&self, shape: Shape) -> Vec<&'static str>;
    /// Returns the rows of one object.
    fn rows(&self, item: &Self::Item, shape: Shape, now: Timestamp) -> Vec<Row>;
    /// Returns the documents that `-o json` and `-o yaml` print for one object; default is the object itself.
    fn documents(&self, object: Value, _item: &Self::Item) -> Vec<Value> {
        vec![object]
    }
    /// Returns the names that `-o name` prints for one object.
    fn names(&self, item: &Self::Item) -> Vec<String> {
        let kind = Self::Item::kind(&()).to_ascii_lowercase();
        vec![format!("{kind}.{}/{}", sluice_api::GROUP, item.name_any())]
    }
    /// Returns the lines that `-o name` prints for one object. With `-A` they name the namespace, too, for `xargs -L1`.
    fn printed_names(&self, item: &Self::Item, view: &View) -> Vec<String> {
        let namespace = item.namespace().filter(|_| view.all_namespaces && Self::NAMES_OBJECTS);
        let place = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        self.names(item).into_iter().map(|name| name + &place).collect()
    }
    /// Makes an object that shows the error of an unreadable one.
    fn unreadable(metadata: ObjectMeta, error: String) -> Self::Item;
    /// Returns a warning to print after the table.
    fn warning(&self, _item: &[Self::Item]) -> Option<String> {
        None
    }
}

/// The requested listing, the flags that choose the objects, and the cluster.
pub(super) struct Query<'a, L> {
    pub listing: &'a L,
    pub view: &'a View,
    pub connection: &'a Connection,
}

/// Returns the message for an empty result.
pub(super) fn none_found<L: Listing>(Query { listing, view, connection }: &Query<'_, L>) -> String {
    let labels = view.selector.as_ref().map(|labels| format!(" with labels {labels}")).unwrap_or_default();
    let labels = listing.filter().map(|filter| filter.describe()).unwrap_or_default() + &labels;
    match view.all_namespaces {
        true => format!("no {}{labels} found", listing.plural()),
        false => {
            let here = &connection.namespace;
            format!("no {}{labels} found in namespace {here}; -A looks in all of them", listing.plural())
        }
    }
}

/// Returns the cells as an array, with empty texts for missing ones.
pub(super) fn fields<const N: usize>(cells: Vec<String>) -> [String; N] {
    let mut cells = cells.into_iter();
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}
