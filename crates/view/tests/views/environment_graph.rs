//! Where environments and the lines between them are drawn.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Value, json};
use sluice_api::Pipeline;
use sluice_view::environment_graph::{EnvironmentPosition, environment_graph};

fn graph(environments: &[(&str, &[&str])]) -> Vec<EnvironmentPosition> {
    let environments: Vec<Value> = environments
        .iter()
        .map(|(name, after)| json!({"name": name, "after": after, "targets": [{"namespace": "apps"}]}))
        .collect();
    let pipeline: Pipeline = serde_json::from_value(json!({
        "apiVersion": "pipelines.weave.works/v1alpha1", "kind": "Pipeline", "metadata": {"name": "podinfo"},
        "spec": {"environments": environments},
    }))
    .unwrap();
    environment_graph(&pipeline)
}

/// One line for each environment: layer, row, and the pieces of the lines to it.
fn drawn(environments: &[(&str, &[&str])]) -> String {
    let mut text = String::new();
    for EnvironmentPosition { name, layer, row, drawn_after, pieces, .. } in graph(environments) {
        let pieces: Vec<String> = pieces
            .iter()
            .map(|piece| {
                let passes = if piece.passes { "+" } else { "" };
                format!("{}:{}-{}{passes}", piece.layer, piece.from, piece.to)
            })
            .collect();
        writeln!(text, "{name} {layer}/{row} after {} by {}", drawn_after.join(","), pieces.join(" "))
            .unwrap();
    }
    text
}

#[test]
fn a_chain_is_one_row() {
    insta::assert_snapshot!(drawn(&[("dev", &[]), ("staging", &[]), ("prod", &[])]), @"
    dev 1/1 after  by 
    staging 2/1 after dev by 2:1-1
    prod 3/1 after staging by 3:1-1
    ");
}

#[test]
fn branches_have_rows_of_their_own_and_meet_again() {
    let environments: [(&str, &[&str]); 5] =
        [("dev", &[]), ("eu", &["dev"]), ("us", &["dev"]), ("ap", &["dev"]), ("all", &["eu", "us", "ap"])];
    insta::assert_snapshot!(drawn(&environments), @"
    dev 1/1 after  by 
    eu 2/1 after dev by 2:1-1
    us 2/2 after dev by 2:1-2
    ap 2/3 after dev by 2:1-3
    all 3/1 after eu,us,ap by 3:1-1 3:2-1 3:3-1
    ");
}

#[test]
fn a_line_passes_beside_the_environments_of_the_layers_between() {
    let environments: [(&str, &[&str]); 5] = [
        ("dev", &[]),
        ("qa", &["dev"]),
        ("load", &["dev"]),
        ("stage", &["qa"]),
        ("prod", &["stage", "load"]),
    ];
    insta::assert_snapshot!(drawn(&environments), @"
    dev 1/1 after  by 
    qa 2/1 after dev by 2:1-1
    load 2/2 after dev by 2:1-2
    stage 3/1 after qa by 3:1-1
    prod 4/1 after load,stage by 3:2-2+ 4:2-1 4:1-1
    ");
}

#[test]
fn an_implied_predecessor_has_no_line_of_its_own() {
    let positions = graph(&[("dev", &[]), ("staging", &[]), ("prod", &["dev", "staging", "absent"])]);
    assert_eq!(positions[2].after, ["dev", "staging", "absent"]);
    assert_eq!(positions[2].drawn_after, ["staging"]);
}

/// All graphs of five environments: no two things have one place, and each line begins and ends at an environment.
#[test]
fn in_every_small_graph_lines_and_environments_have_places_of_their_own() {
    let names = ["a", "b", "c", "d", "e"];
    for choice in 0..1u32 << 10 {
        let mut bits = (0..10).map(|bit| choice >> bit & 1 == 1);
        let after: Vec<Vec<&str>> = (0..5)
            .map(|at| names[..at].iter().copied().filter(|_| bits.next() == Some(true)).collect())
            .collect();
        let environments: Vec<(&str, &[&str])> =
            names.into_iter().zip(after.iter().map(Vec::as_slice)).collect();
        let positions = graph(&environments);
        let mut taken: BTreeSet<(usize, usize)> = BTreeSet::new();
        for position in &positions {
            assert!(taken.insert((position.layer, position.row)), "{environments:?}");
            assert!(position.row <= names.len(), "{environments:?}");
            let last: Vec<_> = position.pieces.iter().filter(|piece| !piece.passes).collect();
            assert_eq!(last.len(), position.drawn_after.len(), "{environments:?}");
            assert!(last.iter().all(|piece| (piece.layer, piece.to) == (position.layer, position.row)));
        }
        for piece in positions.iter().flat_map(|position| &position.pieces).filter(|piece| piece.passes) {
            assert!(!taken.contains(&(piece.layer, piece.to)), "{environments:?}: {piece:?}");
        }
    }
}
