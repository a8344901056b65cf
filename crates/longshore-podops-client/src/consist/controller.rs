//! The controller of employers: what it reads, and how it writes a table.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use longshore_core::{Class, Classify, Never, Plan, Resource, Seen, UnknownCause};
use longshore_kit::{Answers, Cache, Controller, RawObject};
use serde_json::Value;

use super::{
    decide::decide,
    model::{Change, Employee, Employer, EmployerKey, Failure, Observed, Readiness},
    table::{Entries, Part, Table},
};
use crate::cooperation::{expects_finalizer, is_lifecycle_ready};

/// Decides about employers.
pub(super) struct Consist<T> {
    pub(super) table: Arc<T>,
    pub(super) employers: Arc<Cache<RawObject>>,
    pub(super) pods: Arc<Cache<RawObject>>,
    /// The last failure of each employer, until an Event reports it.
    pub(super) failures: Mutex<BTreeMap<EmployerKey, Failure>>,
}

impl<T> fmt::Debug for Consist<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consist").finish_non_exhaustive()
    }
}

/// Why a round about an employer failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConsistError<E: std::error::Error + 'static> {
    /// The employer cannot be read.
    #[error("{key} does not have the shape of its kind")]
    Unreadable {
        /// The employer.
        key: EmployerKey,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
    /// The table of the employer cannot be written.
    #[error("the table of {key} cannot be written")]
    Table {
        /// The employer.
        key: EmployerKey,
        /// Why it cannot be written.
        source: E,
    },
}

impl<E: std::error::Error + 'static> Classify for ConsistError<E> {
    fn class(&self) -> Class {
        match self {
            Self::Unreadable { .. } => Class::Invalid,
            Self::Table { .. } => Class::Retry,
        }
    }
}

impl<T: Table> Controller for Consist<T> {
    type Key = EmployerKey;
    type Observed = Observed;
    type Status = Never;
    type Effect = Change;
    type Question = Never;
    type Error = ConsistError<T::Error>;

    fn name(&self) -> &'static str {
        self.table.name()
    }

    async fn observe(
        &self,
        key: &EmployerKey,
        _: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, Self::Error> {
        let nothing = |employer| Observed {
            employer,
            employees: Seen::Absent,
            expected: Entries::new(),
            current_employer: Seen::Absent,
            current_employees: Seen::Absent,
            failure: None,
            resync: self.table.resync(),
        };
        let object = match self.object(key)? {
            Seen::Present(object) => object,
            Seen::Absent => {
                self.failures().remove(key);
                return Ok(nothing(Seen::Absent));
            }
            Seen::Unknown(why) => return Ok(nothing(Seen::Unknown(why))),
        };
        let employer = Employer::of(self.table.employers(), &object);
        if !employer.is_held() {
            return Ok(nothing(Seen::Present(employer)));
        }
        let employees = self.pods.beginning(&key.namespace, "");
        let employees = employees.map(|pods| self.employees(&employer, &object, &pods));
        let expected = match employer.is_wanted {
            true => self.table.of_employer(&object),
            false => Entries::new(),
        };
        Ok(Observed {
            employees,
            expected,
            current_employer: self.current(&object, Part::Employer).await,
            current_employees: self.current(&object, Part::Employees).await,
            failure: self.failures().remove(key),
            ..nothing(Seen::Present(employer))
        })
    }

    fn decide(&self, observed: &Observed) -> Plan<Never, Change> {
        decide(observed)
    }

    async fn persist(&self, _: &EmployerKey, status: &Never) -> Result<(), Self::Error> {
        match *status {}
    }

    async fn call(&self, key: &EmployerKey, change: &Change) -> Result<(), Self::Error> {
        let Seen::Present(employer) = self.object(key)? else {
            return Ok(()); // The next round sees why.
        };
        let changed = self.table.change(&employer, change.part, &change.changes);
        let Err(source) = changed.await else {
            return Ok(());
        };
        let failure = Failure {
            part: change.part,
            why: source.to_string(),
        };
        self.failures().insert(key.clone(), failure);
        Err(ConsistError::Table {
            key: key.clone(),
            source,
        })
    }
}

impl<T: Table> Consist<T> {
    fn object(&self, key: &EmployerKey) -> Result<Seen<Value>, ConsistError<T::Error>> {
        Ok(match self.employers.get(&key.namespace, &key.name) {
            Seen::Present(object) => {
                Seen::Present(
                    object
                        .to_value()
                        .map_err(|source| ConsistError::Unreadable {
                            key: key.clone(),
                            source,
                        })?,
                )
            }
            Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why),
        })
    }

    async fn current(&self, employer: &Value, part: Part) -> Seen<Entries> {
        match self.table.current(employer, part).await {
            Ok(entries) => Seen::Present(entries),
            Err(error) => Seen::unknown(UnknownCause::Unreachable, error.to_string()),
        }
    }

    /// The pods that the employer selects, and those that still carry something of it. A pod that
    /// cannot be read is left out.
    fn employees(
        &self,
        employer: &Employer,
        object: &Value,
        pods: &[Arc<RawObject>],
    ) -> Vec<Employee> {
        let pods = pods.iter().filter_map(|pod| pod.read::<Pod>().ok());
        let employees = pods.filter_map(|pod| {
            let is_selected = self.table.employs(object, &pod);
            if !is_selected && !has_left_something(employer, &pod) {
                return None;
            }
            let readiness = match is_lifecycle_ready(&pod) {
                true => Readiness::Ready,
                false => Readiness::NotReady,
            };
            let is_employed = is_selected && employer.is_wanted;
            let entry = is_employed.then(|| self.table.of_pod(object, &pod, readiness));
            Some(Employee {
                target: longshore_kit::cache::reference(Resource::POD, &pod),
                is_selected,
                id: self.table.id(object, &pod),
                entry: entry.flatten(),
                readiness,
                pod,
            })
        });
        employees.collect()
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<EmployerKey, Failure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an employer's finalizer is on a pod, or expected there.
pub(super) fn has_left_something(employer: &Employer, pod: &Pod) -> bool {
    let finalizer = employer.finalizer();
    let mut finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers.any(|held| *held == finalizer) || expects_finalizer(pod, &employer.holder())
}
