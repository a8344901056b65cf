//! The actor's part in volumes that follow what they show: objects of the API server, and labels and annotations of the pod.

use kube::ResourceExt;

use super::Actor;
use crate::{clock, sources, volumes};

impl Actor {
    /// Follows the objects of the volumes while containers run or may run again, and ends that otherwise.
    pub(super) fn sync_followers(&mut self) {
        if !self.local.has_shim || self.local.stop.is_some() || !volumes::has_files(&self.pod) {
            self.followers.clear();
            return;
        }
        let client = &self.shared.client;
        let namespace = self.pod.namespace().unwrap_or_default();
        for (kind, name) in sources::in_volumes(&self.pod) {
            let object = (kind, namespace.as_str(), name.as_str());
            self.followers.follow(&self.shared.followed, client, object);
        }
    }

    /// What a volume shows has changed: its content is to be read again.
    pub(super) fn learn_change(&mut self) {
        if !self.local.has_shim || !volumes::has_files(&self.pod) {
            return;
        }
        let refresh = &mut self.local.refresh;
        refresh.due_at = Some(clock::now());
        // What is being read may be the content of before.
        refresh.is_outdated = refresh.is_in_flight;
    }
}
