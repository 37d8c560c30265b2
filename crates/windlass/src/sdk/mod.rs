//! The Rust SDK: handlers whose steps are done once, whatever crashes.
//!
//! A handler is an async function. It runs from its beginning in every attempt, and goes past what
//! earlier attempts have done: a step that is recorded is not run again, a wait that is over does
//! not wait. The same handlers run in process, over an [`Engine`](crate::Engine), and against a
//! remote server, over [`Remote`](crate::remote::Remote).
//!
//! ```
//! use windlass::sdk::{Ctx, Handlers, Result};
//!
//! async fn report(ctx: Ctx, topic: String) -> Result<String> {
//!     let found: Vec<String> = ctx.step("search", || search(&topic)).await?;
//!     ctx.sleep(std::time::Duration::from_secs(60)).await?; // No worker waits here.
//!     // Begun once: if the worker dies in it, a person decides whether it runs again.
//!     let id: u64 = ctx.step("publish", || publish(&found)).once().await?;
//!     Ok(format!("published as {id}"))
//! }
//!
//! async fn search(topic: &str) -> Result<Vec<String>> {
//!     Ok(vec![format!("a page about {topic}")])
//! }
//! async fn publish(pages: &[String]) -> Result<u64> {
//!     Ok(pages.len() as u64)
//! }
//!
//! let handlers = Handlers::new().on("report", report);
//! # let _ = handlers;
//! ```
//!
//! Invariant: whatever a step's closure does may happen more than once, unless the step is
//! [`once`](StepCall::once); what it returned is kept exactly once.
//! Absent: deterministic time and chance. Read them inside a step.

mod approve;
mod child;
mod context;
mod failure;
mod handlers;
mod host;
mod local;
mod message;
mod run_steps;
mod step;
mod wait;

pub use approve::Gate;
pub use child::{Child, NewChild};
pub use context::{Ctx, TaskInfo};
pub use failure::{Failure, Result};
pub use handlers::Handlers;
pub use message::{Incoming, MessageOptions, MessageWorker};
pub use run_steps::Steps;
pub use step::{Retry, StepCall};
pub use wait::SignalWait;

pub(crate) use context::{Ended, Start};
#[cfg(feature = "remote")]
pub(crate) use host::{Begun, CallError, PastStep, Pending, Question, Told};
pub(crate) use host::{Host, HostBeat, Registered, StepRun, Work};
pub(crate) use local::Local;
#[cfg(feature = "remote")]
pub(crate) use message::{Held, Mail, boxed, serve};

/// The guide's blocks are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/rust-sdk.md")]
struct Guide;

/// Those of messages as well; the rest of the page is no Rust.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/messages.md")]
struct Messages;
