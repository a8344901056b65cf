//! What goes wrong, and where.

use std::{fmt, time::Duration};

/// An occurrence of an effect of the process under test: its n-th create of a pod, its n-th commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The effect: verb and resource for requests (`create pods`, `patch configmaps/status`), else the name that the
    /// decorator gave (`commit`).
    pub what: String,
    /// Counted from 1 over all starts of the process.
    pub n: u32,
}

impl Point {
    /// The n-th `what`.
    pub fn new(what: impl Into<String>, n: u32) -> Self {
        Self {
            what: what.into(),
            n,
        }
    }

    /// Whether it changes nothing: a lost answer is then the same as a refused request.
    pub fn is_read(&self) -> bool {
        is_read(&self.what)
    }
}

/// Whether an effect of this name changes nothing.
pub(crate) fn is_read(what: &str) -> bool {
    ["get ", "list ", "watch "]
        .iter()
        .any(|verb| what.starts_with(verb))
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.what, self.n)
    }
}

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The process dies before the effect happens.
    KillBefore,
    /// The process dies after the effect happened and before it gets the answer.
    KillAfter,
    /// The effect happens; the process gets an error.
    LoseAnswer,
    /// The effect does not happen; the process gets this answer.
    Refuse(Refusal),
    /// The effect happens after this time.
    Delay(Duration),
    /// The process gets an error at once. The request lands after this time, whatever the process has done since, and
    /// also where the process was killed. Only [requests](super::Process::request) can land without the process: other
    /// effects happen at once, as with [`Self::LoseAnswer`].
    LandLate(Duration),
}

/// An answer in place of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 409: another client wrote first.
    Conflict,
    /// 429 with `Retry-After`, in seconds.
    TooManyRequests(u32),
    /// 403 of a `ResourceQuota` that is used up.
    QuotaExceeded,
    /// 500: the server has an error.
    InternalError,
    /// 503: the server is overloaded.
    Unavailable,
    /// 504: the server did not answer in time.
    GatewayTimeout,
    /// No connection.
    NoConnection,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answer() {
            Some((code, reason, _)) => write!(f, "injected {code} {reason}"),
            None => f.write_str("injected connection failure"),
        }
    }
}

impl Refusal {
    /// HTTP status, Kubernetes' reason and the seconds to stay away; `None` where nothing answers.
    pub(crate) fn answer(self) -> Option<(u16, &'static str, u32)> {
        match self {
            Self::Conflict => Some((409, "Conflict", 0)),
            Self::TooManyRequests(seconds) => Some((429, "TooManyRequests", seconds)),
            Self::QuotaExceeded => Some((403, "Forbidden: exceeded quota", 0)),
            Self::InternalError => Some((500, "InternalError", 0)),
            Self::Unavailable => Some((503, "ServiceUnavailable", 0)),
            Self::GatewayTimeout => Some((504, "Timeout", 0)),
            Self::NoConnection => None,
        }
    }
}

/// What is wrong with the watches of the process under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// Every event of the resource comes this much later, in the same order. Without a resource: of all of them.
    Late {
        /// Plural name.
        resource: Option<String>,
        /// The delay.
        by: Duration,
    },
    /// From the n-th event of the resource on, its watches get no answer for this time. After it
    /// the version to resume from has expired: what happened in between is seen as its result only.
    Outage {
        /// Plural name.
        resource: String,
        /// Counted from 1.
        n: u32,
        /// The length of the outage.
        time: Duration,
    },
    /// Every watch ends after this many events.
    CutAfter(u32),
    /// Every watch of the resource ends this long after its begin. Without a resource: all of them.
    CutEvery {
        /// Plural name.
        resource: Option<String>,
        /// The length of this state.
        time: Duration,
    },
    /// The n-th event of the resource, counted over all its watches, is replaced by an in-stream 410.
    Expire {
        /// Plural name, as `pods`.
        resource: String,
        /// Counted from 1.
        n: u32,
    },
    /// The n-th connection of the resource's watches is answered with 410.
    ExpireOnConnect {
        /// Plural name.
        resource: String,
        /// Counted from 1.
        n: u32,
    },
    /// No bookmark arrives.
    NoBookmarks,
    /// After a reconnection the last event before it is sent again.
    Repeat,
}

impl WatchFault {
    /// Every watch late by this much.
    pub fn late(by: Duration) -> Self {
        Self::Late { resource: None, by }
    }

