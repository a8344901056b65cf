//! Questions about one DAG, run, variable or connection, which may not be there.

use longshore_airflow::api::{ApiError, RunAddress, dag_run::DagRunStateAnswer};

use super::Question;
use crate::{reply::Reply, state::StateResult};

impl Question<'_> {
    pub(super) async fn dag(&self, dag_id: &str) -> StateResult<Reply> {
        let dag = self.state.dag(dag_id).await?;
        self.found(dag, || ApiError::no_dag(dag_id))
    }

    pub(super) async fn dag_run(&self, run: &RunAddress) -> StateResult<Reply> {
        let found = self.state.dag_run(run).await?;
        self.found(found, || ApiError::no_dag_run(&run.dag_id, &run.run_id))
    }

    pub(super) async fn dag_run_state(&self, run: &RunAddress) -> StateResult<Reply> {
        let state = self.state.dag_run_state(run).await?;
        self.found(state.map(|state| DagRunStateAnswer { state }), || {
            ApiError::no_dag_run(&run.dag_id, &run.run_id)
        })
    }

    pub(super) async fn variable(&self, key: &str) -> StateResult<Reply> {
        let variable = self.state.variable(self.caller, key).await?;
        self.found(variable, || ApiError::no_variable(key))
    }

    pub(super) async fn connection(&self, id: &str) -> StateResult<Reply> {
        let connection = self.state.connection(self.caller, id).await?;
        self.found(connection, || ApiError::no_connection(id))
    }
}
