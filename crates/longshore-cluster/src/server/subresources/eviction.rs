//! `pods/eviction`: deletes a pod on behalf of a drain.

use http::Response;
use serde_json::Value;

use crate::server::error::{ApiError, Result};
use crate::server::http::body::{self, ApiBody};
use crate::server::meta;
use crate::server::verbs::Call;
use crate::server::verbs::delete::{DeleteOptions, delete_object};

/// Evicts the pod on the URL. Disruption budgets are not asked.
pub(crate) async fn evict(call: &Call, eviction: &Value) -> Result<Response<ApiBody>> {
    let options = eviction.get("deleteOptions").filter(|it| !it.is_null());
    let options = DeleteOptions::read(options.cloned(), &call.query)?;
    if meta::name(eviction) != call.name && !meta::name(eviction).is_empty() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    delete_object(call, options).await?;
    Ok(body::done())
}
