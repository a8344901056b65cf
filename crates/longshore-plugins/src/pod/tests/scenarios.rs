use crate::scenarios::{builds, says};

#[test]
fn templates_become_pods() {
    for name in [
        "co-pilot",
        "co-pilot-secret",
        "pod-template",
        "device-class-template",
        "editor",
        "editor-beside",
    ] {
        builds("pod", name);
    }
}

#[test]
fn pods_tell_where_their_logs_are() {
    says("pod");
}
