//! The durable state of Windlass, on SQLite and PostgreSQL.
//!
//! The seam is a transaction ([`tx::Tx`]), not sixty operations: repositories such as
//! [`task::Tasks`] are written once over it, and each database implements it once.
//!
//! Invariant: there are no other writers of a task's state than [`task`], and an answer without
//! error means committed and synced.
//! Absent: no rules. They are in `windlass-domain`; here they are asked, stored and enforced.

pub mod agent;
pub mod alert;
pub mod approval;
pub mod audit;
pub mod clock;
pub mod dead_letter;
pub mod delta;
pub mod error;
pub mod group;
pub mod limit;
pub mod machine;
pub mod message;
pub mod migration;
pub mod node;
pub mod notice;
pub mod pool;
pub mod postgres;
pub mod response;
pub mod session;
pub mod signal;
pub mod sqlite;
pub mod statement;
pub mod step;
pub mod store;
pub mod task;
pub mod trouble;
pub mod tx;
pub mod value;
pub mod venture;
mod wait;
pub mod workflow;

/// Every statement of the store: tests prepare them all and look at their plans.
#[doc(hidden)]
pub fn statements() -> Vec<&'static statement::Statement> {
    let rest = [
        agent::STATEMENTS,
        alert::STATEMENTS,
        audit::STATEMENTS,
        dead_letter::STATEMENTS,
        delta::STATEMENTS,
        limit::STATEMENTS,
        migration::STATEMENTS,
        node::STATEMENTS,
        notice::STATEMENTS,
        pool::STATEMENTS,
        response::STATEMENTS,
        session::STATEMENTS,
        trouble::STATEMENTS,
        signal::STATEMENTS,
        step::STATEMENTS,
        venture::STATEMENTS,
        wait::STATEMENTS,
    ];
    let lists = [
        agent::LISTS,
        alert::LISTS,
        audit::LISTS,
        dead_letter::LISTS,
        node::LISTS,
        notice::LISTS,
        session::LISTS,
        step::LISTS,
        trouble::LISTS,
        venture::LISTS,
    ];
    let lists = lists.into_iter().flat_map(statement::both);
    let rest = rest.into_iter().flatten().copied().chain(lists);
    let entities = approval::statements().chain(message::statements());
    task::statements().chain(entities).chain(rest).collect()
}
