//! A delivered promotion does not arrive, because Flux applies nothing to its target.

use sluice_core::observed::Health;

use crate::simulation::{member, shows};
use crate::table::{A, B, proposed};

#[test]
fn a_delivered_promotion_that_flux_does_not_apply_says_why() {
    let mut sim = proposed();
    sim.merge("staging");
    assert_eq!((sim.phases("staging"), sim.note("staging")), (vec!["1.1.0 Delivered".to_string()], ""));
    let why =
        "Kustomization flux-system/fleet is Failed (flux get kustomizations fleet -n flux-system): no build";
    let mut observe = |version, health| {
        let mut target = shows(version, health);
        member(&mut target).not_applied = Some(why.into());
        sim.observed.insert("staging", "s", target);
        sim.settle();
        sim.note("staging").to_string()
    };
    assert_eq!(observe(A, Health::Ready), format!("1.1.0 does not arrive in staging/s: {why}"));
    // The revision has arrived another way.
    assert_eq!(observe(B, Health::Progressing), "");
}
