//! What Airflow's executor makes of names and pods, so that what reads its pods reads ours.

pub use longshore_airflow::worker::{names, pod_merge};
