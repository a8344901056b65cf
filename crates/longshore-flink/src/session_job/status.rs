//! What follows from the status of a FlinkSessionJob.

use jiff::Timestamp;
use longshore_flink_core::{
    spec::FlinkSessionJobSpec,
    status::{CommonStatus, FlinkSessionJobStatus, UnreadableSpec},
};

use crate::draft::{RunsJob, Settle, Standing};

impl RunsJob for FlinkSessionJobStatus {
    type Spec = FlinkSessionJobSpec;

    fn common(&self) -> &CommonStatus {
        &self.common
    }

    fn common_mut(&mut self) -> &mut CommonStatus {
        &mut self.common
    }
}

impl Settle for FlinkSessionJobStatus {
    fn error_mut(&mut self) -> &mut Option<String> {
        &mut self.common.error
    }

    /// Upstream's schema of this kind has no conditions: what a job waits for is not shown.
    fn settle(&mut self, _: Timestamp, _: &Standing) -> Result<(), UnreadableSpec> {
        self.common.lifecycle_state = Some(self.lifecycle_state()?);
        Ok(())
    }
}
