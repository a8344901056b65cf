use crate::scenarios::{builds, refuses, says};

#[test]
fn templates_become_resources() {
    for name in [
        "pytorch-0",
        "pytorch-0-elastic",
        "pytorch-1",
        "tensorflow-0",
        "tensorflow-1",
        "mpi-0",
        "mpi-1",
    ] {
        builds("kubeflow", name);
    }
}

#[test]
fn what_cannot_be_built_is_refused_with_its_reason() {
    refuses("kubeflow");
}

#[test]
fn statuses_are_understood() {
    says("kubeflow");
}
