//! The status of a FlinkStateSnapshot.

use jiff::Timestamp;
use longshore_flink_core::status::{FlinkStateSnapshotStatus, UnreadableSpec};

use crate::draft::{Settle, Standing};

impl Settle for FlinkStateSnapshotStatus {
    fn error_mut(&mut self) -> &mut Option<String> {
        &mut self.error
    }

    fn settle(&mut self, _: Timestamp, _: &Standing) -> Result<(), UnreadableSpec> {
        Ok(())
    }
}
