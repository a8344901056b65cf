//! How long a child may run, and how much it may take.

use std::time::Duration;

/// The limits of one child. `None` is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start to the end (Airflow: `dag_file_processor_timeout`, 50 s).
    pub wall: Option<Duration>,
    /// Without a frame from the child, while no answer of ours is due. A trigger that blocks the loop shows so.
    pub silence: Option<Duration>,
    /// Resident memory in bytes of the child and of all that descends from it. Shared pages count for each process.
    /// Looked at every [`MEMORY_INTERVAL`]: a child may have more for so long.
    pub memory: Option<u64>,
    /// Bytes of one frame in either direction. A frame of many tiny values needs up to 32 times as much when read.
    pub frame: usize,
    /// Requests that are answered at the same time; the next one is read after one of them.
    pub n_in_flight: usize,
    /// Bytes that are kept of what the child prints, the last ones.
    pub output: usize,
    /// From the closed pipe to the end: a child that runs on for longer is killed.
    pub linger: Duration,
    /// From SIGTERM to SIGKILL, where the child is stopped.
    pub grace: Duration,
}

/// How often the memory of a child is looked at.
pub const MEMORY_INTERVAL: Duration = Duration::from_millis(200);

impl Limits {
    /// Airflow's limits for the parser, and a size for everything that Airflow does not limit.
    pub const PARSER: Self = Self {
        wall: Some(Duration::from_secs(50)),
        silence: None,
        memory: Some(2 << 30),
        frame: 64 << 20,
        n_in_flight: 16,
        output: 64 << 10,
        linger: Duration::from_secs(10),
        grace: Duration::from_secs(5),
    };
}
