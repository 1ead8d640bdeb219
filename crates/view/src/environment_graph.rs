//! The environments of a pipeline as a graph: in which layer and row each one is drawn, and which lines lead to it. A
//! layer has the environments whose longest way from the first environment is equally long.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::Pipeline;

/// Where an environment is drawn. Layers and rows begin at 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentPosition {
    /// The environment.
    pub name: String,
    /// Its layer, from left to right.
    pub layer: usize,
    /// Its row within the layer, from the top.
    pub row: usize,
    /// The environments before it.
    pub after: Vec<String>,
    /// Those of `after` that have a line to it. The others are also before one of these, so a way of lines leads from each
    /// of them.
    pub drawn_after: Vec<String>,
    /// The pieces of the lines that lead to it.
    pub pieces: Vec<EdgePiece>,
}

/// A piece of a line: from one layer to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgePiece {
    /// The layer in which the piece ends.
    pub layer: usize,
    /// The row in which it begins.
    pub from: usize,
    /// The row in which it ends.
    pub to: usize,
    /// Whether the line passes through the layer, and another piece follows.
    pub passes: bool,
}

/// Returns the environments of a pipeline, in the order of its spec, each with its position. Names in `after` that no
/// earlier environment has are left out: the API server rejects them.
pub fn environment_graph(pipeline: &Pipeline) -> Vec<EnvironmentPosition> {
    let layout = Layout::new(pipeline);
    let name = |at: &usize| pipeline.spec.environments[*at].name.clone();
    let positions = (0..layout.layers.len()).map(|at| EnvironmentPosition {
        name: name(&at),
        layer: layout.layers[at],
        row: layout.rows[&(layout.layers[at], at)],
        after: pipeline.spec.after(at).into_iter().map(String::from).collect(),
        drawn_after: layout.drawn[at].iter().map(name).collect(),
        pieces: layout.drawn[at].iter().flat_map(|before| layout.pieces(*before, at)).collect(),
    });
    positions.collect()
}

/// The graph with environments as their indices in the spec.
#[derive(Default)]
struct Layout {
    /// The layer of each environment.
    layers: Vec<usize>,
    /// The predecessors of each environment that have a line to it.
    drawn: Vec<BTreeSet<usize>>,
    /// The row of each environment in its layer, and of its lines in the layers through which they pass.
    rows: BTreeMap<(usize, usize), usize>,
}

impl Layout {
    fn new(pipeline: &Pipeline) -> Layout {
        let environments = &pipeline.spec.environments;
        let mut layout = Layout::default();
        // All environments before each one, also indirectly.
        let mut before: Vec<BTreeSet<usize>> = Vec::new();
        for at in 0..environments.len() {
            let names = pipeline.spec.after(at);
            let direct: BTreeSet<usize> = names
                .iter()
                .filter_map(|name| environments[..at].iter().position(|e| e.name == *name))
                .collect();
            let is_implied = |one: &usize| direct.iter().any(|other| before[*other].contains(one));
            layout.drawn.push(direct.iter().copied().filter(|one| !is_implied(one)).collect());
            layout.layers.push(1 + direct.iter().map(|one| layout.layers[*one]).max().unwrap_or(0));
            let indirect = direct.iter().flat_map(|one| before[*one].iter().copied());
            before.push(indirect.chain(direct.iter().copied()).collect());
        }
        for layer in 1..=layout.layers.iter().copied().max().unwrap_or(0) {
            layout.place(layer);
        }
        layout
    }

    /// Gives each environment of a layer, and each line that passes through it, a row: that of its first predecessor, if
    /// the row is free.
    fn place(&mut self, layer: usize) {
        let row_before = |at: &usize| self.rows.get(&(layer - 1, *at)).copied().unwrap_or(1);
        let all = 0..self.layers.len();
        let here = all
            .clone()
            .filter(|at| self.layers[*at] == layer)
            .map(|at| (self.drawn[at].iter().map(row_before).min().unwrap_or(1), false, at));
        let passes = |at: &usize| {
            let is_later = |later: usize| self.layers[later] > layer && self.drawn[later].contains(at);
            self.layers[*at] < layer && all.clone().any(is_later)
        };
        let passing = all.clone().filter(passes).map(|at| (row_before(&at), true, at));
        let mut wanted: Vec<(usize, bool, usize)> = here.chain(passing).collect();
        wanted.sort_unstable();
        let mut free = 1;
        for (row, _, at) in wanted {
            self.rows.insert((layer, at), row.max(free));
            free = row.max(free) + 1;
        }
    }

    /// Returns the pieces of the line between two environments.
    fn pieces(&self, before: usize, at: usize) -> impl Iterator<Item = EdgePiece> {
        let last = self.layers[at];
        (self.layers[before] + 1..=last).map(move |layer| EdgePiece {
            layer,
            from: self.rows[&(layer - 1, before)],
            to: self.rows[&(layer, if layer == last { at } else { before })],
            passes: layer < last,
        })
    }
}
