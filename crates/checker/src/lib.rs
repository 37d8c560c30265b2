//! Does Windlass keep its promises while things break?
//!
//! [`check::check`] joins three witnesses of a run: what the clients saw ([`log`]), which effects
//! the workers had ([`ledger`]), and what the database holds in the end ([`dump`]). The load
//! ([`load`]) makes such a run over HTTP, the harness ([`harness`]) breaks real servers under it,
//! and the model ([`model`]) is a small server that can be told to be wrong, so that the checker
//! itself is tested.
//!
//! Invariant: the checker believes nobody alone. What a client was told must be in the database,
//! and what the database says must be what a client was told.
//! Absent: no rule of its own about states. It asks `windlass-domain` what may follow what.

pub mod check;
pub mod dump;
pub mod harness;
pub mod ledger;
pub mod load;
pub mod log;
pub mod model;
pub mod seed;
