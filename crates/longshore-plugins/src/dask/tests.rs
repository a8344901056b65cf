use crate::scenarios::{builds, refuses, says};

#[test]
fn templates_become_resources() {
    builds("dask", "job");
}

#[test]
fn what_cannot_be_built_is_refused_with_its_reason() {
    refuses("dask");
}

#[test]
fn statuses_are_understood() {
    says("dask");
}
