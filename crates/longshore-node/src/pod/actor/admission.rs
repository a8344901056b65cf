//! Whether the node takes a pod that is bound to it.

use super::Actor;
use crate::pod::model::Preparation;

impl Actor {
    /// Takes the ports of the host that the pod wants. A pod that has begun keeps them; a new one is rejected where it
    /// cannot have them.
    pub(super) fn admit(&mut self) {
        let (uid, ports) = (&self.this.uid, &self.shared.host_ports);
        // A pod that has ended for the API server has no ports there either: the scheduler may have given them away.
        if self.desired.is_over {
            return;
        }
        if !self.local.attempts.is_empty() {
            ports.keep(uid, &self.pod);
        } else if self.desired.deletion.is_none()
            && let Err(refusal) = ports.take(uid, &self.pod)
        {
            self.refuse(Preparation::Needed, refusal);
        }
    }
}
