//! The vectors of Flink's own tool, and what it refuses.

use serde_json::Value;

use super::*;

const VECTORS: &str = include_str!("../../testdata/memory/vectors.json");

fn vectors(kind: &str) -> Vec<Value> {
    let parsed: Value = serde_json::from_str(VECTORS).unwrap();
    parsed[kind].as_array().unwrap().clone()
}

fn config_of(vector: &Value) -> FlinkConfig {
    let pairs = vector["config"].as_object().unwrap().iter();
    pairs
        .map(|(key, value)| (key.clone(), value.as_str().unwrap()))
        .collect()
}

fn config(pairs: &[(&str, &str)]) -> FlinkConfig {
    pairs.iter().copied().collect()
}

fn size(vector: &Value, field: &str) -> MemorySize {
    MemorySize::of_bytes(vector[field].as_u64().unwrap())
}

#[test]
fn job_managers_are_those_of_flinks_tool() {
    for vector in vectors("job_manager") {
        let found = JobManagerMemory::derive(&config_of(&vector)).unwrap();
        assert_eq!(found.heap, size(&vector, "heap"), "{vector}");
        assert_eq!(found.off_heap, size(&vector, "off_heap"), "{vector}");
        assert_eq!(found.jvm.overhead, size(&vector, "overhead"), "{vector}");
        assert_eq!(found.jvm.metaspace, MemorySize::of_mebibytes(256));
        if let Some(printed) = vector["jvm"].as_str() {
            assert_eq!(found.jvm_parameters(), printed);
        }
        if let Some(printed) = vector["dynamic"].as_str() {
            assert_eq!(found.dynamic_properties(), printed);
        }
    }
}

#[test]
fn task_managers_are_those_of_flinks_tool() {
    for vector in vectors("task_manager") {
        let config = config_of(&vector);
        let found = TaskManagerMemory::derive(&config).unwrap();
        assert_eq!(found.network, size(&vector, "network"), "{vector}");
        assert_eq!(found.managed, size(&vector, "managed"), "{vector}");
        assert_eq!(found.task_heap, size(&vector, "task_heap"), "{vector}");
        assert_eq!(found.jvm.overhead, size(&vector, "overhead"), "{vector}");
        let (xmx, direct) = (&vector["xmx"], &vector["direct"]);
        assert_eq!(
            found.jvm_parameters(),
            format!(
                "-Xmx{xmx} -Xms{xmx} -XX:MaxDirectMemorySize={direct} -XX:MaxMetaspaceSize=268435456"
            )
        );
    }
}

#[test]
fn an_overhead_is_a_fraction_within_its_limits() {
    for vector in vectors("documented") {
        let text = |field: &str| vector[field].as_str().unwrap().to_owned();
        let config = [
            ("jobmanager.memory.process.size", text("process")),
            ("jobmanager.memory.jvm-overhead.min", text("min")),
            ("jobmanager.memory.jvm-overhead.max", text("max")),
        ];
        let found = JobManagerMemory::derive(&config.into_iter().collect()).unwrap();
        assert_eq!(found.jvm.overhead, size(&vector, "overhead"), "{vector}");
    }
}

#[test]
fn a_process_is_the_sum_of_its_parts() {
    for (size, mebibytes) in [("1024m", 1024), ("1728m", 1728), ("8g", 8192)] {
        let process = MemorySize::of_mebibytes(mebibytes);
        let found = JobManagerMemory::derive(&config(&[("jobmanager.memory.process.size", size)]));
        assert_eq!(found.unwrap().process(), process);
        let found =
            TaskManagerMemory::derive(&config(&[("taskmanager.memory.process.size", size)]));
        assert_eq!(found.unwrap().process(), process);
    }
}

