use super::*;

#[test]
fn a_role_that_was_uninstalled_is_looked_for_sooner_than_others() {
    let uninstalled = CertificateError::Uninstalled {
        role: "podops".into(),
        namespace: "longshore".into(),
        lease: "longshore-podops".into(),
    };
    let unusable = CertificateError::Unusable {
        secret: "longshore-podops-webhook".into(),
        why: "it holds something else".into(),
    };
    assert_eq!(uninstalled.look_again(), UNINSTALLED_PAUSE);
    assert_eq!(unusable.look_again(), LOOK_AGAIN);
}
