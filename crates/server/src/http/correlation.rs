//! Which correlation ids stand in the log line of a request.
//!
//! Invariant: a line costs no look at the database. What an answer shows of a task is remembered
//! for the calls about it whose answers do not show it: heartbeats, a finish of many, steps,
//! history, every refusal.
//! Absent: the ids of tasks that this node has not shown lately, such as before it was started.

use axum::Extension;
use axum::response::Response;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::store::task::Task;

/// How many ids stand in a line, so that it does not become a page.
const MOST_IDS: usize = 10;
/// How many tasks are remembered twice over: those since the last time that there were so many,
/// and as many before them.
const REMEMBERED: usize = 10_000;

/// The correlation ids of what an answer is about, for the log line; a handler puts it there.
#[derive(Clone, Debug, Default)]
pub struct Correlation {
    ids: Vec<String>,
    tasks: Vec<(TaskId, Arc<str>)>,
}

/// What a handler puts before the body of its answer.
pub type Correlated = Option<Extension<Correlation>>;

impl Correlation {
    /// Of anything that has such ids; each id once.
    pub fn of<'a>(ids: impl IntoIterator<Item = Option<&'a str>>) -> Option<Correlation> {
        let mut correlation = Correlation::default();
        ids.into_iter().flatten().for_each(|id| correlation.add(id));
        correlation.filled()
    }

    /// Of tasks that the answer shows, or that it has just taken.
    pub fn of_tasks<'a>(
        tasks: impl IntoIterator<Item = (TaskId, Option<&'a str>)>,
    ) -> Option<Correlation> {
        let mut correlation = Correlation::default();
        for (task, id) in tasks {
            let Some(id) = id else { continue };
            correlation.add(id);
            correlation.tasks.push((task, id.into()));
        }
        correlation.filled()
    }

    fn add(&mut self, id: &str) {
        if self.ids.len() < MOST_IDS && !self.ids.iter().any(|known| known == id) {
            self.ids.push(id.to_owned());
        }
    }

    fn filled(self) -> Option<Correlation> {
        (!self.ids.is_empty()).then_some(self)
    }

    /// An answer with what the log needs.
    pub fn upon(correlation: Option<Correlation>, mut response: Response) -> Response {
        if let Some(correlation) = correlation {
            response.extensions_mut().insert(correlation);
        }
        response
    }
}

/// What a task is known by in the log.
pub fn named(task: &Task) -> (TaskId, Option<&str>) {
    (task.id, task.correlation_id.as_deref())
}

/// The correlation ids of the tasks that this node has shown lately.
#[derive(Default)]
pub struct Correlations(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<TaskId, Arc<str>>,
    old: HashMap<TaskId, Arc<str>>,
}

impl Generations {
    fn insert(&mut self, task: TaskId, id: Arc<str>) {
        if self.young.len() >= REMEMBERED && !self.young.contains_key(&task) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(task, id);
    }

    /// Tasks that are asked for stay: one that is worked at for hours is named by every heartbeat.
    fn find(&mut self, task: TaskId) -> Option<Arc<str>> {
        if let Some(id) = self.young.get(&task) {
            return Some(Arc::clone(id));
        }
        let id = self.old.remove(&task)?;
        self.insert(task, Arc::clone(&id));
        Some(id)
    }
}

impl Correlations {
    /// Tasks were shown.
    pub fn remember(&self, shown: &Correlation) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.tasks.iter().for_each(|(task, id)| known.insert(*task, Arc::clone(id)));
    }

    /// Of tasks that a request names and its answer does not show.
    pub fn of(&self, tasks: impl IntoIterator<Item = TaskId>) -> Correlated {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut correlation = Correlation::default();
        for task in tasks {
            if let Some(id) = known.find(task) {
                correlation.add(&id);
            }
        }
        correlation.filled().map(Extension)
    }

    /// What stands in the line of this answer: what it shows, else what the address names.
    pub fn line(&self, path: &str, response: &Response) -> Option<String> {
        if let Some(shown) = response.extensions().get::<Correlation>() {
            self.remember(shown);
            return Some(shown.ids.join(","));
        }
        let Extension(correlation) = self.of([addressed(path)?])?;
        Some(correlation.ids.join(","))
    }
}

/// The task of `/v1/tasks/{id}/…`, and of what has the same id.
fn addressed(path: &str) -> Option<TaskId> {
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    match parts.next()? {
        "tasks" | "delegations" | "poison" => Uuid::try_parse(parts.next()?).ok().map(TaskId),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    fn task(n: usize) -> TaskId {
        TaskId(Uuid::from_u128(n as u128))
    }

    #[test]
    fn the_correlation_ids_of_a_batch_stand_once_each_and_are_few() {
        let joined = |ids: &[Option<&str>]| Correlation::of(ids.iter().copied()).map(|c| c.ids);
        assert_eq!(joined(&[None, None]), None);
        assert_eq!(joined(&[Some("a"), None, Some("b"), Some("a")]).unwrap(), ["a", "b"]);
        let many: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let many: Vec<Option<&str>> = many.iter().map(|id| Some(id.as_str())).collect();
        assert_eq!(joined(&many).unwrap().len(), MOST_IDS);
    }

    #[test]
    fn what_was_shown_is_known_until_many_others_were_and_stays_while_it_is_asked_for() {
        let known = Correlations::default();
        let show = |n: usize| {
            let shown = Correlation::of_tasks([(task(n), Some("order"))]);
            known.line("/v1/tasks", &Correlation::upon(shown, ().into_response()))
        };
        let line =
            |n: usize| known.line(&format!("/v1/tasks/{}/history", task(n).0), &().into_response());
        assert_eq!((show(0), line(1)), (Some("order".into()), None));
        (1..=REMEMBERED).for_each(|n| drop(show(n)));
        assert_eq!(line(0), Some("order".into()), "asked for again");
        (1..=REMEMBERED).for_each(|n| drop(show(n)));
        assert_eq!(line(0), Some("order".into()));
        (1..=2 * REMEMBERED).for_each(|n| drop(show(REMEMBERED + n)));
        assert_eq!(line(0), None);
        let known = known.0.lock().unwrap();
        assert!(known.young.len() + known.old.len() <= 2 * REMEMBERED);
    }
}
