//! The flags of `sluice get` that choose the objects and the form of the output.

use clap::Args;
use kube::api::ListParams;

use crate::output::Format;

/// The objects to show, and the form of the output.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "View")]
pub(crate) struct View {
    /// Look in all namespaces
    #[arg(short = 'A', long, global = true)]
    pub all_namespaces: bool,
    /// Only those with these labels, such as app=podinfo,team!=web; for targets, the pipelines' labels
    #[arg(short = 'l', long, value_name = "LABELS", global = true)]
    pub selector: Option<String>,
    /// What to print: table, wide, json, yaml or name
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        global = true,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub output: Format,
    /// Keep watching: update the table in a terminal, print changed rows into a pipe; Ctrl-C ends it
    #[arg(short, long, global = true)]
    pub watch: bool,
    /// Leave out the line with the names of the columns
    #[arg(long, visible_alias = "no-header", global = true)]
    pub no_headers: bool,
}

/// The optional columns of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// True for `-o wide`.
    pub wide: bool,
    /// True if the objects of all namespaces are shown.
    pub namespaces: bool,
}

impl View {
    /// Returns the optional columns of a table.
    pub(super) fn shape(&self) -> Shape {
        Shape { wide: self.output == Format::Wide, namespaces: self.all_namespaces }
    }

    /// Returns the parameters of list requests.
    pub(super) fn params(&self) -> ListParams {
        ListParams { label_selector: self.selector.clone(), ..ListParams::default() }
    }
}
