//! Questions about assets.

use longshore_airflow::api::{ApiError, StoreRequest, query::AssetSelector, store::StoreValue};

use super::{Question, task_instances::bound};
use crate::{reply::Reply, state::StateResult};

impl Question<'_> {
    pub(super) async fn asset(&self, asset: &AssetSelector) -> StateResult<Reply> {
        let found = self.state.asset(asset).await?;
        self.found(found, || ApiError::no_asset(&which(asset)))
    }

    pub(super) async fn of_asset_store(
        &self,
        asset: AssetSelector,
        request: StoreRequest<StoreValue>,
    ) -> StateResult<Reply> {
        let (state, caller) = (self.state, self.caller);
        match request {
            StoreRequest::Get(key) => {
                let value = state.asset_store_value(&asset, &key).await?;
                self.found(value.map(|value| StoreValue { value }), || {
                    ApiError::no_store_key("Asset state store", &key)
                })
            }
            StoreRequest::Put(key, put) => {
                bound(&put.value)?;
                let putting = state.put_asset_store_value(caller, asset, key, put.value);
                self.done(putting.await)
            }
            StoreRequest::Delete(key) => {
                let deleting = state.delete_asset_store_values(caller, &asset, Some(&key));
                self.done(deleting.await)
            }
            StoreRequest::Clear => {
                self.done(state.delete_asset_store_values(caller, &asset, None).await)
            }
        }
    }
}

fn which(asset: &AssetSelector) -> String {
    match asset {
        AssetSelector::Name(name) => format!("name {name}"),
        AssetSelector::Uri(uri) => format!("URI {uri}"),
    }
}
