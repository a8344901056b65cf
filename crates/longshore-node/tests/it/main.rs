//! Integration tests of the process node: real shims, real processes, an embedded cluster.

#[cfg(test)]
mod claims;
#[cfg(test)]
mod configured;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod earlier_layout;
#[cfg(test)]
mod ephemeral;
#[cfg(test)]
mod escape;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod host_ports;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod images;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod log_server;
#[cfg(test)]
mod lost_networks;
#[cfg(test)]
mod memory_limits;
#[cfg(test)]
mod network;
#[cfg(test)]
mod node_rig;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod process_limits;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod shim;
#[cfg(test)]
mod shim_rig;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod way_in;
