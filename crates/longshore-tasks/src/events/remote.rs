//! The peer's events service.

use async_trait::async_trait;
use longshore_connect::{Code, ConnectClient};
use longshore_core::error::chain;
use longshore_proto::flyteidl2::workflow::{RecordRequest, RecordResponse};

use super::{ActionEvent, EventSink, NotRecorded, message};

const RECORD: &str = "flyteidl2.workflow.EventsProxyService/Record";

/// The peer's events service, at `executor.EventsServiceURL`.
#[derive(Clone, Debug)]
pub struct RemoteEvents {
    client: ConnectClient,
}

impl RemoteEvents {
    /// The service that this client asks.
    pub fn new(client: ConnectClient) -> Self {
        Self { client }
    }
}

#[async_trait]
impl EventSink for RemoteEvents {
    async fn record(&self, events: &[ActionEvent]) -> Result<(), NotRecorded> {
        let request = RecordRequest {
            events: events.iter().map(message::to_proto).collect(),
        };
        let recorded = self.client.call(RECORD, &request).await;
        match recorded {
            Ok(RecordResponse {}) => Ok(()),
            Err(error) if error.code() == Some(Code::InvalidArgument) => {
                Err(NotRecorded::Refused(chain(&error)))
            }
            Err(error) => Err(NotRecorded::Failed(chain(&error))),
        }
    }
}
