//! What Airflow's executor makes of names and pods, so that what reads its pods reads ours. Pure.

pub mod names;
pub mod pod_merge;
