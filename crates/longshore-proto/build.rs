//! Generates the messages that the executor needs from the descriptor set, so that the build needs no `protoc`.

use std::{collections::HashMap, env, fs, path::Path};

use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

const SET: &str = "proto/flyteidl2.fds.bin";
/// What we speak; what these import comes along.
const ROOTS: [&str; 16] = [
    "flyteidl2/cacheservice/v2/cacheservice.proto",
    "flyteidl2/connector/connector.proto",
    "flyteidl2/core/execution.proto",
    "flyteidl2/core/tasks.proto",
    "flyteidl2/plugins/clustered.proto",
    "flyteidl2/plugins/dask.proto",
    "flyteidl2/plugins/kubeflow/mpi.proto",
    "flyteidl2/plugins/kubeflow/pytorch.proto",
    "flyteidl2/plugins/kubeflow/tensorflow.proto",
    "flyteidl2/plugins/mpi.proto",
    "flyteidl2/plugins/pytorch.proto",
    "flyteidl2/plugins/ray.proto",
    "flyteidl2/plugins/spark.proto",
    "flyteidl2/plugins/tensorflow.proto",
    "flyteidl2/task/common.proto",
    "flyteidl2/workflow/events_proxy_service.proto",
];
/// The descriptors of these messages, which `json.rs` reads at run time.
const USED_SET: &str = "messages.fds.bin";

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script by a variable where its files go"
)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={SET}");
    let set = FileDescriptorSet::decode(fs::read(Path::new(SET))?.as_slice())?;
    let by_name: HashMap<&str, &FileDescriptorProto> =
        set.file.iter().map(|file| (file.name(), file)).collect();
    let mut wanted: Vec<&str> = ROOTS.to_vec();
    let mut next = 0;
    while let Some(name) = wanted.get(next).copied() {
        next += 1;
        let file = by_name
            .get(name)
            .ok_or_else(|| format!("{SET} has no {name}"))?;
        for import in &file.dependency {
            if !wanted.contains(&import.as_str()) {
                wanted.push(import);
            }
        }
    }
    let used = FileDescriptorSet {
        file: set
            .file
            .iter()
            .filter(|file| wanted.contains(&file.name()))
            .cloned()
            .collect(),
    };
    let out = env::var("OUT_DIR")?;
    fs::write(Path::new(&out).join(USED_SET), used.encode_to_vec())?;
    prost_build::Config::new()
        .include_file("messages.rs")
        .btree_map(["."])
        .enable_type_names()
        .compile_fds(used)?;
    Ok(())
}
