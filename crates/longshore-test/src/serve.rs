//! A service of a test.

use axum::Router;
use tokio::net::TcpListener;

/// Serves on a free port of this machine until the test ends; the URL.
///
/// # Panics
/// Where there is no free port.
#[expect(
    clippy::expect_used,
    reason = "a test without its service cannot go on"
)]
pub async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}
