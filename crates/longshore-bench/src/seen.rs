//! Waiting for what a bench sees of the cluster.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::sync::watch;

/// Nothing takes longer, unless it never comes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until something is found in what was seen.
///
/// # Errors
/// The writer of `seen` is gone, or the value was not found in time.
pub(crate) async fn until<S, T>(
    seen: &watch::Receiver<S>,
    what: &str,
    find: impl Fn(&S) -> Option<T>,
) -> Result<T> {
    let mut seen = seen.clone();
    let found = async {
        loop {
            if let Some(found) = find(&seen.borrow_and_update()) {
                return Ok(found);
            }
            seen.changed().await?;
        }
    };
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(found) => found,
        Err(_) => bail!("not in time: {what}"),
    }
}
