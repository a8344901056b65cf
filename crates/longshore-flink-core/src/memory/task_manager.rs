//! The memory of a TaskManager (Flink: `TaskExecutorProcessUtils`, `TaskExecutorFlinkMemoryUtils`).

use super::{Basis, JvmMemory, MemoryError, ProcessOptions, RangeOptions, properties, sum};
use crate::conf::{Defaulted, FlinkConfig, Key, MemorySize, options, value::write_double};

/// Memory of the whole process.
pub(crate) const PROCESS: Key<MemorySize> = Key::new("taskmanager.memory.process.size");
const FRAMEWORK_HEAP: Defaulted<MemorySize> =
    Key::new("taskmanager.memory.framework.heap.size").or("128 mb");
const FRAMEWORK_OFF_HEAP: Defaulted<MemorySize> =
    Key::new("taskmanager.memory.framework.off-heap.size").or("128 mb");
const TASK_HEAP: Key<MemorySize> = Key::new("taskmanager.memory.task.heap.size");
const TASK_OFF_HEAP: Defaulted<MemorySize> =
    Key::new("taskmanager.memory.task.off-heap.size").or("0 bytes");
const MANAGED: Key<MemorySize> = Key::with_older(
    "taskmanager.memory.managed.size",
    &["taskmanager.memory.size"],
);
const MANAGED_FRACTION: Defaulted<f32> = Key::new("taskmanager.memory.managed.fraction").or("0.4");
const NETWORK: RangeOptions = RangeOptions {
    what: "Network Memory",
    min: Key::with_older(
        "taskmanager.memory.network.min",
        &["taskmanager.network.memory.min"],
    )
    .or("64 mb"),
    // No limit since Flink 1.17; 1 gb before.
    max: Key::with_older(
        "taskmanager.memory.network.max",
        &["taskmanager.network.memory.max"],
    )
    .or("9223372036854775807 bytes"),
    fraction: Key::with_older(
        "taskmanager.memory.network.fraction",
        &["taskmanager.network.memory.fraction"],
    )
    .or("0.1"),
};
const CPU_CORES: Key<f64> = Key::new("taskmanager.cpu.cores");

const OPTIONS: ProcessOptions = ProcessOptions {
    process: PROCESS,
    flink: Key::new("taskmanager.memory.flink.size"),
    metaspace: Key::new("taskmanager.memory.jvm-metaspace.size").or("256 mb"),
    overhead: RangeOptions {
        what: "JVM Overhead",
        min: Key::new("taskmanager.memory.jvm-overhead.min").or("192 mb"),
        max: Key::new("taskmanager.memory.jvm-overhead.max").or("1 gb"),
        fraction: Key::new("taskmanager.memory.jvm-overhead.fraction").or("0.1"),
    },
    components: &[TASK_HEAP, MANAGED],
};

/// The memory of a TaskManager, by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagerMemory {
    /// Heap of Flink itself.
    pub framework_heap: MemorySize,
    /// Direct and native memory of Flink itself.
    pub framework_off_heap: MemorySize,
    /// Heap of the job.
    pub task_heap: MemorySize,
    /// Direct and native memory of the job.
    pub task_off_heap: MemorySize,
    /// Buffers of the network.
    pub network: MemorySize,
    /// State backends, sorting, Python.
    pub managed: MemorySize,
    /// The JVM's own part.
    pub jvm: JvmMemory,
    heap: MemorySize,
    direct: MemorySize,
    process: MemorySize,
}

/// What Flink uses whether or not anything was configured.
struct Fixed {
    framework_heap: MemorySize,
    framework_off_heap: MemorySize,
    task_off_heap: MemorySize,
}

/// What remains to be found out.
struct Parts {
    task_heap: MemorySize,
    network: MemorySize,
    managed: MemorySize,
}

