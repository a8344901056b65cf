//! Gauges that count keys by what each of them is at the moment, such as pods by phase.
//!
//! A change of a key moves its counts, so that nothing is listed or copied to read a metric.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::metrics::gauge::Gauge;

use crate::controller::Key;

/// What a key is counted as: the gauges that count it.
pub trait Counted: PartialEq + Debug + Send + 'static {
    /// The gauges of one metric, or of several.
    type Gauges: Debug + Default + Clone + Send + Sync + 'static;

    /// The gauges that count a key of this value, each by one.
    fn gauges(&self, of: &Self::Gauges) -> Vec<Gauge>;
}

/// Counts each key under its latest value. Clones count in the same place.
#[derive(Debug)]
pub struct Tally<K, T: Counted> {
    gauges: T::Gauges,
    counted: Arc<Mutex<BTreeMap<K, T>>>,
}

impl<K, T: Counted> Clone for Tally<K, T> {
    fn clone(&self) -> Self {
        Self {
            gauges: self.gauges.clone(),
            counted: Arc::clone(&self.counted),
        }
    }
}

impl<K: Key, T: Counted> Default for Tally<K, T> {
    fn default() -> Self {
        Self {
            gauges: T::Gauges::default(),
            counted: Arc::default(),
        }
    }
}

impl<K: Key, T: Counted> Tally<K, T> {
    /// The gauges, to be registered.
    pub fn gauges(&self) -> &T::Gauges {
        &self.gauges
    }

    /// Counts a key under this value from now on; under none, where it is `None`.
    pub fn count(&self, key: &K, value: Option<T>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.get(key) == value.as_ref() {
            return;
        }
        for gauge in value.iter().flat_map(|value| value.gauges(&self.gauges)) {
            gauge.inc();
        }
        let before = match value {
            Some(value) => counted.insert(key.clone(), value),
            None => counted.remove(key),
        };
        for gauge in before.iter().flat_map(|value| value.gauges(&self.gauges)) {
            gauge.dec();
        }
    }

    /// Counts no key any more: another replica may work from now on.
    pub fn clear(&self) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for value in std::mem::take(&mut *counted).values() {
            for gauge in value.gauges(&self.gauges) {
                gauge.dec();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Colour {
        Red,
        Green,
    }

    #[derive(Clone, Debug, Default)]
    struct Gauges {
        all: Gauge,
        red: Gauge,
    }

    impl Counted for Colour {
        type Gauges = Gauges;

        fn gauges(&self, of: &Gauges) -> Vec<Gauge> {
            match self {
                Self::Red => vec![of.all.clone(), of.red.clone()],
                Self::Green => vec![of.all.clone()],
            }
        }
    }

    #[test]
    fn a_key_is_counted_under_its_latest_value_only() {
        let tally = Tally::<String, Colour>::default();
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let counts = || (tally.gauges().all.get(), tally.gauges().red.get());
        tally.count(&a, Some(Colour::Red));
        tally.count(&b, Some(Colour::Green));
        assert_eq!(counts(), (2, 1));
        tally.count(&a, Some(Colour::Green));
        assert_eq!(counts(), (2, 0));
        tally.count(&b, None);
        tally.count(&b, None);
        assert_eq!(counts(), (1, 0));
        tally.clear();
        assert_eq!(counts(), (0, 0));
        tally.count(&a, Some(Colour::Red));
        assert_eq!(counts(), (1, 1));
    }
}
