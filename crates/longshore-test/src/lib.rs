//! Development only: fixtures, the laws of every controller, the fault layer, the simulated clock, the scripted node.

pub mod clock;
pub mod definitions;
pub mod faults;
pub mod fixtures;
pub mod flyte;
pub mod foreign;
pub mod foreign_server;
pub mod http_answers;
pub mod laws;
pub mod logs;
pub mod place;
pub mod planted;
pub mod proxy;
pub mod real;
pub mod script;
pub mod scripted_node;
pub mod serve;
pub mod small_disk;

pub use clock::{EPOCH, SimClock, held, hold};
pub use definitions::install_definition;
pub use faults::{Fault, FaultPlan, Faults, Point, Process, WatchFault};
pub use fixtures::{config_map, pod};
pub use flyte::FlyteServices;
pub use foreign::{ForeignClient, ForeignSystem, Reply};
pub use foreign_server::{Answer, Conduct, ForeignServer, Received};
pub use http_answers::HttpAnswers;
pub use logs::quiet_logs;
pub use place::Place;
pub use proxy::FaultProxy;
pub use real::{RealNamespace, RealServer, play_all};
pub use script::Script;
pub use scripted_node::{NodeConfig, ScriptedNode};
pub use serve::serve;
pub use small_disk::on_a_small_disk;

/// For every test that uses this crate: a simulated world mostly makes, copies and drops JSON.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
