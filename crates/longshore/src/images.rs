//! The flag for images that the image map does not have.

use clap::{Args, ValueEnum};
use longshore_node::UnmappedImages;

/// What happens with images without an entry.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct UnmappedImagesArgs {
    // Hidden: the help has to fit the first screen, and what is said about such an image names the flag.
    /// Images without an entry in images.yaml: host runs the programs of this machine, strict refuses
    #[arg(
        long,
        hide = true,
        value_name = "host|strict",
        hide_possible_values = true,
        default_value = "host"
    )]
    images: UnmappedMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnmappedMode {
    Host,
    Strict,
}

impl UnmappedImagesArgs {
    /// What the node does with such images.
    pub(crate) fn unmapped(self) -> UnmappedImages {
        match self.images {
            UnmappedMode::Host => UnmappedImages::Run,
            UnmappedMode::Strict => UnmappedImages::Refuse,
        }
    }
}
