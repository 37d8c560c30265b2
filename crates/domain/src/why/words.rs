//! Reasons in words that a person can act upon.
//!
//! Invariant: one line, and nothing in it that could deceive: names and messages are others' text.

use super::{Holder, LastError, MOST_COUNTED, Reason, Voter};
use crate::limit::{Key, Scope, period_in_words};
use crate::show;
use crate::state::State;
use crate::time::Timestamp;

/// How much of an error's message is repeated.
const MESSAGE_CHARS: usize = 200;

impl Reason {
    /// The reason in words, and what would change it.
    pub fn detail(&self) -> String {
        match self {
            Reason::Finished { status, since, error } => finished(*status, *since, error),
            Reason::Held { .. } => self.held(),
            Reason::WaitingForApproval { .. } => self.approval(),
            Reason::InDoubt { step_id, step } => {
                let step = step.as_ref().map_or_else(String::new, |name| quoted(name) + " ");
                let (what, who) = (format!("step {step}({step_id})"), "a person must decide");
                format!("nobody knows whether {what} ran: {who} with `windlass step resolve`")
            }
            Reason::WaitingForSignal { signal, key, until } => {
                let key = key.as_ref().map(|key| format!(" with key {}", quoted(key)));
                let key = key.unwrap_or_default();
                format!("waits for the signal {}{key}{}", quoted(signal), at_most(*until))
            }
            Reason::WaitingForTask { task_id, status, until } => {
                let now = status.map(|status| format!(", which is {status}")).unwrap_or_default();
                format!("waits for the end of task {task_id}{now}{}", at_most(*until))
            }
            Reason::WaitingForTime { until } => format!("sleeps until {until}"),
            Reason::Waiting {} => {
                "is parked, and nobody knows for what: it was moved by hand; cancel it".to_owned()
            }
            Reason::RunElsewhere { caller } => {
                let caller = caller.as_deref().map_or_else(|| "its caller".to_owned(), quoted);
                format!("is run elsewhere: {caller} reports what becomes of it")
            }
            Reason::BackingOff { .. } => self.backing_off(),
            Reason::Scheduled { until } => format!("is scheduled for {until}"),
            Reason::Paused { scope, name, by, since, reason } => {
                let what = thing(*scope, name);
                let (by, why) = (quoted(by), because(reason));
                format!("{what} is paused by {by} since {since}{why}; resume it")
            }
            Reason::Draining { scope, name, by, since, reason } => {
                let what = thing(*scope, name);
                let (by, why) = (quoted(by), because(reason));
                format!(
                    "{what} drains by order of {by} since {since}{why}: it takes nothing new in, \
                     and hands this task out all the same"
                )
            }
            Reason::LimitReached { .. } => self.limit(),
            Reason::RateReached { scope, name, limit, period_ms, until } => {
                let next = until.map(|until| format!("; the next from {until} on"));
                let (what, next) = (thing(*scope, name), next.unwrap_or_default());
                let tasks = many(*limit, "task", "tasks");
                let period = period_in_words(*period_ms);
                format!("{what} may begin {tasks} in {period}, and has{next}")
            }
            Reason::NoWorker { queue, kind, pins } => {
                let pinned: Vec<String> =
                    pins.set().map(|(what, name)| format!("{what} {}", quoted(name))).collect();
                let pinned = match pinned.is_empty() {
                    true => String::new(),
                    false => format!(" and names {}", pinned.join(" and ")),
                };
                let queue = quoted(queue);
                format!(
                    "no worker that is alive takes {kind} tasks of queue {queue}{pinned}: start one"
                )
            }
            Reason::WorkersBusy { .. } => self.busy(),
            Reason::InLine {
                ahead,
                ahead_at_least,
                ventures,
                estimated_wait_ms,
                estimated_start_at,
            } => {
                let place = place(*ahead, *ahead_at_least, *ventures);
                let start = start(*estimated_wait_ms, *estimated_start_at);
                let start = start.map(|start| format!("; {start}")).unwrap_or_default();
                format!("stands in line {place}{start}")
            }
            Reason::Ready { .. } => self.ready(),
        }
    }

    fn held(&self) -> String {
        let Reason::Held { status, session, worker, since, attempt, lease_expired, .. } = self
        else {
            return String::new();
        };
        let who = match (worker, session) {
            (Some(worker), Some(session)) => {
                format!("worker {} (session {})", quoted(worker), show::text(session))
            }
            (None, Some(session)) => show::text(session),
            _ => "somebody".to_owned(),
        };
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        let doing = if *status == State::Running { "runs" } else { "is claimed" };
        let late = match lease_expired {
            true => "; its lease has run out, and it is taken back soon",
            false => "",
        };
        format!("{doing} in the hands of {who}{since}, attempt {attempt}{late}")
    }

