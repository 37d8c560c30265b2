//! Facts about tasks: each written once, each run on both engines.

mod alert;
mod approval;
mod approval_replay;
mod approval_request;
mod approval_token;
mod approval_vote;
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
mod notice;
mod park;
mod replay;
mod retention;
mod step;
mod submit;
mod sweep;
mod tail;
mod trouble;
mod wait;
