//! A bundle in a local folder.

use std::{path::Path, sync::Arc, time::Duration};

use longshore_bundles::{
    Limits, LocalFolder, ScanError, Scanner,
    local::{Look, Pace},
};
use longshore_core::error::chain;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::bundle::{Following, ScannedTree};

/// Follows the folder until shutdown. It need not exist yet.
pub(super) async fn follow(
    following: Following,
    folder: &Path,
    refresh_interval: Duration,
    shutdown: CancellationToken,
) {
    let scanner = Scanner::new(
        folder,
        following.settings().ignore_syntax,
        Limits::default(),
    );
    let pace = Pace {
        rescan_interval: refresh_interval,
        ..Pace::default()
    };
    let (tell, told) = mpsc::channel(1);
    let clock = Arc::clone(&following.shared().clock);
    let name = following.name().clone();
    let report = |look: Result<Look, ScanError>| {
        let (tell, name) = (tell.clone(), name.clone());
        async move {
            match look {
                Ok(look) => {
                    let seen = ScannedTree {
                        look,
                        version: None,
                        tree: None,
                    };
                    // Nobody listens when the service stops.
                    let _ = tell.send(seen).await;
                }
                Err(error) => {
                    tracing::warn!(bundle = %name, error = chain(&error), "a bundle cannot be read; its DAGs stay as they are");
                }
            }
        }
    };
    let looking = LocalFolder::new(scanner, pace).follow(|| clock.now(), report, shutdown.clone());
    tokio::join!(looking, following.run(told, shutdown));
}