#[test]
fn a_job_manager_may_be_given_by_its_heap() {
    let by_heap = config(&[("jobmanager.memory.heap.size", "1000m")]);
    let found = JobManagerMemory::derive(&by_heap).unwrap();
    assert_eq!(found.heap, MemorySize::of_mebibytes(1000));
    assert_eq!(
        found.process(),
        MemorySize::of_mebibytes(1000 + 128 + 256 + 192)
    );

    let with_process = config(&[
        ("jobmanager.memory.heap.size", "1000m"),
        ("jobmanager.memory.process.size", "1600m"),
        ("jobmanager.memory.enable-jvm-direct-memory-limit", "true"),
    ]);
    let found = JobManagerMemory::derive(&with_process).unwrap();
    assert_eq!(found.jvm.overhead, MemorySize::of_mebibytes(216));
    assert_eq!(
        found.jvm_parameters(),
        "-Xmx1048576000 -Xms1048576000 -XX:MaxDirectMemorySize=134217728 -XX:MaxMetaspaceSize=268435456"
    );
}

#[test]
fn a_task_manager_may_be_given_by_its_heap_and_managed_memory() {
    let components = config(&[
        ("taskmanager.memory.task.heap.size", "800m"),
        ("taskmanager.memory.managed.size", "740m"),
    ]);
    let found = TaskManagerMemory::derive(&components).unwrap();
    // A ninth of 128 + 128 + 800 + 740 MiB.
    assert_eq!(found.network.mebibytes(), 199);
    assert!(found.jvm_parameters().starts_with("-Xmx973078528 "));

    let mut with_total = components;
    with_total.set_text("taskmanager.memory.flink.size", "2000m");
    let found = TaskManagerMemory::derive(&with_total).unwrap();
    assert_eq!(found.network, MemorySize::of_mebibytes(204));

    let managed_by_fraction = config(&[
        ("taskmanager.memory.task.heap.size", "800m"),
        ("taskmanager.memory.flink.size", "2000m"),
    ]);
    let found = TaskManagerMemory::derive(&managed_by_fraction).unwrap();
    assert_eq!(found.managed.mebibytes(), 800);
    assert_eq!(found.network.mebibytes(), 143);
}

#[test]
fn dynamic_properties_of_a_task_manager_name_every_part() {
    for (pairs, cores) in [
        (vec![("taskmanager.numberOfTaskSlots", "2")], "2.0"),
        (vec![("kubernetes.taskmanager.cpu.amount", "0.5")], "0.5"),
        (
            vec![
                ("kubernetes.taskmanager.cpu.amount", "0.5"),
                ("taskmanager.cpu.cores", "3"),
            ],
            "3.0",
        ),
    ] {
        let mut config = config(&pairs);
        config.set_text("taskmanager.memory.process.size", "1024m");
        let found = TaskManagerMemory::derive(&config).unwrap();
        let slots = config.text("taskmanager.numberOfTaskSlots").unwrap_or("1");
        assert_eq!(
            found.dynamic_properties(&config).unwrap(),
            format!(
                "-D taskmanager.memory.network.min=67108864b -D taskmanager.cpu.cores={cores} \
                 -D taskmanager.memory.task.off-heap.size=0b -D taskmanager.memory.jvm-metaspace.size=268435456b \
                 -D external-resources=none -D taskmanager.memory.jvm-overhead.min=201326592b \
                 -D taskmanager.memory.framework.off-heap.size=134217728b \
                 -D taskmanager.memory.network.max=67108864b \
                 -D taskmanager.memory.framework.heap.size=134217728b \
                 -D taskmanager.memory.managed.size=241591914b \
                 -D taskmanager.memory.task.heap.size=26843542b -D taskmanager.numberOfTaskSlots={slots} \
                 -D taskmanager.memory.jvm-overhead.max=201326592b"
            )
        );
    }
}

