//! Metrics with what a reference says of each: a scrape leaves out those that have no value yet.

use prometheus_client::{
    encoding::text::encode,
    registry::{Metric, Registry, Unit},
};

/// The metrics of a process, by the order in which they were registered.
#[derive(Debug, Default)]
pub struct Registrar {
    registry: Registry,
    declared: Vec<DeclaredMetric>,
}

/// A metric, as a reference lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredMetric {
    /// Its name in a scrape, without what is added to the samples of a histogram (`_bucket`, `_sum`, `_count`).
    pub name: String,
    /// `counter`, `gauge`, `histogram`, `info` or `unknown`.
    pub kind: String,
    /// The names of its labels, without `le` of a histogram.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

impl Registrar {
    /// Registers a metric; once per process and name.
    pub fn register(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        metric: impl Metric,
    ) {
        self.declare(name.to_owned(), help, labels, &metric);
        self.registry.register(name, help, metric);
    }

    /// Registers a metric whose unit a scrape says, and adds to its name.
    pub fn register_with_unit(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Unit,
        labels: &'static [&'static str],
        metric: impl Metric,
    ) {
        self.declare(format!("{name}_{}", unit.as_str()), help, labels, &metric);
        self.registry.register_with_unit(name, help, unit, metric);
    }

    /// What was registered.
    pub fn declared(&self) -> &[DeclaredMetric] {
        &self.declared
    }

    /// Everything as OpenMetrics text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail; if it did, an empty scrape shows.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn declare(
        &mut self,
        mut name: String,
        help: &'static str,
        labels: &'static [&'static str],
        metric: &impl Metric,
    ) {
        let kind = metric.metric_type().as_str().to_owned();
        if kind == "counter" {
            name.push_str("_total");
        }
        self.declared.push(DeclaredMetric {
            name,
            kind,
            labels,
            help,
        });
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

    use super::*;

    #[test]
    fn metrics_are_declared_under_the_names_of_a_scrape() {
        let mut registrar = Registrar::default();
        let (requests, memory) = (Counter::<u64>::default(), Gauge::<i64>::default());
        registrar.register("requests", "Requests", &[], requests);
        registrar.register_with_unit("memory", "Memory", Unit::Bytes, &[], memory);
        let text = registrar.text();
        for declared in registrar.declared() {
            let sample = format!("\n{} 0\n", declared.name);
            assert!(text.contains(&sample), "{declared:?}\n{text}");
        }
        let kinds: Vec<&str> = registrar
            .declared()
            .iter()
            .map(|it| it.kind.as_str())
            .collect();
        assert_eq!(kinds, ["counter", "gauge"]);
    }
}
