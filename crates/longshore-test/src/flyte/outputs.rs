//! Outputs of scripted pods, in files: the pod names the directory with its last argument.

use std::{fs, io, path::Path};

use k8s_openapi::api::core::v1::Pod;
use longshore_proto::flyteidl2::core::{
    Literal, LiteralMap, TypedInterface, VariableEntry, VariableMap,
};
use prost::Message;

/// The name of the only output.
pub const OUTPUT: &str = "made_by";
/// In the directory.
const FILE: &str = "outputs.pb";

/// The arguments of a container that leaves outputs, as a template of Flyte's has them.
pub fn arguments() -> Vec<String> {
    vec!["--outputs".to_owned(), "{{.outputPrefix}}".to_owned()]
}

/// The interface that such a task declares.
pub fn interface() -> TypedInterface {
    let outputs = VariableMap {
        variables: vec![VariableEntry {
            key: OUTPUT.to_owned(),
            ..VariableEntry::default()
        }],
    };
    TypedInterface {
        inputs: None,
        outputs: Some(outputs),
    }
}

/// What the code of such a pod does at its end, where it succeeds: its outputs say which pod made them. See
/// [`NodeConfig::at_the_end`](crate::NodeConfig).
pub fn leave(pod: &Pod, code: i32) {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let args = container.and_then(|container| container.args.as_ref());
    let directory = args
        .and_then(|args| args.last())
        .and_then(|url| path_of(url));
    if let (Some(directory), 0) = (directory, code) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if let Err(error) = write(directory, name) {
            tracing::error!(%error, name, "a scripted pod cannot leave its outputs");
        }
    }
}

/// The pod that made the outputs in this directory, a URL.
///
/// # Errors
/// There are none, or they are not what a scripted pod leaves.
pub fn made_by(directory: &str) -> io::Result<String> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let directory = path_of(directory).ok_or_else(|| bad("expected a URL of a file"))?;
    let outputs = fs::read(directory.join(FILE))?;
    let outputs = LiteralMap::decode(outputs.as_slice()).map_err(io::Error::other)?;
    let literal = outputs.literals.get(OUTPUT);
    Ok(literal.ok_or_else(|| bad("no such output"))?.hash.clone())
}

fn path_of(url: &str) -> Option<&Path> {
    url.strip_prefix("file://").map(Path::new)
}

fn write(directory: &Path, name: &str) -> io::Result<()> {
    let made_by = Literal {
        hash: name.to_owned(),
        ..Literal::default()
    };
    let outputs = LiteralMap {
        literals: [(OUTPUT.to_owned(), made_by)].into(),
    };
    fs::create_dir_all(directory)?;
    // One atomic write: a reader must not find half of the file.
    longshore_files::replace_unsynced(&directory.join(FILE), 0o644, &outputs.encode_to_vec())
}
