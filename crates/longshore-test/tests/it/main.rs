//! The fault layer and the scripted node on the embedded cluster.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod node;
#[cfg(test)]
mod world;
