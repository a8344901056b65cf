//! What is wrong with a memory configuration. The messages are Flink's.

use super::{InvalidOption, JvmMemory, MemorySize};

/// A memory configuration that no process can be started with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MemoryError {
    /// A value that is no amount of memory, or no number.
    #[error(transparent)]
    Invalid(InvalidOption),
    /// Neither of the three ways to configure memory is taken.
    #[error(
        "Either required fine-grained memory ({components}), or Total Flink Memory size ({flink}), or Total Process Memory size ({process}) need to be configured explicitly."
    )]
    NotConfigured {
        /// Keys of the components.
        components: String,
        /// Key of the total Flink memory.
        flink: &'static str,
        /// Key of the total process memory.
        process: &'static str,
    },
    /// The JVM's own part is larger than the process.
    #[error(
        "Sum of configured JVM Metaspace ({}) and JVM Overhead ({}) exceed configured Total Process Memory ({}).",
        jvm.metaspace.human(), jvm.overhead.human(), process.human()
    )]
    JvmExceedsProcess {
        /// The JVM's part.
        jvm: JvmMemory,
        /// The process.
        process: MemorySize,
    },
    /// Flink's part and the metaspace leave less than nothing for the overhead.
    #[error(
        "Sum of Total Flink Memory ({}) and JVM Metaspace ({}) exceed configured Total Process Memory ({}).",
        flink.human(), metaspace.human(), process.human()
    )]
    FlinkExceedsProcess {
        /// Flink's part.
        flink: MemorySize,
        /// The metaspace.
        metaspace: MemorySize,
        /// The process.
        process: MemorySize,
    },
    /// What is left for a component is outside of its limits.
    #[error("Derived {what} size ({}) is not in configured {what} range [{}, {}].", derived.human(), min.human(), max.human())]
    OutOfRange {
        /// Name of the component.
        what: &'static str,
        /// What is left.
        derived: MemorySize,
        /// Lower limit.
        min: MemorySize,
        /// Upper limit.
        max: MemorySize,
    },
    /// A fraction is not in [0, 1), or its lower limit is above the upper one.
    #[error(
        "Inconsistently configured {key} ({fraction}) and its min ({}), max ({}) value",
        min.human(), max.human()
    )]
    Inconsistent {
        /// Key of the fraction.
        key: &'static str,
        /// The fraction.
        fraction: f64,
        /// Lower limit.
        min: MemorySize,
        /// Upper limit.
        max: MemorySize,
    },
    /// The off-heap memory of a JobManager leaves no heap.
    #[error(
        "The configured Total Flink Memory ({}) is less than the configured Off-heap Memory ({}).",
        flink.human(), off_heap.human()
    )]
    NoHeap {
        /// Flink's part.
        flink: MemorySize,
        /// Off-heap memory.
        off_heap: MemorySize,
    },
    /// Heap and off-heap memory of a JobManager are not its total Flink memory.
    #[error(
        "Sum of the configured JVM Heap Memory ({}) and the configured or default Off-heap Memory ({}) exceeds the configured Total Flink Memory ({}). Please, make the configuration consistent or configure only one option: either JVM Heap or Total Flink Memory.",
        heap.human(), off_heap.human(), flink.human()
    )]
    HeapIsNotTheRest {
        /// Heap.
        heap: MemorySize,
        /// Off-heap memory.
        off_heap: MemorySize,
        /// Flink's part.
        flink: MemorySize,
    },
    /// The components of a TaskManager are larger than its total Flink memory.
    #[error("Sum of configured {} exceed configured Total Flink Memory ({}).", written(parts), flink.human())]
    ComponentsExceedFlink {
        /// Names and sizes.
        parts: Vec<(&'static str, MemorySize)>,
        /// Flink's part.
        flink: MemorySize,
    },
    /// An amount that 63 bits cannot hold.
    #[error(
        "The configured memory sizes add up to more than 9223372036854775807 bytes; lower them."
    )]
    Overflow,
}

/// `A (1 bytes), B (2 bytes) and C (3 bytes)`.
fn written(parts: &[(&'static str, MemorySize)]) -> String {
    let named = |(name, size): &(&str, MemorySize)| format!("{name} ({})", size.human());
    match parts.split_last() {
        Some((last, first)) if !first.is_empty() => {
            let first: Vec<String> = first.iter().map(named).collect();
            format!("{} and {}", first.join(", "), named(last))
        }
        Some((last, _)) => named(last),
        None => String::new(),
    }
}
