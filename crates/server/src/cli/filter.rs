//! Which tasks: what a list and the event log filter by alike.

use super::argument;
use crate::client::Call;
use clap::Args;

#[derive(Args)]
pub(super) struct Filter {
    /// Only tasks of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only tasks of this kind: job, delegation or inference.
    #[arg(long)]
    kind: Option<String>,
    /// Only tasks of this name.
    #[arg(long)]
    name: Option<String>,
    /// Only tasks with this tag.
    #[arg(long, value_name = "KEY:VALUE", value_parser = argument::tag)]
    tag: Option<(String, String)>,
    /// Only tasks of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// Only tasks of this owner: of whoever asked by OpenAI's API, the name of the key.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only delegations by this agent.
    #[arg(long, value_name = "AGENT")]
    caller: Option<String>,
    /// Only delegations to this agent.
    #[arg(long, value_name = "AGENT")]
    callee: Option<String>,
    /// Only inference of this pool.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Only tasks of this venture.
    #[arg(long)]
    venture: Option<String>,
    /// Only tasks of this portfolio.
    #[arg(long)]
    portfolio: Option<String>,
    /// Only tasks of this stage.
    #[arg(long)]
    stage: Option<String>,
    /// Only tasks that this task has submitted.
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// Only replays of this task.
    #[arg(long, value_name = "ID")]
    replay_of: Option<String>,
    /// Only tasks with this correlation id.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

impl Filter {
    /// The parameters that it comes to.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let tag = self.tag.as_ref().map(|(key, value)| format!("{key}:{value}"));
        let given = [
            ("queue", &self.queue),
            ("kind", &self.kind),
            ("name", &self.name),
            ("tag", &tag),
            ("agent", &self.agent),
            ("owner", &self.owner),
            ("caller", &self.caller),
            ("callee", &self.callee),
            ("pool", &self.pool),
            ("venture", &self.venture),
            ("portfolio", &self.portfolio),
            ("stage", &self.stage),
            ("parent_id", &self.parent),
            ("replay_of", &self.replay_of),
            ("correlation_id", &self.correlation_id),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }

    /// A call that asks only for these.
    pub(super) fn onto(&self, call: Call) -> Call {
        self.pairs().into_iter().fold(call, |call, (name, value)| call.query(name, value))
    }
}
