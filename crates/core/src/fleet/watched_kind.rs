//! The kinds of objects that are watched on clusters, and what each of them is watched for.

const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";
const IMAGE_GROUP: &str = "image.toolkit.fluxcd.io";
const NOTIFICATION_GROUP: &str = "notification.toolkit.fluxcd.io";

/// The kinds that are watched on a cluster. All of them can be read in one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Flux's Kustomization, not the file of the tool kustomize.
    Kustomization,
    /// Flux's HelmRelease.
    HelmRelease,
    /// Flux's source in git.
    GitRepository,
    /// Flux's source in an OCI registry.
    OciRepository,
    /// Flux's source of charts.
    HelmRepository,
    /// A chart that Flux fetches for a HelmRelease.
    HelmChart,
    /// Flux's source in an object store.
    Bucket,
    /// A source that another controller makes for Flux.
    ExternalArtifact,
    /// Of a Namespace, Sluice reads only the existence and an annotation.
    Namespace,
    /// In the group `apps`.
    Deployment,
    /// In the group `apps`.
    StatefulSet,
    /// In the group `apps`.
    DaemonSet,
    /// In the group `batch`.
    CronJob,
    /// Flux's choice of the newest image.
    ImagePolicy,
    /// Flux's writer of new images into a repository.
    ImageUpdateAutomation,
    /// Flux's receiver of webhooks.
    Receiver,
    /// What Flux sends to a Provider.
    Alert,
    /// An address that Flux sends events to.
    Provider,
}

impl Kind {
    /// The kinds that decisions and statuses follow from.
    pub const DECIDING: [Kind; 8] = [
        Kind::Kustomization,
        Kind::HelmRelease,
        Kind::GitRepository,
        Kind::Namespace,
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::DaemonSet,
        Kind::CronJob,
    ];

    /// The kinds that only views show, on every cluster.
    pub const SHOWN: [Kind; 5] =
        [Kind::OciRepository, Kind::HelmRepository, Kind::HelmChart, Kind::Bucket, Kind::ExternalArtifact];

    /// The kinds that only views show, on the hub alone: they start pipelines there.
    pub const SHOWN_ON_HUB: [Kind; 5] =
        [Kind::ImagePolicy, Kind::ImageUpdateAutomation, Kind::Receiver, Kind::Alert, Kind::Provider];

    /// The kinds that a Flux object may own, and whose health counts for it.
    pub const OWNED: [Kind; 6] = [
        Kind::Kustomization,
        Kind::HelmRelease,
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::DaemonSet,
        Kind::CronJob,
    ];

    /// The kinds whose pods run images.
    pub const WITH_IMAGES: [Kind; 4] = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet, Kind::CronJob];

    /// Returns the name of the kind in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kustomization => "Kustomization",
            Kind::HelmRelease => "HelmRelease",
            Kind::GitRepository => "GitRepository",
            Kind::OciRepository => "OCIRepository",
            Kind::HelmRepository => "HelmRepository",
            Kind::HelmChart => "HelmChart",
            Kind::Bucket => "Bucket",
            Kind::ExternalArtifact => "ExternalArtifact",
            Kind::Namespace => "Namespace",
            Kind::Deployment => "Deployment",
            Kind::StatefulSet => "StatefulSet",
            Kind::DaemonSet => "DaemonSet",
            Kind::CronJob => "CronJob",
            Kind::ImagePolicy => "ImagePolicy",
            Kind::ImageUpdateAutomation => "ImageUpdateAutomation",
            Kind::Receiver => "Receiver",
            Kind::Alert => "Alert",
            Kind::Provider => "Provider",
        }
    }

    /// Returns the API group and the plural name, as a role names them.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Kind::Kustomization => ("kustomize.toolkit.fluxcd.io", "kustomizations"),
            Kind::HelmRelease => ("helm.toolkit.fluxcd.io", "helmreleases"),
            Kind::GitRepository => (SOURCE_GROUP, "gitrepositories"),
            Kind::OciRepository => (SOURCE_GROUP, "ocirepositories"),
            Kind::HelmRepository => (SOURCE_GROUP, "helmrepositories"),
            Kind::HelmChart => (SOURCE_GROUP, "helmcharts"),
            Kind::Bucket => (SOURCE_GROUP, "buckets"),
            Kind::ExternalArtifact => (SOURCE_GROUP, "externalartifacts"),
            Kind::Namespace => ("", "namespaces"),
            Kind::Deployment => ("apps", "deployments"),
            Kind::StatefulSet => ("apps", "statefulsets"),
            Kind::DaemonSet => ("apps", "daemonsets"),
            Kind::CronJob => ("batch", "cronjobs"),
            Kind::ImagePolicy => (IMAGE_GROUP, "imagepolicies"),
            Kind::ImageUpdateAutomation => (IMAGE_GROUP, "imageupdateautomations"),
            Kind::Receiver => (NOTIFICATION_GROUP, "receivers"),
            Kind::Alert => (NOTIFICATION_GROUP, "alerts"),
            Kind::Provider => (NOTIFICATION_GROUP, "providers"),
        }
    }

    /// Returns the Flux kind of this name that applies objects: Kustomization or HelmRelease.
    pub fn of_flux(name: &str) -> Option<Kind> {
        [Kind::Kustomization, Kind::HelmRelease].into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the kind of source that a Flux object refers to by this name.
    pub fn of_source(name: &str) -> Option<Kind> {
        let sources = Kind::SHOWN.into_iter().chain([Kind::GitRepository]);
        sources.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the kind of Flux that a Receiver refers to by this name, if Sluice observes it.
    pub fn of_receiver(name: &str) -> Option<Kind> {
        let automation = [Kind::ImagePolicy, Kind::ImageUpdateAutomation];
        let found = automation.into_iter().find(|kind| kind.name() == name);
        found.or_else(|| Kind::of_flux(name)).or_else(|| Kind::of_source(name))
    }

    /// Whether only views show the kind.
    pub fn is_shown_only(self) -> bool {
        Kind::SHOWN.contains(&self) || Kind::SHOWN_ON_HUB.contains(&self)
    }

    /// Returns the kind of this API group and name if its health counts for its owner. These kinds are the
    /// workloads, and the Flux objects, which may own workloads themselves.
    pub fn of_group(group: &str, name: &str) -> Option<Kind> {
        Kind::OWNED.into_iter().find(|k| k.name() == name && k.resource().0 == group)
    }
}
