//! GET of one object.

use http::{Response, StatusCode};

use super::Call;
use crate::server::{
    error::Result,
    http::{body::ApiBody, query::AskedRevision},
};

/// Serves the newest state of the object on the URL.
pub(crate) async fn get(call: &Call) -> Result<Response<ApiBody>> {
    match AskedRevision::parse(call.query.text("resourceVersion"))? {
        AskedRevision::Unset | AskedRevision::Any => {}
        AskedRevision::At(revision) => call.wait_for(revision).await?,
    }
    Ok(call.respond(StatusCode::OK, &*call.stored()?))
}
