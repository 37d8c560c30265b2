//! The rules of Windlass: pure functions over plain data.
//!
//! Invariant: no I/O, no clock, no randomness, no async. Time and chance are arguments.

pub mod address;
pub mod agent;
pub mod approval;
pub mod command;
pub mod contact;
pub mod decide;
pub mod delegation;
pub mod delta;
pub mod diagram;
pub mod failure;
pub mod fair;
pub mod id;
pub mod json;
pub mod limit;
pub mod message;
pub mod notice;
pub mod order;
pub mod page;
pub mod pins;
pub mod profile;
pub mod refusal;
pub mod replay;
pub mod request;
pub mod retry;
pub mod show;
pub mod snapshot;
pub mod state;
pub mod step;
pub mod task;
pub mod time;
pub mod transition;
pub mod trouble;
pub mod usage;
pub mod validate;
pub mod wait;
pub mod why;
