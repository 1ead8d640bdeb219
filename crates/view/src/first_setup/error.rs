//! Reasons why no first set-up can start from a manifest. No message quotes the manifest, which may have passwords.

/// Why no set-up can start from a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplicationError {
    /// There is no text.
    #[error("there is no manifest: paste a HelmRelease or Kustomization of Flux")]
    Empty,
    /// It is too large.
    #[error(
        "the manifest is larger than 128 KiB or too deep: move large values to a ConfigMap, and name it in spec.valuesFrom"
    )]
    TooLarge,
    /// It is not YAML.
    #[error("the manifest is not YAML that Sluice can read: look at line {line}")]
    NotYaml {
        /// The line of the error, from 1.
        line: u64,
    },
    /// It has anchors, aliases or merge keys.
    #[error(
        "the manifest has YAML anchors, aliases or merge keys (&name, *name, <<): paste the output of kubectl get -o yaml, which has none"
    )]
    Anchors,
    /// It has several documents.
    #[error("the manifest has several documents: paste the one of the HelmRelease or Kustomization only")]
    Documents,
    /// It is a list of kubectl.
    #[error(
        "the manifest is a list: name one object, as in kubectl get helmrelease podinfo -n podinfo -o yaml"
    )]
    List,
    /// It is a Secret.
    #[error("this is a Secret: remove it from the form. Paste a HelmRelease or Kustomization of Flux")]
    Secret,
    /// It is the file of the tool kustomize.
    #[error(
        "this is the kustomization.yaml of kustomize: paste the Kustomization of Flux (kustomize.toolkit.fluxcd.io) that applies it"
    )]
    KustomizeFile,
    /// It is something else.
    #[error(
        "this is no application: paste a HelmRelease (helm.toolkit.fluxcd.io) or a Kustomization (kustomize.toolkit.fluxcd.io) of Flux"
    )]
    Kind,
    /// The name cannot be used.
    #[error("the value metadata.name is not a name of Kubernetes: lower-case letters, digits, - and . only")]
    Name,
    /// The namespace cannot be used.
    #[error(
        "the value metadata.namespace is not a namespace of Kubernetes: lower-case letters, digits and - only"
    )]
    Namespace,
    /// There is no spec.
    #[error("the manifest has no spec: paste the whole manifest")]
    NoSpec,
    /// It has characters that pages leave out.
    #[error("the manifest has invisible characters, or characters that reorder a text: remove them")]
    Invisible,
    /// A promoted value is a substitution.
    #[error(
        "the value {field} is a substitution of Flux, and a marker needs one value: write the version, or paste the output of kubectl get -o yaml"
    )]
    Substitution {
        /// The path of the value.
        field: String,
    },
    /// A promoted value cannot be one.
    #[error(
        "the value {field} is not a version that Sluice can promote: write one such as \"1.2.3\", in quotes if it is a number"
    )]
    Value {
        /// The path of the value.
        field: String,
    },
    /// The version is a range, and the manifest does not say which version runs.
    #[error(
        "the value spec.chart.spec.version is a range or empty, and the manifest does not say which version runs: write the version, or paste the output of kubectl get helmrelease -o yaml, with its status"
    )]
    Range,
    /// The chart's version is in another object.
    #[error(
        "the version of this chart is in the {kind} that spec.chartRef names, and not in the HelmRelease: write these files by hand, with the marker at that version"
    )]
    ChartRef {
        /// The kind of the object.
        kind: &'static str,
    },
    /// The chart has no version that Flux reads.
    #[error(
        "this chart comes from a GitRepository or Bucket, for which Flux ignores spec.chart.spec.version: the files need a chart from a HelmRepository"
    )]
    ChartSource,
    /// The version is in the source.
    #[error(
        "the version of this application is in the {kind} that spec.sourceRef names, and not in the Kustomization: write these files by hand, with the marker at that version"
    )]
    Source {
        /// The kind of the object.
        kind: &'static str,
    },
    /// No value can be promoted.
    #[error(
        "the list spec.images has no newTag, so the Kustomization has no value to promote: add the images with their tags to spec.images"
    )]
    NoImages,
    /// An image has a digest.
    #[error("an image in spec.images has a digest, which hides its tag: give each image a newTag only")]
    Digest,
}