    /// Which event or connection it strikes, counted from 1; `None` where it strikes all of them.
    pub(crate) fn occurrence(&self) -> Option<u32> {
        match self {
            Self::Outage { n, .. } | Self::Expire { n, .. } | Self::ExpireOnConnect { n, .. } => {
                Some(*n)
            }
            Self::Late { .. }
            | Self::CutAfter(_)
            | Self::CutEvery { .. }
            | Self::NoBookmarks
            | Self::Repeat => None,
        }
    }
}

/// All that goes wrong in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Faults at given points.
    pub at: Vec<(Point, Fault)>,
    /// Faults of the watches, all at once.
    pub watches: Vec<WatchFault>,
    /// Faults at points drawn by lot.
    pub lot: Option<Lot>,
}

/// Draws faults from a seed. The draw depends on the seed and the point only, so that it replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lot {
    /// The seed.
    pub seed: u64,
    /// A fault at one point in this many.
    pub one_in: u64,
    /// No more faults after this many draws that hit, so that the world can come to rest.
    pub at_most: u32,
}

impl FaultPlan {
    /// Whether a watch has an outage.
    pub fn has_outage(&self) -> bool {
        let mut watches = self.watches.iter();
        watches.any(|fault| matches!(fault, WatchFault::Outage { .. }))
    }

    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// One fault at one point.
    pub fn at(point: Point, fault: Fault) -> Self {
        Self {
            at: vec![(point, fault)],
            ..Self::default()
        }
    }

    /// One fault of the watches.
    pub fn watches(fault: WatchFault) -> Self {
        Self {
            watches: vec![fault],
            ..Self::default()
        }
    }

    /// One fault in ten points, at most twenty, drawn from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self {
            lot: Some(Lot {
                seed,
                one_in: 10,
                at_most: 20,
            }),
            ..Self::default()
        }
    }

    /// The fault at this point; `n_drawn` counts the draws that hit so far.
    pub(crate) fn fault_at(&self, point: &Point, n_drawn: &mut u32) -> Option<Fault> {
        let given = self.at.iter().find(|(at, _)| at == point);
        if let Some((_, fault)) = given {
            return Some(*fault);
        }
        let lot = self.lot.filter(|lot| *n_drawn < lot.at_most)?;
        let draw = lot.draw(point);
        if !draw.is_multiple_of(lot.one_in) {
            return None;
        }
        *n_drawn += 1;
        let faults = faults_for(point);
        let index = usize::try_from(draw / lot.one_in).unwrap_or(0) % faults.len();
        faults.get(index).copied()
    }
}

impl Lot {
    /// FNV-1a over the point, mixed with the seed by splitmix64's finalizer.
    fn draw(self, point: &Point) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.seed;
        for byte in point.to_string().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }
}

/// Every fault that makes sense at a point.
pub fn faults_for(point: &Point) -> &'static [Fault] {
    const READ: &[Fault] = &[
        Fault::KillBefore,
        Fault::Refuse(Refusal::InternalError),
        Fault::Refuse(Refusal::TooManyRequests(3)),
    ];
    const WRITE: &[Fault] = &[
        Fault::KillBefore,
        Fault::KillAfter,
        Fault::LoseAnswer,
        Fault::Refuse(Refusal::Conflict),
        Fault::Refuse(Refusal::InternalError),
        Fault::Refuse(Refusal::TooManyRequests(3)),
    ];
    const CREATE: &[Fault] = &[
        Fault::KillBefore,
        Fault::KillAfter,
        Fault::LoseAnswer,
        Fault::Refuse(Refusal::Conflict),
        Fault::Refuse(Refusal::InternalError),
        Fault::Refuse(Refusal::TooManyRequests(3)),
        Fault::Refuse(Refusal::QuotaExceeded),
    ];
    match point.what.split_once(' ') {
        _ if point.is_read() => READ,
        Some(("create", _)) => CREATE,
        _ => WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lot_depends_on_the_seed_only() {
        let draw = |seed| {
            let plan = FaultPlan::seeded(seed);
            let mut n_drawn = 0;
            (1..200)
                .filter_map(|n| {
                    let point = Point::new("create pods", n);
                    let fault = plan.fault_at(&point, &mut n_drawn)?;
                    Some(format!("{point} {fault:?}"))
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!((5..=20).contains(&draw(7).len()), "{:?}", draw(7));
    }

    #[test]
    fn a_lost_answer_of_a_read_is_no_case_of_its_own() {
        assert_eq!(faults_for(&Point::new("list pods", 1)).len(), 3);
        assert_eq!(faults_for(&Point::new("commit", 1)).len(), 6);
        assert_eq!(faults_for(&Point::new("create pods", 1)).len(), 7);
    }
}
