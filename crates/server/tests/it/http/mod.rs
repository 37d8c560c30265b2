//! The HTTP API against the real binary: facts that hold on SQLite and on PostgreSQL.

mod agent;
mod approval;
mod approval_command;
mod approval_document;
mod approval_notice;
mod approval_right;
mod bad_body;
mod bad_input;
mod bad_step;
mod batch;
#[allow(dead_code)] // The store's tests use the rest.
#[path = "../../../../store/tests/it/cluster.rs"]
mod cluster;
mod delegation;
mod delta;
mod delta_node;
mod doctor;
mod document;
mod event;
mod limit;
mod list;
mod message;
mod message_command;
mod node;
mod order;
mod page;
mod poison;
mod pool;
mod pressure;
mod remote;
mod remote_lost;
mod replay;
pub mod server;
mod service;
mod session;
mod shutdown;
mod sse;
mod step;
mod step_command;
mod step_document;
mod stream;
mod task;
#[path = "../../../../store/tests/it/template.rs"]
mod template;
mod usage;
mod wait;
mod waiting;
mod webhook;
mod why;
mod wire;
mod work;

/// Turns each fact into two tests: it is written once and holds on both databases.
macro_rules! facts {
    ($($(#[$meta:meta])* $fact:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::http::server::Server::on_sqlite().await).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::http::server::Server::on_postgres().await).await;
            })+
        }
    };
}
pub(crate) use facts;
