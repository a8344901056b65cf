//! DELETE of every selected object of a collection.

use std::sync::Arc;

use http::Response;
use serde_json::json;

use super::{
    Call,
    delete::{DeleteOptions, delete_object},
    list::{all_selected, respond, selection},
};
use crate::server::{
    error::{ApiError, Result},
    http::body::ApiBody,
    registry::Strategy,
};

/// Deletes the selected objects one by one and answers with them as they were.
pub(crate) async fn delete_collection(
    call: &Call,
    options: DeleteOptions,
) -> Result<Response<ApiBody>> {
    if call.resource().strategy == Strategy::Namespace {
        return Err(ApiError::method_not_allowed());
    }
    let selection = selection(call)?;
    let page = all_selected(call, &selection);
    for object in &page.objects {
        let (namespace, name) = match object.key.as_str().split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
            None => (None, object.key.as_str().to_owned()),
        };
        let one = Call {
            namespace,
            name,
            is_of_collection: true,
            ..call.clone()
        };
        match delete_object(&one, options.clone()).await {
            Ok(_) => {}
            // Another client has deleted it meanwhile.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let metadata = json!({"resourceVersion": page.revision.to_string()});
    Ok(respond(
        call,
        page.objects.iter().map(Arc::clone).collect(),
        metadata,
    ))
}
