//! Windlass: a durable runtime for AI agents.
//!
//! This crate is what a Rust user depends on: the engine that runs work, and the SDK. Today it
//! opens a database by its URL; the engine follows.
//!
//! Absent: no HTTP (that is the server's), no SQL (that is the store's).

pub mod database;

pub use windlass_domain as domain;
pub use windlass_store as store;
