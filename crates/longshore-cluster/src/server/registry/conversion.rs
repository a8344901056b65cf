//! Two versions of one stored resource: Events are stored as core/v1 and served as events.k8s.io/v1 too.

use serde_json::Value;

use crate::server::meta;

/// How the served form of a resource differs from the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conversion {
    /// `apiVersion` of the stored form.
    stored_version: &'static str,
    /// `apiVersion` of the served form.
    served_version: &'static str,
    /// Members that have two names: stored, served.
    renamed: &'static [(&'static str, &'static str)],
}

/// Events of `events.k8s.io/v1`.
pub(super) const EVENTS: Conversion = Conversion {
    stored_version: "v1",
    served_version: "events.k8s.io/v1",
    renamed: &[
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("reportingComponent", "reportingController"),
    ],
};

impl Conversion {
    /// From the form that clients of this version send to the stored one.
    pub(crate) fn to_stored(self, mut object: Value) -> Value {
        self.rename(&mut object, self.stored_version, |(stored, served)| {
            (served, stored)
        });
        object
    }

    /// From the stored form to the one that clients of this version get.
    pub(crate) fn to_served(self, mut object: Value) -> Value {
        self.rename(&mut object, self.served_version, |(stored, served)| {
            (stored, served)
        });
        object
    }

    fn rename(
        self,
        object: &mut Value,
        api_version: &str,
        direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
    ) {
        let members = meta::members(object);
        members.insert("apiVersion".into(), api_version.into());
        for pair in self.renamed {
            let (from, to) = direction(*pair);
            if let Some(value) = members.remove(from) {
                members.insert(to.into(), value);
            }
        }
    }
}