impl TaskManagerMemory {
    /// The memory of the TaskManagers that this configuration describes.
    ///
    /// # Errors
    /// [`MemoryError`] where the sizes are missing, or do not fit together.
    pub fn derive(config: &FlinkConfig) -> Result<Self, MemoryError> {
        let fixed = Fixed {
            framework_heap: config.get(&FRAMEWORK_HEAP)?,
            framework_off_heap: config.get(&FRAMEWORK_OFF_HEAP)?,
            task_off_heap: config.get(&TASK_OFF_HEAP)?,
        };
        let (parts, jvm) = match OPTIONS.basis(config)? {
            Basis::Components => {
                let parts = fixed.parts_of_components(config)?;
                let flink = fixed.total(&parts)?;
                (parts, OPTIONS.jvm_of_flink(config, flink)?)
            }
            Basis::Flink(flink) => (
                fixed.parts_of_flink(config, flink)?,
                OPTIONS.jvm_of_flink(config, flink)?,
            ),
            Basis::Process(process) => {
                let jvm = OPTIONS.jvm_of_process(config, process)?;
                let flink = jvm.total().and_then(|total| process.minus(total));
                let flink = flink.unwrap_or_default();
                (fixed.parts_of_flink(config, flink)?, jvm)
            }
        };
        let total = fixed.total(&parts)?;
        Ok(Self {
            framework_heap: fixed.framework_heap,
            framework_off_heap: fixed.framework_off_heap,
            task_heap: parts.task_heap,
            task_off_heap: fixed.task_off_heap,
            network: parts.network,
            managed: parts.managed,
            jvm,
            heap: sum([fixed.framework_heap, parts.task_heap])?,
            direct: sum([fixed.framework_off_heap, fixed.task_off_heap, parts.network])?,
            process: sum([total, jvm.metaspace, jvm.overhead])?,
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
        let (heap, direct) = (self.heap.bytes(), self.direct.bytes());
        let metaspace = self.jvm.metaspace.bytes();
        format!(
            "-Xmx{heap} -Xms{heap} -XX:MaxDirectMemorySize={direct} -XX:MaxMetaspaceSize={metaspace}"
        )
    }

    /// The dynamic properties, as Flink's tool prints them for a TaskManager of this configuration.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] where cores or slots are no numbers.
    pub fn dynamic_properties(&self, config: &FlinkConfig) -> Result<String, MemoryError> {
        let slots = config.get(&options::SLOTS)?;
        let bytes = |size: MemorySize| format!("{}b", size.bytes());
        Ok(properties([
            (NETWORK.min.key.name, bytes(self.network)),
            (CPU_CORES.name, write_double(cores(config, slots)?)),
            (TASK_OFF_HEAP.key.name, bytes(self.task_off_heap)),
            (OPTIONS.metaspace.key.name, bytes(self.jvm.metaspace)),
            ("external-resources", "none".to_owned()),
            (OPTIONS.overhead.min.key.name, bytes(self.jvm.overhead)),
            (FRAMEWORK_OFF_HEAP.key.name, bytes(self.framework_off_heap)),
            (NETWORK.max.key.name, bytes(self.network)),
            (FRAMEWORK_HEAP.key.name, bytes(self.framework_heap)),
            (MANAGED.name, bytes(self.managed)),
            (TASK_HEAP.name, bytes(self.task_heap)),
            (options::SLOTS.key.name, slots.to_string()),
            (OPTIONS.overhead.max.key.name, bytes(self.jvm.overhead)),
        ]))
    }
}

/// Cores of a TaskManager: as configured, as its container has them, or one for each slot (Flink:
/// `TaskExecutorProcessUtils.getCpuCoresWithFallback`).
///
/// # Errors
/// [`MemoryError::Invalid`] where the value is no number.
pub fn cores(config: &FlinkConfig, slots: i32) -> Result<f64, MemoryError> {
    if let Some(cores) = config.find(&CPU_CORES)? {
        return Ok(cores);
    }
    let container = config.get(&options::TASK_MANAGER_CPU)?;
    Ok(if container > 0.0 {
        container
    } else {
        f64::from(slots)
    })
}

impl Fixed {
    fn total(&self, parts: &Parts) -> Result<MemorySize, MemoryError> {
        sum([
            self.framework_heap,
            self.framework_off_heap,
            parts.task_heap,
            self.task_off_heap,
            parts.network,
            parts.managed,
        ])
    }

    /// Task heap and managed memory are configured.
    fn parts_of_components(&self, config: &FlinkConfig) -> Result<Parts, MemoryError> {
        let task_heap = config.find(&TASK_HEAP)?.unwrap_or_default();
        let managed = config.find(&MANAGED)?.unwrap_or_default();
        let network = match config.find(&OPTIONS.flink)? {
            Some(flink) => self.network_of_rest(config, flink, task_heap, managed)?,
            None => {
                let rest = sum([
                    self.framework_heap,
                    self.framework_off_heap,
                    task_heap,
                    self.task_off_heap,
                    managed,
                ])?;
                NETWORK.read(config)?.of_rest(rest)?
            }
        };
        Ok(Parts {
            task_heap,
            network,
            managed,
        })
    }

    /// The total is known.
    fn parts_of_flink(
        &self,
        config: &FlinkConfig,
        flink: MemorySize,
    ) -> Result<Parts, MemoryError> {
        let managed = match config.find(&MANAGED)? {
            Some(managed) => managed,
            None => managed_range(config)?.of(flink)?,
        };
        if let Some(task_heap) = config.find(&TASK_HEAP)? {
            let network = self.network_of_rest(config, flink, task_heap, managed)?;
            return Ok(Parts {
                task_heap,
                network,
                managed,
            });
        }
        let network = NETWORK.read(config)?.of(flink)?;
        let parts = vec![
            ("Framework Heap Memory", self.framework_heap),
            ("Framework Off-Heap Memory", self.framework_off_heap),
            ("Task Off-Heap Memory", self.task_off_heap),
            ("Managed Memory", managed),
            ("Network Memory", network),
        ];
        Ok(Parts {
            task_heap: rest_of(flink, parts)?,
            network,
            managed,
        })
    }

    /// What all other components leave for the network.
    fn network_of_rest(
        &self,
        config: &FlinkConfig,
        flink: MemorySize,
        task_heap: MemorySize,
        managed: MemorySize,
    ) -> Result<MemorySize, MemoryError> {
        let parts = vec![
            ("Framework Heap Memory", self.framework_heap),
            ("Framework Off-Heap Memory", self.framework_off_heap),
            ("Task Heap Memory", task_heap),
            ("Task Off-Heap Memory", self.task_off_heap),
            ("Managed Memory", managed),
        ];
        let network = rest_of(flink, parts)?;
        NETWORK.read(config)?.check(network)?;
        Ok(network)
    }
}

fn managed_range(config: &FlinkConfig) -> Result<super::Range, MemoryError> {
    let fraction = f64::from(config.get(&MANAGED_FRACTION)?);
    let (min, max) = (MemorySize::ZERO, MemorySize::MAX);
    if (0.0..=1.0).contains(&fraction) {
        Ok(super::Range {
            what: "Managed Memory",
            min,
            max,
            fraction,
        })
    } else {
        Err(MemoryError::Inconsistent {
            key: MANAGED_FRACTION.key.name,
            fraction,
            min,
            max,
        })
    }
}

fn rest_of(
    flink: MemorySize,
    parts: Vec<(&'static str, MemorySize)>,
) -> Result<MemorySize, MemoryError> {
    let total = sum(parts.iter().map(|(_, size)| *size))?;
    flink
        .minus(total)
        .ok_or(MemoryError::ComponentsExceedFlink { parts, flink })
}
