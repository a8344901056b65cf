//! The fault layer and the scripted node on the embedded cluster.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod node;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod proxy;
