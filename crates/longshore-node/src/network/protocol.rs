//! The protocol between the node and the keeper of its pods' networks: one JSON object per packet, over a unix socket of
//! packets. Answers carry descriptors.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The longest packet.
pub(super) const MAX_PACKET: usize = 64 * 1024;
/// The most descriptors that a packet carries.
pub(super) const MAX_DESCRIPTORS: usize = 1;

/// A request with its number, which its answer repeats: the caller of an earlier one may be gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) ask: Ask,
}

/// What the node asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// The network namespace of a pod, which is made where it is missing. The answer carries it.
    Attach {
        /// The uid of the pod.
        pod: String,
        address: Ipv4Addr,
        /// Whether the pod has a route to other networks than those of pods and Services.
        has_way_out: bool,
        /// A process in the namespace that an earlier keeper has made for the pod.
        #[serde(default)]
        holder: Option<i32>,
    },
    /// Removes the network of a pod that has ended.
    Detach { pod: String },
    /// A listening TCP socket: of a pod, or of the bridge where no pod is named.
    Listen {
        pod: Option<String>,
        address: Ipv4Addr,
        port: u16,
    },
    /// A TCP socket that is not connected: of a pod, or of the bridge where no pod is named.
    Socket { pod: Option<String> },
    /// A packet socket that sees the TCP connections of pods to other networks that nothing listens for.
    WayOut,
    /// A listening TCP socket for a port of all other networks.
    ListenForAll { port: u16 },
    /// A UDP socket of the bridge.
    Datagrams { address: Ipv4Addr, port: u16 },
    /// The uids of the pods that are attached.
    Pods,
}

/// The keeper's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    /// Why nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Answers [`Ask::Pods`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) pods: Vec<String>,
}
