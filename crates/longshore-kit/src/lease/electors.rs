//! One candidate for several leases, which acts while it holds all of them.

use std::{
    collections::BTreeSet,
    mem::discriminant,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use kube::Client;
use tokio::{sync::watch, time::sleep};

use super::{
    Gate, Terms,
    elector::{Elector, LeaseError, LeaseName, Lost},
    turn::Turn,
};
use crate::clock::Clock;

/// What a candidate for several leases may do while it holds them.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// Open while all leases are held.
    pub gate: Gate,
    /// The namespaces that it may act in: those whose leases are held, and those that are being deleted, where API
    /// servers let no process create anything.
    pub namespaces: BTreeSet<String>,
}

/// What a candidate tells of one of its leases.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// It waits for this holder.
    WaitsFor(&'a str),
    /// It acts without this lease, and not in its namespace, or only to clean up there.
    ActsWithout(&'a LeaseError),
}

/// One candidate for several leases: that of its own namespace, and those of the same name in other namespaces.
///
/// It takes them in the order of their namespaces, and keeps those that it has while it waits for the next one: of two
/// candidates for overlapping sets, one gets past the first namespace that both want, and the other one holds nothing
/// that comes after it. It looks at all of them from the start, so that it takes over from a process that died as soon
/// as with one lease.
///
/// The loss of any lease ends the leadership. A namespace other than its own that does not exist, or that it has no
/// rights in, is left out until that changes, because its end must not end the work in all others.
///
/// *Flow*: as of [`Elector`].
#[derive(Debug)]
pub struct Electors {
    /// In the order of their names.
    candidates: Vec<Candidate>,
    terms: Terms,
}

#[derive(Debug)]
struct Candidate {
    name: LeaseName,
    elector: Elector,
    /// Without this lease there is no leadership.
    is_own: bool,
    /// Why the lease cannot be had, where the leadership is without it.
    vacancy: Option<LeaseError>,
}

impl Electors {
    /// A candidate named as for [`Elector::new`].
    pub fn new(
        client: &Client,
        own: LeaseName,
        others: impl IntoIterator<Item = LeaseName>,
        me: &str,
        terms: Terms,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let mut names: BTreeSet<LeaseName> = others.into_iter().collect();
        names.insert(own.clone());
        let candidate = |name: LeaseName| Candidate {
            elector: Elector::new(client.clone(), name.clone(), me, terms, Arc::clone(clock)),
            is_own: name == own,
            vacancy: None,
            name,
        };
        Self {
            candidates: names.into_iter().map(candidate).collect(),
            terms,
        }
    }

    /// Writes this annotation with the holder into each lease; `None` removes that of an earlier holder.
    #[must_use]
    pub fn saying(mut self, annotation: &'static str, value: Option<&'static str>) -> Self {
        for candidate in &mut self.candidates {
            candidate.elector.says(annotation, value);
        }
        self
    }

    /// Waits until we hold all leases. `tells` is called with what holds it up.
    ///
    /// # Errors
    /// As of [`Elector::acquire`], about the lease of its own namespace.
    ///
    /// *Cancellation*: call [`release`](Self::release), or the leases that were taken meanwhile expire.
    pub async fn acquire(
        &mut self,
        mut tells: impl FnMut(&LeaseName, Notice<'_>) + Send,
    ) -> Result<Tenure, LeaseError> {
        loop {
            match self.try_acquire(&mut tells).await {
                Ok(true) => return Ok(self.tenure()),
                Ok(false) => self.abandon(),
                Err(error) => {
                    self.release().await;
                    return Err(error);
                }
            }
        }
    }

    /// Whether all leases are held or left out; no where one was lost before that.
    async fn try_acquire(
        &mut self,
        tells: &mut (impl FnMut(&LeaseName, Notice<'_>) + Send),
    ) -> Result<bool, LeaseError> {
        let settled = watch::Sender::new(vec![false; self.candidates.len()]);
        let mut all = settled.subscribe();
        let (tells, terms) = (Mutex::new(tells), self.terms);
        let candidates = self.candidates.iter_mut().enumerate();
        let mut ended: FuturesUnordered<_> = candidates
            .map(|(position, candidate)| {
                let (settled, tells) = (&settled, &tells);
                async move {
                    let turn = Turn::of(position, settled.subscribe());
                    let tell = |name: &LeaseName, notice: Notice<'_>| {
                        let mut tells = tells.lock().unwrap_or_else(PoisonError::into_inner);
                        (*tells)(name, notice);
                    };
                    candidate.settle(turn, tell).await?;
                    settled.send_modify(|settled| {
                        if let Some(is_settled) = settled.get_mut(position) {
                            *is_settled = true;
                        }
                    });
                    Ok::<Lost, LeaseError>(candidate.keep(terms).await)
                }
            })
            .collect();
        tokio::select! {
            ended = ended.next() => match ended {
                Some(Err(error)) => Err(error),
                Some(Ok(_)) | None => Ok(false),
            },
            _ = all.wait_for(|settled| settled.iter().all(|is_settled| *is_settled)) => Ok(true),
        }
    }

    fn tenure(&self) -> Tenure {
        let held = self.candidates.iter().filter(|it| it.vacancy.is_none());
        let gates = held.map(|it| it.elector.gate().clone()).collect();
        let usable = self.candidates.iter().filter(|it| it.may_act());
        Tenure {
            gate: Gate::all_of(gates),
            namespaces: usable.map(|it| it.name.namespace.clone()).collect(),
        }
    }

    /// Renews all leases until one is lost; then the gate is closed. Returns which one.
    ///
    /// *Cancellation*: may be called again, within the renew deadline.
    pub async fn keep(&mut self) -> (LeaseName, Lost) {
        let terms = self.terms;
        let lost = {
            let candidates = self.candidates.iter_mut();
            let mut kept: FuturesUnordered<_> = candidates
                .map(|candidate| async move {
                    let lost = candidate.keep(terms).await;
                    (candidate.name.clone(), lost)
                })
                .collect();
            kept.next().await
        };
        self.abandon();
        match lost {
            Some(lost) => lost,
            // There is always the lease of its own namespace.
            None => std::future::pending().await,
        }
    }

    /// Lets the leases go, as [`Elector::release`].
    pub async fn release(&mut self) {
        let candidates = self.candidates.iter_mut();
        join_all(candidates.map(|candidate| candidate.elector.release())).await;
    }

    /// Acts no more, as a process that was killed: the leases are not released, and expire. Requests that were sent may
    /// still arrive, and no other process acts before they have had that time.
    pub fn abandon(&mut self) {
        for candidate in &mut self.candidates {
            candidate.elector.abandon();
        }
    }
}

impl Candidate {
    /// Waits until the lease is held, or is left out.
    async fn settle(
        &mut self,
        turn: Turn,
        mut tell: impl FnMut(&LeaseName, Notice<'_>),
    ) -> Result<(), LeaseError> {
        let name = &self.name;
        let acquired = self
            .elector
            .acquire_in(turn, |holder| tell(name, Notice::WaitsFor(holder)));
        let vacancy = match acquired.await {
            Ok(_) => None,
            Err(error) if self.is_own => return Err(error),
            Err(error) => Some(error),
        };
        let is_new = match (&vacancy, &self.vacancy) {
            (Some(now), Some(before)) => discriminant(now) != discriminant(before),
            (now, _) => now.is_some(),
        };
        if let Some(error) = vacancy.as_ref().filter(|_| is_new) {
            tell(&self.name, Notice::ActsWithout(error));
        }
        self.vacancy = vacancy;
        Ok(())
    }

    /// Waits until the lease is lost, or until one that is left out can be had, or is left out for another reason.
    async fn keep(&mut self, terms: Terms) -> Lost {
        let Some(vacancy) = self.vacancy.as_ref().map(discriminant) else {
            return self.elector.keep().await;
        };
        loop {
            sleep(self.pause(terms)).await;
            match self.elector.probe().await {
                Ok(false) => {}
                Err(error) if discriminant(&error) == vacancy => {}
                Ok(true) | Err(_) => return Lost::Changed,
            }
        }
    }

    /// A namespace that has gone may be made again, by its old name.
    fn pause(&self, terms: Terms) -> Duration {
        match self.vacancy {
            Some(LeaseError::Terminating { .. }) => terms.retry_period,
            Some(LeaseError::NoNamespace { .. } | LeaseError::Forbidden { .. }) | None => {
                terms.lease_duration
            }
        }
    }

    fn may_act(&self) -> bool {
        matches!(self.vacancy, None | Some(LeaseError::Terminating { .. }))
    }
}
