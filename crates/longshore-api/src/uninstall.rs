//! The mark of an uninstalled role, at which a controller that still runs, or is started again, does nothing.

/// `holderIdentity` of the Lease of a role that was uninstalled. Controllers wait for its end like for that of any other
/// holder, and it has none.
pub const HOLDER_UNINSTALLED: &str = "longshore-uninstall";
/// `leaseDurationSeconds` of that Lease: the longest that a Lease can say, 68 years.
pub const UNINSTALLED_FOR_SECONDS: i32 = i32::MAX;
