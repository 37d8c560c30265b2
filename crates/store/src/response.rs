//! Responses that their owner has deleted.
//!
//! Invariant: a deleted response stays deleted, and its task stays as it is: what has ended never
//! changes, and retention removes both. Who may delete what is the server's to say.

use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use windlass_domain::id::TaskId;

statement!(shared DELETE, "response/delete");
statement!(shared IS_DELETED, "response/is_deleted");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&DELETE, &IS_DELETED];

/// The repository of deleted responses; cheap to clone.
#[derive(Clone)]
pub struct Responses {
    store: Store,
}

impl Responses {
    /// The responses of one database.
    pub fn new(store: Store) -> Responses {
        Responses { store }
    }

    /// Deletes the response of a task; `false` if somebody did before.
    pub async fn delete(&self, task: TaskId, actor: &str) -> Result<bool> {
        let actor = actor.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let params = vec![task.0.into(), actor.as_str().into(), tx.now()?.into()];
            Ok(!tx.run(Call::one(&DELETE, params))?.is_empty())
        };
        self.store.write("response_delete", body).await
    }

    /// Whether the response of a task was deleted.
    pub async fn is_deleted(&self, task: TaskId) -> Result<bool> {
        let body = move |tx: &mut dyn Tx| {
            Ok(!tx.run(Call::one(&IS_DELETED, vec![task.0.into()]))?.is_empty())
        };
        self.store.read("response_is_deleted", body).await
    }
}
