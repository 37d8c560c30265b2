//! Facts about tasks: each written once, each run on both engines.

mod cancel;
mod claim;
mod count;
mod fail;
mod finish;
mod group;
mod history;
mod hold;
mod ledger;
mod list;
mod park;
mod replay;
mod retention;
mod step;
mod submit;
mod sweep;
mod tail;
mod wait;
