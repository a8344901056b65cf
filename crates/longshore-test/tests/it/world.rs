use std::sync::Arc;

use longshore_cluster::Cluster;
use longshore_kit::Clock;
use longshore_test::SimClock;

/// An embedded cluster in simulated time.
pub(crate) fn cluster(clock: &Arc<SimClock>) -> Cluster {
    let clock = Arc::clone(clock);
    Cluster::builder()
        .clock(Arc::new(move || clock.now()))
        .seed(1)
        .build()
}