    fn approval(&self) -> String {
        let Reason::WaitingForApproval {
            approval_id,
            gate,
            action,
            required,
            approvals,
            until,
            voices,
        } = self
        else {
            return String::new();
        };
        let (gate, action) = (quoted(gate), quoted(action));
        let by = until.map(|until| format!(", by {until}")).unwrap_or_default();
        let said = |voter: &Voter| format!("{} by {}", voter.choice, quoted(&voter.actor));
        let said = voices.voters.iter().map(said).collect();
        let said = some(said, voices.more_voters).map(|said| format!(" ({said})"));
        let asked = voices.token_holders.iter().map(|holder| quoted(&holder.approver)).collect();
        let asked = some(asked, voices.more_token_holders);
        let asked = asked.map(|asked| format!("; tokens are with {asked}"));
        let (said, asked) = (said.unwrap_or_default(), asked.unwrap_or_default());
        format!(
            "waits for approval {approval_id} of {action} at gate {gate}: {approvals} of \
             {required} voices so far{said}{by}{asked}"
        )
    }

    fn backing_off(&self) -> String {
        let Reason::BackingOff { until, attempt, retry_count, max_retries, error } = self else {
            return String::new();
        };
        let error = error.as_ref().map(|error| format!(" ({})", said(error)));
        let error = error.unwrap_or_default();
        format!(
            "attempt {attempt} failed{error}; it is tried again at {until}, retry {retry_count} \
             of {max_retries}"
        )
    }

    fn limit(&self) -> String {
        let Reason::LimitReached { scope, name, limit, held, holders } = self else {
            return String::new();
        };
        let what = thing(*scope, name);
        let by = held_by(*held, holders);
        if *scope == Scope::WorkerType {
            if *limit == 0 {
                return format!(
                    "a session of {what} may hold no task, and all that would take it are of such \
                     a type{by}; raise its limit, or start a worker of another type"
                );
            }
            let most = many(*limit, "task", "tasks");
            return format!(
                "a session of {what} may hold {most}, and all that would take it do{by}"
            );
        }
        let most = many(*limit, "active task", "active tasks");
        format!("{what} may have {most} and has {held}{by}")
    }

    fn busy(&self) -> String {
        let Reason::WorkersBusy { queue, workers, held, holders, .. } = self else {
            return String::new();
        };
        let who = match workers {
            1 => "the only worker that would take it is busy: it holds".to_owned(),
            n => format!("all {n} workers that would take it are busy: they hold"),
        };
        let (tasks, by) = (many(*held, "task", "tasks"), held_by(*held, holders));
        format!("{who} {tasks}, and no slot is free{by}; start another for {}", quoted(queue))
    }

    fn ready(&self) -> String {
        let Reason::Ready {
            ahead,
            ahead_at_least,
            ventures,
            workers,
            estimated_wait_ms,
            estimated_start_at,
            ..
        } = self
        else {
            return String::new();
        };
        let place = place(*ahead, *ahead_at_least, *ventures);
        let start = start(*estimated_wait_ms, *estimated_start_at);
        let start = start.unwrap_or("nothing has left this queue in the last minute".into());
        let workers = many(*workers, "worker is", "workers are");
        format!("is ready, {place}; {workers} there; {start}")
    }
}

/// Where a task stands in its line.
fn place(ahead: i64, at_least: bool, ventures: i64) -> String {
    let ahead = match (ahead, at_least) {
        (0, false) => "first of its venture".to_owned(),
        (0, true) => "perhaps behind others of its venture".to_owned(),
        (n, false) => format!("behind {}", many(n, "task", "tasks")),
        (n, true) if n < MOST_COUNTED => format!("behind at least {}", many(n, "task", "tasks")),
        (n, true) => format!("behind more than {n} tasks"),
    };
    match ventures {
        ..=1 => ahead,
        n => format!("{ahead}, {n} ventures take turns"),
    }
}

fn start(wait_ms: Option<i64>, at: Option<Timestamp>) -> Option<String> {
    wait_ms.zip(at).map(|(ms, at)| format!("starts in about {ms} ms, at {at}"))
}

fn finished(status: State, since: Option<Timestamp>, error: &Option<LastError>) -> String {
    let since = since.map(|since| format!(" at {since}")).unwrap_or_default();
    let error = error.as_ref().map(|error| format!(": {}", said(error))).unwrap_or_default();
    format!("ended {status}{since}{error}")
}

/// The first of them by name, and how many more there are; `None` of none.
fn some(mut names: Vec<String>, more: i64) -> Option<String> {
    let last = match more {
        0 => names.pop()?,
        more => format!("{more} more"),
    };
    Some(if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) })
}

/// Who holds something, the first of them by name.
fn held_by(held: i64, holders: &[Holder]) -> String {
    let Some(first) = holders.first() else { return String::new() };
    let others = held - 1;
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    format!("; held by {}{more}", holder(first))
}

fn holder(holder: &Holder) -> String {
    let who = holder.worker.as_deref().unwrap_or(&holder.session);
    format!("task {} of {}", holder.task_id, quoted(who))
}

fn said(error: &LastError) -> String {
    let message: String = error.message.chars().take(MESSAGE_CHARS).collect();
    let cut = if message.len() < error.message.len() { "…" } else { "" };
    format!("{}: {}{cut}", show::text(&error.code), show::text(&message))
}

fn thing(scope: Scope, name: &Option<String>) -> String {
    let name = name.as_deref().map(show::text).unwrap_or_default();
    Key { scope, name }.to_string()
}

fn quoted(name: &str) -> String {
    format!("`{}`", show::text(name))
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(" ({})", show::text(reason)))
}

fn at_most(until: Option<Timestamp>) -> String {
    until.map_or_else(String::new, |until| format!(", until {until} at most"))
}

fn many(n: i64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}
