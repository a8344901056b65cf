//! What the tests of this crate share.

use axum::Router;
use tokio::net::TcpListener;

/// Serves on a free port of this machine until the test ends; answers the URL.
pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}
