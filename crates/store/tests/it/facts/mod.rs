//! Facts about tasks: each written once, each run on both engines.

mod cancel;
mod claim;
mod count;
pub mod eager;
mod fail;
mod finish;
mod group;
mod history;
mod hold;
mod ledger;
mod list;
mod park;
mod retention;
mod submit;
mod sweep;
mod tail;
