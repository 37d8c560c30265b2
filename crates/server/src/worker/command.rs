//! The executor of the command worker: a child process for each task.

use super::assignment::Assignment;
use super::child::{self, Recipe, Stop};
use super::outcome::Outcome;
use super::{Begun, Executor, Running, environment};
use tokio::sync::watch;

/// How children are run.
pub struct Commands {
    /// What runs.
    pub recipe: Recipe,
    /// Which variables children may see.
    pub env_pass: Vec<String>,
    /// The server's URL, for children that call it.
    pub server: String,
}

impl Executor for Commands {
    fn run<'a>(
        &'a self,
        assignment: &'a Assignment,
        stop: watch::Receiver<Option<Stop>>,
        begun: Begun<'a>,
    ) -> Running<'a, Outcome> {
        let Commands { recipe, env_pass, server } = self;
        let environment = environment::of(assignment, server, env_pass, std::env::vars_os());
        Box::pin(child::run(recipe, assignment, environment, stop, begun))
    }
}
