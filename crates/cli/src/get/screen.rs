//! The table of `-w` in a terminal. If it is higher than the terminal, the rows that changed last are visible.

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use kube::api::DynamicObject;
use sluice_view::object_name::ObjectName;

use super::fetch::{item_from, key, whole};
use super::listing::{Listing, Query, none_found};
use crate::exit::Outcome;
use crate::table::{Row, Table, same};
use crate::terminal::{Size, Symbol, wrapped};
use sluice_view::safe_text;

/// All objects, with what the table shows of them.
pub(super) struct Screen<'a, L: Listing> {
    query: &'a Query<'a, L>,
    color: bool,
    objects: BTreeMap<ObjectName, Object<L::Item>>,
    /// The number of changes since the start.
    changes: usize,
}

struct Object<I> {
    item: I,
    rows: Vec<Row>,
    /// The number of the last change of the rows; 0 if they are as at the start.
    changed: usize,
}

impl<'a, L: Listing> Screen<'a, L> {
    pub(super) fn new(query: &'a Query<'a, L>, color: bool) -> Screen<'a, L> {
        Screen { query, color, objects: BTreeMap::new(), changes: 0 }
    }

    /// Replaces all objects: at the start, and after an interruption.
    pub(super) fn replace(&mut self, objects: Vec<DynamicObject>) -> Outcome {
        let is_start = self.objects.is_empty();
        let there: Vec<ObjectName> = objects.iter().map(key).collect();
        self.objects.retain(|key, _| there.contains(key));
        objects.into_iter().try_for_each(|object| self.apply(object))?;
        if is_start {
            self.objects.values_mut().for_each(|object| object.changed = 0);
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, object: DynamicObject) -> Outcome {
        let key = key(&object);
        let item = item_from::<L>(&whole(object)?)?;
        if !self.query.listing.wants(&item) {
            self.objects.remove(&key);
            return Ok(());
        }
        let rows = self.query.listing.rows(&item, self.query.view.shape(), Timestamp::now());
        let before = self.objects.get(&key);
        let is_same = |before: &Object<L::Item>| {
            before.rows.len() == rows.len() && before.rows.iter().zip(&rows).all(|(a, b)| same(a, b))
        };
        let changed = match before.filter(|before| is_same(before)) {
            Some(before) => before.changed,
            None => {
                self.changes += 1;
                self.changes
            }
        };
        self.objects.insert(key, Object { item, rows, changed });
        Ok(())
    }

    pub(super) fn delete(&mut self, key: &ObjectName) {
        self.objects.remove(key);
    }

    /// Returns the table for a terminal of this size.
    pub(super) fn lines(&self, size: Size) -> io::Result<Vec<String>> {
        let Query { listing, view, .. } = self.query;
        let now = Timestamp::now();
        let mut items: Vec<L::Item> = self.objects.values().map(|object| object.item.clone()).collect();
        listing.sort(&mut items);
        let wrap = |text: String| wrapped(&safe_text::line(&text), size.width);
        let warning = listing.warning(&items).map(|warning| format!("{} {warning}", Symbol::Failed.glyph()));
        let mut below = warning.map_or(Vec::new(), wrap);
        let changed = |item: &L::Item| self.objects.get(&key(item)).map_or(0, |object| object.changed);
        let of = |item: &L::Item| {
            let changed = changed(item);
            listing.rows(item, view.shape(), now).into_iter().map(move |row| (changed, row))
        };
        let rows: Vec<(usize, Row)> = items.iter().flat_map(of).collect();
        if rows.is_empty() {
            below.extend(wrap(none_found(self.query)));
        }
        // The cursor needs a line of its own.
        let room = size.height.saturating_sub(1 + usize::from(!view.no_headers) + below.len()).max(1);
        let (rows, hidden) = visible(rows, room);
        if hidden > 0 {
            below.insert(0, format!("… {hidden} more rows: the terminal is too small"));
        }
        let mut table = Table::new(listing.columns(view.shape()), self.color);
        let rows = table.fit_into(rows, size.width, L::OPTIONAL);
        let mut lines = if rows.is_empty() { Vec::new() } else { table.lines(&rows, !view.no_headers)? };
        lines.extend(below);
        Ok(lines)
    }
}

/// Returns the rows that fit into this many lines in their order, and how many do not. The ones that changed last stay. If
/// rows are hidden, one line remains to say so.
fn visible(rows: Vec<(usize, Row)>, room: usize) -> (Vec<Row>, usize) {
    if rows.len() <= room {
        return (rows.into_iter().map(|(_, row)| row).collect(), 0);
    }
    let room = room.saturating_sub(1);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|n| (std::cmp::Reverse(rows[*n].0), *n));
    order.truncate(room);
    let hidden = rows.len() - order.len();
    let is_visible = |n: &usize| order.contains(n);
    let kept = rows.into_iter().enumerate().filter(|(n, _)| is_visible(n)).map(|(_, (_, row))| row);
    (kept.collect(), hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cell;

    #[test]
    fn rows_that_changed_last_stay_visible() {
        let shown = |room: usize| {
            let rows = [("a", 0), ("b", 0), ("c", 1), ("d", 3), ("e", 2)];
            let rows = rows.map(|(name, changed)| (changed, vec![Cell::new(name)]));
            let (rows, hidden) = visible(rows.into(), room);
            (crate::table::text(vec!["NAME"], &rows).lines().skip(1).collect::<String>(), hidden)
        };
        for (room, expected) in [(5, ("abcde", 0)), (4, ("cde", 2)), (3, ("de", 3)), (1, ("", 5))] {
            assert_eq!(shown(room), (expected.0.to_owned(), expected.1), "{room}");
        }
    }
}
