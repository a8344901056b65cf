//! Keeps an external table in step with pods: upstream's ResourceConsist.
//!
//! An *employer* (a Service, as a rule) has a table in a foreign system: the backends of a load balancer, the records
//! of a name. Its *employees*, the pods that it selects, are in the table while they may have traffic. A caller
//! implements [`Table`] for its table; [`run`] does everything else, with the finalizers and annotations of upstream,
//! so that operations on pods wait until the table has let go of them.
//!
//! [`decide`](decide()) is the whole of it: what is written upon what was seen. All state is on the
//! employer, on its pods and in the table, so that a crash at any point loses nothing.

mod controller;
mod decide;
mod model;
mod service;
mod table;
#[cfg(test)]
mod tests;

pub use decide::{ConsistPlan, decide};
pub use model::{Change, Changes, Employee, Employer, EmployerKey, Failure, Observed, Readiness};
pub use service::{ConsistConfig, run};
pub use table::{Entries, Part, SERVICE, Table};
