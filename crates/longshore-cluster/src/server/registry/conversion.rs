//! Two versions of one stored resource: Events are stored as core/v1 and served as events.k8s.io/v1 too,
//! HorizontalPodAutoscalers as autoscaling/v2 and autoscaling/v1.

use serde_json::Value;

use super::autoscalers;
use crate::server::meta;

/// How the served form of a resource differs from the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Events of `events.k8s.io/v1`.
    Events,
    /// HorizontalPodAutoscalers of `autoscaling/v1`.
    Autoscalers,
}

/// Members of Events that have two names: stored, served.
const OF_EVENTS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

impl Conversion {
    /// From the form that clients of this version send to the stored one.
    pub(crate) fn to_stored(self, mut object: Value) -> Value {
        object["apiVersion"] = match self {
            Conversion::Events => "v1",
            Conversion::Autoscalers => "autoscaling/v2",
        }
        .into();
        match self {
            Conversion::Events => {
                let renamed = OF_EVENTS.iter().map(|(stored, served)| (*served, *stored));
                rename(&mut object, renamed);
            }
            Conversion::Autoscalers => autoscalers::to_stored(&mut object),
        }
        object
    }

    /// From the stored form to the one that clients of this version get.
    pub(crate) fn to_served(self, mut object: Value) -> Value {
        object["apiVersion"] = match self {
            Conversion::Events => "events.k8s.io/v1",
            Conversion::Autoscalers => "autoscaling/v1",
        }
        .into();
        match self {
            Conversion::Events => rename(&mut object, OF_EVENTS.iter().copied()),
            Conversion::Autoscalers => autoscalers::to_served(&mut object),
        }
        object
    }
}

/// Gives members other names: from, to.
fn rename(object: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let members = meta::members(object);
    for (from, to) in pairs {
        if let Some(value) = members.remove(from) {
            members.insert(to.into(), value);
        }
    }
}
