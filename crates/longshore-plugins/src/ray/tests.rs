use crate::scenarios::{builds, refuses, says};

#[test]
fn templates_become_resources() {
    builds("ray", "job");
    builds("ray", "http");
    builds("ray", "devices");
}

#[test]
fn what_cannot_be_built_is_refused_with_its_reason() {
    refuses("ray");
}

#[test]
fn statuses_are_understood() {
    says("ray");
}
