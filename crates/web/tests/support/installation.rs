//! What the API server of the tests says about the installation: all is well. The admin may read everything, and the others
//! nothing but their own rights.

use sluice_api::Pipeline;
use sluice_view::check::clocks::{ClockOf, Clocks};
use sluice_view::check::controller::{Controller, Lease};
use sluice_view::check::definitions::Definitions;
use sluice_view::check::flux::Flux;
use sluice_view::check::hooks::Hooks;
use sluice_view::check::rights::{Rights, all};
use sluice_view::check::{Installation, Reading};

pub fn installation<'a>(token: &str, namespace: Option<&str>, pipelines: &'a [Pipeline]) -> Installation<'a> {
    fn read<T>(token: &str, right: &str, value: T) -> Reading<T> {
        if token == "admin" { Reading::Known(value) } else { Reading::Forbidden(right.into()) }
    }
    let crds = "get on customresourcedefinitions.apiextensions.k8s.io";
    let now = "2026-11-22T10:00:00Z".parse().unwrap();
    let namespace = namespace.map(String::from);
    let definitions = sluice_api::all_crds().into_iter().map(|crd| {
        let name = crd.metadata.name.clone().unwrap();
        let mut crd = serde_json::to_value(crd).unwrap();
        crd["status"] = serde_json::json!({"conditions": [{"type": "Established", "status": "True"}]});
        (name, read(token, crds, crd))
    });
    let lease = Lease {
        name: "sluice.shard-0".into(),
        holder: Some("sluice-a".into()),
        renewed: Some(now),
        duration: jiff::SignedDuration::from_secs(15),
    };
    Installation {
        definitions: Definitions {
            served: Reading::Known(()),
            crds: definitions.collect(),
            policy: read(token, "get on validatingadmissionpolicies.admissionregistration.k8s.io", None),
            gitops_clusters: Reading::Known(()),
            targets_elsewhere: 0,
        },
        controller: Controller {
            namespace: "sluice-system".into(),
            version: "0.1.0".into(),
            is_running: true,
            now,
            leases: read(token, "list on leases.coordination.k8s.io in namespace sluice-system", vec![lease]),
            deployments: Reading::Absent,
        },
        rights: Rights {
            user: Some(token.into()),
            namespace: namespace.clone(),
            controller_namespace: "sluice-system".into(),
            unidentified: None,
            answers: all().into_iter().map(|right| (right, Reading::Known(token == "admin"))).collect(),
        },
        flux: Flux {
            served: Reading::Absent,
            version: Reading::Absent,
            deployments: Reading::Absent,
            targets_here: 0,
        },
        hooks: Hooks {
            pipelines,
            are_all: false,
            namespace,
            providers: read(token, "list on providers.notification.toolkit.fluxcd.io", Vec::new()),
            alerts: Reading::Absent,
            receivers: Reading::Absent,
            secrets: Default::default(),
        },
        clocks: Clocks { of: ClockOf::Api, here: now, server: Reading::Known(now), newest: None },
    }
}
