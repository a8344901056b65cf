//! The memory of a JobManager (Flink: `JobManagerProcessUtils`, `JobManagerFlinkMemoryUtils`).

use super::{Basis, JvmMemory, MemoryError, ProcessOptions, RangeOptions, plus, properties, sum};
use crate::conf::{Defaulted, FlinkConfig, Key, MemorySize};

/// Memory of the whole process.
pub(crate) const PROCESS: Key<MemorySize> = Key::new("jobmanager.memory.process.size");
const HEAP: Key<MemorySize> = Key::new("jobmanager.memory.heap.size");
const OFF_HEAP: Defaulted<MemorySize> = Key::new("jobmanager.memory.off-heap.size").or("128 mb");
const DIRECT_LIMIT: Defaulted<bool> =
    Key::new("jobmanager.memory.enable-jvm-direct-memory-limit").or("false");

const OPTIONS: ProcessOptions = ProcessOptions {
    process: PROCESS,
    flink: Key::new("jobmanager.memory.flink.size"),
    metaspace: Key::new("jobmanager.memory.jvm-metaspace.size").or("256 mb"),
    overhead: RangeOptions {
        what: "JVM Overhead",
        min: Key::new("jobmanager.memory.jvm-overhead.min").or("192 mb"),
        max: Key::new("jobmanager.memory.jvm-overhead.max").or("1 gb"),
        fraction: Key::new("jobmanager.memory.jvm-overhead.fraction").or("0.1"),
    },
    components: &[HEAP],
};

/// The memory of a JobManager, by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobManagerMemory {
    /// The heap of the JVM.
    pub heap: MemorySize,
    /// Direct and native memory of Flink.
    pub off_heap: MemorySize,
    /// The JVM's own part.
    pub jvm: JvmMemory,
    /// Whether the JVM limits direct memory.
    pub direct_limit: DirectLimit,
    process: MemorySize,
}

/// Whether a JVM limits its direct memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectLimit {
    /// To the off-heap memory.
    OffHeap,
    /// Not at all.
    None,
}

impl JobManagerMemory {
    /// The memory of the JobManager that this configuration describes.
    ///
    /// # Errors
    /// [`MemoryError`] where the sizes are missing, or do not fit together.
    pub fn derive(config: &FlinkConfig) -> Result<Self, MemoryError> {
        let off_heap = config.get(&OFF_HEAP)?;
        let (heap, jvm) = match OPTIONS.basis(config)? {
            Basis::Components => {
                let heap = config.find(&HEAP)?.unwrap_or_default();
                let flink = plus(heap, off_heap)?;
                check_total(config, heap, off_heap, flink)?;
                (heap, OPTIONS.jvm_of_flink(config, flink)?)
            }
            Basis::Flink(flink) => (
                heap_of(flink, off_heap)?,
                OPTIONS.jvm_of_flink(config, flink)?,
            ),
            Basis::Process(process) => {
                let jvm = OPTIONS.jvm_of_process(config, process)?;
                let flink = jvm.total().and_then(|total| process.minus(total));
                (heap_of(flink.unwrap_or_default(), off_heap)?, jvm)
            }
        };
        let direct_limit = if config.get(&DIRECT_LIMIT)? {
            DirectLimit::OffHeap
        } else {
            DirectLimit::None
        };
        Ok(Self {
            heap,
            off_heap,
            jvm,
            direct_limit,
            process: sum([heap, off_heap, jvm.metaspace, jvm.overhead])?,
        })
    }

    /// The whole process: what its container needs.
    #[must_use]
    pub const fn process(&self) -> MemorySize {
        self.process
    }

    /// The options of the JVM, as Flink's tool prints them.
    #[must_use]
    pub fn jvm_parameters(&self) -> String {
        let heap = self.heap.bytes();
        let direct = match self.direct_limit {
            DirectLimit::OffHeap => {
                format!(" -XX:MaxDirectMemorySize={}", self.off_heap.bytes())
            }
            DirectLimit::None => String::new(),
        };
        let metaspace = self.jvm.metaspace.bytes();
        format!("-Xmx{heap} -Xms{heap}{direct} -XX:MaxMetaspaceSize={metaspace}")
    }

    /// The dynamic properties, as Flink's tool prints them.
    #[must_use]
    pub fn dynamic_properties(&self) -> String {
        let bytes = |size: MemorySize| format!("{}b", size.bytes());
        properties([
            (OFF_HEAP.key.name, bytes(self.off_heap)),
            (OPTIONS.overhead.min.key.name, bytes(self.jvm.overhead)),
            (OPTIONS.metaspace.key.name, bytes(self.jvm.metaspace)),
            (HEAP.name, bytes(self.heap)),
            (OPTIONS.overhead.max.key.name, bytes(self.jvm.overhead)),
        ])
    }
}

fn check_total(
    config: &FlinkConfig,
    heap: MemorySize,
    off_heap: MemorySize,
    derived: MemorySize,
) -> Result<(), MemoryError> {
    match config.find(&OPTIONS.flink)? {
        Some(flink) if flink != derived => Err(MemoryError::HeapIsNotTheRest {
            heap,
            off_heap,
            flink,
        }),
        Some(_) | None => Ok(()),
    }
}

fn heap_of(flink: MemorySize, off_heap: MemorySize) -> Result<MemorySize, MemoryError> {
    match flink.minus(off_heap) {
        Some(heap) if heap > MemorySize::ZERO => Ok(heap),
        Some(_) | None => Err(MemoryError::NoHeap { flink, off_heap }),
    }
}
