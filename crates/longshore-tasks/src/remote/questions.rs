//! Asks connectors beside the rounds: one that takes its time keeps no round, and so no other action, waiting.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use longshore_plugins::{Answer, Call};
use tokio::sync::mpsc;

use super::{connectors::AskConnectors, exchange::Exchanges};
use crate::model::ActionKey;

/// Questions under way. How many reach a connector at the same time is for whoever asks it to say.
const UNDER_WAY: usize = 4_096;

/// Takes questions.
#[derive(Debug)]
pub(crate) struct Questions(mpsc::UnboundedSender<(ActionKey, Call)>);

impl Questions {
    /// Also answers the actions whose answers came; they come for as long as somebody asks for them.
    pub(crate) fn new(
        connectors: Arc<dyn AskConnectors>,
        exchanges: Arc<Exchanges>,
    ) -> (Self, impl Stream<Item = ActionKey> + Send + 'static) {
        let (sender, mut questions) = mpsc::unbounded_channel::<(ActionKey, Call)>();
        let questions = stream::poll_fn(move |context| questions.poll_recv(context));
        let answered = questions.map(move |(key, call)| {
            let (connectors, exchanges) = (Arc::clone(&connectors), Arc::clone(&exchanges));
            async move {
                let answer = match connectors.ask(&call).await {
                    Ok(Some(answer)) => answer,
                    Ok(None) => Answer::Failed("it answered nothing".to_owned()),
                    Err(error) => Answer::Failed(error.to_string()),
                };
                exchanges.answered(&key, &call.request, answer);
                key
            }
        });
        (Self(sender), answered.buffer_unordered(UNDER_WAY))
    }

    /// Asks; the action has a round once there is an answer.
    pub(crate) fn ask(&self, key: &ActionKey, call: &Call) {
        // Nobody listens where no round will come.
        let _ = self.0.send((key.clone(), call.clone()));
    }
}
