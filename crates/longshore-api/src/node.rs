//! Labels and annotations of the Node of a process node, its finalizers, and the reasons of its Events.

/// Label of a Node: what kind of node it is.
pub const LABEL_NODE_KIND: &str = "longshore.dev/node-kind";
/// Value of [`LABEL_NODE_KIND`]: pods are local processes.
pub const NODE_KIND_PROCESS: &str = "process";
/// Label of a Node: how far pods are isolated (`full`, `user`, `none`).
pub const LABEL_NODE_PROFILE: &str = "longshore.dev/node-profile";
/// Annotation of a Node: which images its image map has, and what happens with others, as JSON.
pub const ANNOTATION_NODE_IMAGES: &str = "longshore.dev/node-images";
/// Finalizer of a PersistentVolumeClaim: a process node has its directory. The node removes the directory, then the
/// finalizer, when the claim is deleted and none of its pods uses it any more.
pub const FINALIZER_CLAIM_DIRECTORY: &str = "longshore.dev/claim-directory";
/// Reason of an Event of a pod: its image has no entry in the image map, so it runs the programs of the machine.
pub const REASON_IMAGE_NOT_MAPPED: &str = "ImageNotMapped";
/// Reason of an Event of a pod: the network of the running pod was gone, and the node has connected the pod again; its open
/// connections are lost.
pub const REASON_NETWORK_LOST: &str = "NetworkLost";
