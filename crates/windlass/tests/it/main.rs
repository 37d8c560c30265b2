//! Facts about the engine that need real databases.

mod approval;
// The store's own test clusters: one way to get a PostgreSQL server in tests.
#[allow(dead_code)] // The store's tests use the rest.
#[path = "../../../store/tests/it/bouncer.rs"]
mod bouncer;
mod claims;
#[allow(dead_code)] // The store's tests use the rest.
#[path = "../../../store/tests/it/cluster.rs"]
mod cluster;
mod delegation;
mod delta;
mod dispatch;
mod duty;
mod first_delta;
mod limit;
mod log;
mod message;
mod nodes;
mod notice;
mod pool;
mod pooler;
mod pressure;
mod sdk;
mod sdk_failure;
mod sdk_inside;
mod sdk_ordered;
mod sdk_wait;
mod session;
mod session_life;
mod shutdown;
#[path = "../../../store/tests/it/template.rs"]
mod template;
mod wait;
mod world;
