//! The checker against servers that are wrong on purpose, and the product under faults.
//!
//! Invariant: a machine without PostgreSQL fails these tests; nothing is skipped.

#[allow(dead_code)] // The store's tests use the rest.
#[path = "../../../store/tests/it/cluster.rs"]
mod cluster;
mod embedded;
mod limits;
mod mutant;
mod node;
mod postgres;
mod scenario;
mod story;
mod worker;
