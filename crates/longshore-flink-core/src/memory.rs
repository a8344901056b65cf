//! How much memory a JobManager and a TaskManager use, and for what (Flink: `ProcessMemoryUtils` and its neighbours;
//! spec 13.2).
//!
//! ```text
//! total process = total Flink + JVM metaspace + JVM overhead
//! total Flink   = JobManager:  heap + off-heap
//!                 TaskManager: framework heap + task heap + managed + framework off-heap + task off-heap + network
//! ```
//! A user configures the process, or Flink's part of it, or its components; the rest follows. Sizes are in bytes, and
//! are the ones that Flink's own tool prints, to the byte.

use crate::conf::{Defaulted, FlinkConfig, InvalidOption, Key, MemorySize};

mod error;
mod job_manager;
mod task_manager;
mod usage;

pub use error::MemoryError;
pub(crate) use job_manager::PROCESS as JOB_MANAGER_PROCESS;
pub use job_manager::{DirectLimit, JobManagerMemory};
pub(crate) use task_manager::PROCESS as TASK_MANAGER_PROCESS;
pub use task_manager::{TaskManagerMemory, cores};
pub use usage::ClusterUsage;

/// The part of a process that belongs to the JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JvmMemory {
    /// Classes.
    pub metaspace: MemorySize,
    /// Thread stacks, code cache and whatever else a JVM needs.
    pub overhead: MemorySize,
}

/// A fraction of another size, and its limits.
struct Range {
    what: &'static str,
    min: MemorySize,
    max: MemorySize,
    fraction: f64,
}

/// The options of one kind of process, JobManager or TaskManager.
struct ProcessOptions {
    process: Key<MemorySize>,
    flink: Key<MemorySize>,
    metaspace: Defaulted<MemorySize>,
    overhead: RangeOptions,
    /// What a user configures in place of the two sizes above.
    components: &'static [Key<MemorySize>],
}

struct RangeOptions {
    what: &'static str,
    min: Defaulted<MemorySize>,
    max: Defaulted<MemorySize>,
    fraction: Defaulted<f32>,
}

/// What the rest of a process is derived from.
enum Basis {
    Components,
    Flink(MemorySize),
    Process(MemorySize),
}

impl ProcessOptions {
    /// What the configuration gives, in Flink's order: components, total Flink memory, total process memory.
    fn basis(&self, config: &FlinkConfig) -> Result<Basis, MemoryError> {
        if self
            .components
            .iter()
            .all(|component| config.contains(component))
        {
            return Ok(Basis::Components);
        }
        if let Some(flink) = config.find(&self.flink)? {
            return Ok(Basis::Flink(flink));
        }
        if let Some(process) = config.find(&self.process)? {
            return Ok(Basis::Process(process));
        }
        let components: Vec<&str> = self.components.iter().map(|key| key.name).collect();
        Err(MemoryError::NotConfigured {
            components: components.join(" and "),
            flink: self.flink.name,
            process: self.process.name,
        })
    }

    /// Metaspace and overhead of a process of this size.
    fn jvm_of_process(
        &self,
        config: &FlinkConfig,
        process: MemorySize,
    ) -> Result<JvmMemory, MemoryError> {
        let jvm = JvmMemory {
            metaspace: config.get(&self.metaspace)?,
            overhead: self.overhead.read(config)?.of(process)?,
        };
        match jvm.total() {
            Some(total) if total <= process => Ok(jvm),
            Some(_) | None => Err(MemoryError::JvmExceedsProcess { jvm, process }),
        }
    }

    /// Metaspace and overhead of a process with this much Flink memory.
    fn jvm_of_flink(
        &self,
        config: &FlinkConfig,
        flink: MemorySize,
    ) -> Result<JvmMemory, MemoryError> {
        let metaspace = config.get(&self.metaspace)?;
        let base = plus(flink, metaspace)?;
        let range = self.overhead.read(config)?;
        let Some(process) = config.find(&self.process)? else {
            let overhead = range.of_rest(base)?;
            return Ok(JvmMemory {
                metaspace,
                overhead,
            });
        };
        let overhead = process
            .minus(base)
            .ok_or(MemoryError::FlinkExceedsProcess {
                flink,
                metaspace,
                process,
            })?;
        range.check(overhead)?;
        Ok(JvmMemory {
            metaspace,
            overhead,
        })
    }
}

impl RangeOptions {
    fn read(&self, config: &FlinkConfig) -> Result<Range, MemoryError> {
        let range = Range {
            what: self.what,
            min: config.get(&self.min)?,
            max: config.get(&self.max)?,
            fraction: f64::from(config.get(&self.fraction)?),
        };
        if range.min <= range.max && (0.0..1.0).contains(&range.fraction) {
            Ok(range)
        } else {
            Err(MemoryError::Inconsistent {
                key: self.fraction.key.name,
                fraction: range.fraction,
                min: range.min,
                max: range.max,
            })
        }
    }
}

impl Range {
    /// This fraction of a size, within the limits.
    fn of(&self, whole: MemorySize) -> Result<MemorySize, MemoryError> {
        self.clamp(whole.times(self.fraction))
    }

    /// This fraction of a whole, of which the other parts are known.
    fn of_rest(&self, rest: MemorySize) -> Result<MemorySize, MemoryError> {
        self.clamp(rest.times(self.fraction / (1.0 - self.fraction)))
    }

    fn clamp(&self, size: Option<MemorySize>) -> Result<MemorySize, MemoryError> {
        let size = size.ok_or(MemoryError::Overflow)?;
        Ok(size.clamp(self.min, self.max))
    }

    /// Whether a size that follows from the others is within the limits.
    fn check(&self, derived: MemorySize) -> Result<(), MemoryError> {
        if (self.min..=self.max).contains(&derived) {
            Ok(())
        } else {
            Err(MemoryError::OutOfRange {
                what: self.what,
                derived,
                min: self.min,
                max: self.max,
            })
        }
    }
}

impl JvmMemory {
    fn total(self) -> Option<MemorySize> {
        self.metaspace.plus(self.overhead)
    }
}

impl From<InvalidOption> for MemoryError {
    fn from(invalid: InvalidOption) -> Self {
        Self::Invalid(invalid)
    }
}

fn plus(one: MemorySize, other: MemorySize) -> Result<MemorySize, MemoryError> {
    one.plus(other).ok_or(MemoryError::Overflow)
}

fn sum(parts: impl IntoIterator<Item = MemorySize>) -> Result<MemorySize, MemoryError> {
    parts.into_iter().try_fold(MemorySize::ZERO, plus)
}

/// Writes dynamic properties: `-D key=value -D key=value`.
fn properties<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let written: Vec<String> = pairs
        .into_iter()
        .map(|(key, value)| format!("-D {key}={value}"))
        .collect();
    written.join(" ")
}

#[cfg(test)]
mod tests;