#[test]
fn job_managers_that_cannot_start_are_refused() {
    for (pairs, message) in [
        (
            vec![],
            "Either required fine-grained memory (jobmanager.memory.heap.size), or Total Flink Memory size (jobmanager.memory.flink.size), or Total Process Memory size (jobmanager.memory.process.size) need to be configured explicitly.",
        ),
        (
            vec![("jobmanager.memory.process.size", "300m")],
            "Sum of configured JVM Metaspace (256.000mb (268435456 bytes)) and JVM Overhead (192.000mb (201326592 bytes)) exceed configured Total Process Memory (300.000mb (314572800 bytes)).",
        ),
        (
            vec![("jobmanager.memory.process.size", "500m")],
            "The configured Total Flink Memory (52.000mb (54525952 bytes)) is less than the configured Off-heap Memory (128.000mb (134217728 bytes)).",
        ),
        (
            vec![
                ("jobmanager.memory.flink.size", "1g"),
                ("jobmanager.memory.process.size", "1g"),
            ],
            "Sum of Total Flink Memory (1024.000mb (1073741824 bytes)) and JVM Metaspace (256.000mb (268435456 bytes)) exceed configured Total Process Memory (1024.000mb (1073741824 bytes)).",
        ),
        (
            vec![
                ("jobmanager.memory.flink.size", "1000m"),
                ("jobmanager.memory.process.size", "4000m"),
            ],
            "Derived JVM Overhead size (2.680gb (2877292544 bytes)) is not in configured JVM Overhead range [192.000mb (201326592 bytes), 1024.000mb (1073741824 bytes)].",
        ),
        (
            vec![
                ("jobmanager.memory.heap.size", "1000m"),
                ("jobmanager.memory.flink.size", "1000m"),
            ],
            "Sum of the configured JVM Heap Memory (1000.000mb (1048576000 bytes)) and the configured or default Off-heap Memory (128.000mb (134217728 bytes)) exceeds the configured Total Flink Memory (1000.000mb (1048576000 bytes)). Please, make the configuration consistent or configure only one option: either JVM Heap or Total Flink Memory.",
        ),
        (
            vec![
                ("jobmanager.memory.process.size", "1g"),
                ("jobmanager.memory.jvm-overhead.min", "2g"),
            ],
            "Inconsistently configured jobmanager.memory.jvm-overhead.fraction (0.10000000149011612) and its min (2.000gb (2147483648 bytes)), max (1024.000mb (1073741824 bytes)) value",
        ),
        (
            vec![("jobmanager.memory.process.size", "lots")],
            "the value of the configuration key `jobmanager.memory.process.size` cannot be used; correct it in the configuration",
        ),
    ] {
        let error = JobManagerMemory::derive(&config(&pairs)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn task_managers_that_cannot_start_are_refused() {
    for (pairs, message) in [
        (
            vec![("taskmanager.memory.process.size", "700m")],
            "Sum of configured Framework Heap Memory (128.000mb (134217728 bytes)), Framework Off-Heap Memory (128.000mb (134217728 bytes)), Task Off-Heap Memory (0 bytes), Managed Memory (100.800mb (105696462 bytes)) and Network Memory (64.000mb (67108864 bytes)) exceed configured Total Flink Memory (252.000mb (264241152 bytes)).",
        ),
        (
            vec![
                ("taskmanager.memory.flink.size", "1g"),
                ("taskmanager.memory.task.heap.size", "300m"),
                ("taskmanager.memory.managed.size", "100m"),
                ("taskmanager.memory.network.max", "64m"),
            ],
            "Derived Network Memory size (368.000mb (385875968 bytes)) is not in configured Network Memory range [64.000mb (67108864 bytes), 64.000mb (67108864 bytes)].",
        ),
        (
            vec![
                ("taskmanager.memory.process.size", "1g"),
                ("taskmanager.memory.managed.fraction", "1.5"),
            ],
            "Inconsistently configured taskmanager.memory.managed.fraction (1.5) and its min (0 bytes), max (8388608.000tb (9223372036854775807 bytes)) value",
        ),
        (
            vec![("taskmanager.memory.task.heap.size", "300m")],
            "Either required fine-grained memory (taskmanager.memory.task.heap.size and taskmanager.memory.managed.size), or Total Flink Memory size (taskmanager.memory.flink.size), or Total Process Memory size (taskmanager.memory.process.size) need to be configured explicitly.",
        ),
        (
            vec![
                ("taskmanager.memory.task.heap.size", "9223372036854775807"),
                ("taskmanager.memory.managed.size", "1g"),
            ],
            "The configured memory sizes add up to more than 9223372036854775807 bytes; lower them.",
        ),
    ] {
        let error = TaskManagerMemory::derive(&config(&pairs)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
