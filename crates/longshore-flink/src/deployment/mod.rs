//! FlinkDeployments in native mode: application clusters, which run one job, and session clusters.
//!
//! [`decide`] is the whole controller as a pure function. A cluster is only ever started out of the reconciliation states
//! `UPGRADING` and `ROLLING_BACK`, in these steps, each of which may be repeated after a crash:
//!
//! 1. The job stops in the way that the upgrade decision names, and the status records which state it left.
//! 2. The status records the spec that is to run, as suspended.
//! 3. The old Deployment is deleted, and, unless the metadata of high availability are to be restored, these metadata.
//! 4. The status records an attempt and the id of the job, and the Deployment is created with both.
//! 5. The Deployment of this attempt is seen: the objects that accompany it are created, and the status records that the
//!    spec is deployed.

mod controller;
mod decide;
pub(crate) mod model;
mod observe;
mod status;

pub(crate) use controller::Deployments;
pub use decide::decide;
pub use model::{Desired, HaConfigMap, JobManager, JobManagerPod, Observed, SnapshotResource};
