//! Values of XCom and of triggers, as Airflow's `airflow.sdk.serde` encodes them.
