//! The actor's part in volumes that follow what they show: objects of the API server, and labels and annotations of the pod.

use kube::ResourceExt;

use super::Actor;
use crate::{env::HostFacts, followed::Told, sources, volumes};

impl Actor {
    /// Follows the objects of the volumes while containers run or may run again, and ends that otherwise.
    pub(super) fn sync_followers(&mut self) {
        if !self.local.has_shim || self.local.stop.is_some() || !volumes::has_files(&self.pod) {
            self.followers.clear();
            return;
        }
        let client = &self.shared.client;
        if self.sources.is_none() {
            // An earlier node prepared the pod.
            self.followers.read(client.clone(), self.pod.clone());
            return;
        }
        let namespace = self.pod.namespace().unwrap_or_default();
        for (kind, name) in sources::in_volumes(&self.pod) {
            let object = (kind, namespace.as_str(), name.as_str());
            self.followers.follow(&self.shared.followed, client, object);
        }
    }

    /// Takes what a followed object is now.
    pub(super) fn learn_followed(&mut self, told: Told) {
        match told {
            Told::Sources(sources) => self.sources = Some(sources),
            Told::Object(kind, name, data) => {
                if let Some(sources) = &mut self.sources {
                    sources.insert(kind, &name, data);
                }
            }
        }
        self.refresh_volumes();
    }

    /// Brings the files of all volumes up to date, as far as they can be made: others stay as they are.
    pub(super) fn refresh_volumes(&self) {
        let Some(sources) = &self.sources else { return };
        if self.local.stop.is_some() || !self.local.has_shim {
            return;
        }
        let host = HostFacts {
            pod_ip: self.pod_ip.to_string(),
            ..self.shared.host.clone()
        };
        let store = volumes::Store {
            pod_dir: &self.dir,
            claims: &self.shared.config.root.join("volumes"),
            pod: &self.pod,
            sources,
            host: &host,
        };
        if let Err(refusal) = volumes::refresh(&store) {
            let why = refusal.message;
            tracing::warn!(pod = %self.this.name, why, "a volume stays as it is");
        }
    }
}
