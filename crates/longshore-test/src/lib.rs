//! Development only: fixtures, the laws of every controller, the fault layer, the simulated clock, the scripted node.

pub mod clock;
pub mod faults;

pub use clock::{EPOCH, SimClock, hold};
pub use faults::{Fault, FaultPlan, Faults, Point, Process, WatchFault};
