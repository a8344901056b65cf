//! `pods/eviction`: deletes a pod on behalf of a drain.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::server::error::{ApiError, Result};
use crate::server::http::body::{self, ApiBody};
use crate::server::verbs::Call;
use crate::server::verbs::delete::{DeleteOptions, delete_object};

/// Evicts the pod on the URL. Disruption budgets are not asked.
pub(crate) async fn evict(call: &Call, eviction: &Value) -> Result<Response<ApiBody>> {
    let options = eviction
        .get("deleteOptions")
        .map_or_else(Vec::new, |it| it.to_string().into_bytes());
    let options = DeleteOptions::read(&options, &call.query)?;
    if crate::server::meta::name(eviction) != call.name
        && !crate::server::meta::name(eviction).is_empty()
    {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    delete_object(call, options).await?;
    Ok(body::json(
        StatusCode::CREATED,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    ))
}
