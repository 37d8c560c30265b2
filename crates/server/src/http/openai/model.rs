//! Models: the pools that providers have bound, and the models that they named.
//!
//! Invariant: a pool whose providers are away for a moment is known, so that its tasks wait instead
//! of being refused. A name is looked up as a pool, then as a model, then as `pool/model`.

use crate::http::Api;
use crate::http::problem::{Problem, Result};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;
use windlass::Engine;
use windlass::store::session::Session;

/// How long what is known is used; a name that is not known is looked for at once.
const FRESH: Duration = Duration::from_secs(2);
/// How many sessions are looked at: a page, and pages.
const PAGE: usize = 1_000;
const PAGES: usize = 20;
/// How many names an error lists.
const LISTED: usize = 20;

/// Where a task goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The pool.
    pub pool: String,
    /// Only providers of this model.
    pub model: Option<String>,
    /// Where it waits, if not in the pool's own queue.
    pub queue: Option<String>,
}

/// What a pool has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pool {
    /// When it was first seen, in seconds.
    created: i64,
    /// The models that its providers named, and whether those take them by a queue of their own.
    models: BTreeMap<String, bool>,
    /// Some provider names no model, so it may have any.
    has_any: bool,
}

/// Every pool, and where each model is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pools: BTreeMap<String, Pool>,
    /// The pool of each model: one with a provider that is there, the newest.
    models: BTreeMap<String, (String, i64)>,
}

impl Known {
    /// From sessions, newest first.
    fn of(sessions: &[Session]) -> Known {
        let mut known = Known::default();
        let (open, closed) = sessions.iter().partition::<Vec<_>, _>(|s| s.closed_at.is_none());
        for session in open.into_iter().chain(closed) {
            let created = session.created_at.as_ms() / 1_000;
            let routes = &session.routes;
            let pins: Vec<String> = routes
                .models
                .iter()
                .flat_map(|model| routes.pools.iter().map(move |pool| format!("{pool}/{model}")))
                .collect();
            // Where a provider takes what is pinned to its model is a part of its pool.
            for name in routes.pools.iter().filter(|name| !pins.contains(name)) {
                let fresh = Pool { created, ..Pool::default() };
                let pool = known.pools.entry(name.clone()).or_insert(fresh);
                pool.created = pool.created.min(created);
                pool.has_any |= routes.models.is_empty();
                for model in &routes.models {
                    let queue = format!("{name}/{model}");
                    let has_queue = routes.pools.contains(&queue) || routes.queues.contains(&queue);
                    *pool.models.entry(model.clone()).or_default() |= has_queue;
                    let place = (name.clone(), created);
                    let (_, first) = known.models.entry(model.clone()).or_insert(place);
                    *first = created.min(*first);
                }
            }
        }
        known
    }

    fn find(&self, name: &str) -> Option<Target> {
        if self.pools.contains_key(name) {
            return Some(Target { pool: name.to_owned(), model: None, queue: None });
        }
        if let Some((pool, _)) = self.models.get(name) {
            return Some(self.pinned(pool, name));
        }
        // A pool's name may have slashes, too.
        let parts = name.match_indices('/').map(|(at, _)| (&name[..at], &name[at + 1..]));
        let has = |(pool, model): &(&str, &str)| {
            let pool = self.pools.get(*pool);
            pool.is_some_and(|pool| pool.has_any || pool.models.contains_key(*model))
        };
        let (pool, model) = parts.into_iter().filter(|(_, model)| !model.is_empty()).find(has)?;
        Some(self.pinned(pool, model))
    }

    fn pinned(&self, pool: &str, model: &str) -> Target {
        let has_queue = self.pools.get(pool).and_then(|pool| pool.models.get(model));
        let queue = has_queue.is_some_and(|has| *has).then(|| format!("{pool}/{model}"));
        Target { pool: pool.to_owned(), model: Some(model.to_owned()), queue }
    }

    /// What clients may ask for, each with the time since when it is known.
    fn names(&self) -> BTreeMap<&str, i64> {
        let models = self.models.iter().map(|(name, (_, created))| (name.as_str(), *created));
        let pools = self.pools.iter().map(|(name, pool)| (name.as_str(), pool.created));
        models.chain(pools).collect()
    }

    fn unknown(&self, name: &str) -> Problem {
        let shown: String = name.chars().take(100).collect();
        let names: Vec<&str> = self.names().into_keys().collect();
        let there_is = match names.len() {
            0 => "there are no pools yet; start one with `windlass provider`".into(),
            1..=LISTED => format!("there are: {}", names.join(", ")),
            count => format!("there are {count}, such as: {}", names[..LISTED].join(", ")),
        };
        let shown = shown.escape_debug();
        let detail = format!("the model `{shown}` does not exist; {there_is}");
        Problem::new(StatusCode::NOT_FOUND, "model_not_found", detail)
    }
}

/// What this node knows of pools and models, for a moment.
#[derive(Default)]
pub struct Catalog {
    known: Mutex<Option<(Instant, Arc<Known>)>>,
}

impl Catalog {
    fn fresh(&self) -> Option<Arc<Known>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = known.as_ref()?;
        (at.elapsed() < FRESH).then(|| Arc::clone(known))
    }

    async fn read(&self, engine: &Engine) -> Result<Arc<Known>> {
        let mut sessions = Vec::new();
        let mut after = None;
        for _ in 0..PAGES {
            let (page, next) = engine.sessions().list(true, after, PAGE).await?;
            sessions.extend(page.into_iter().filter(|session| !session.routes.pools.is_empty()));
            after = next;
            if after.is_none() {
                break;
            }
        }
        let read = Arc::new(Known::of(&sessions));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((Instant::now(), Arc::clone(&read)));
        Ok(read)
    }
}

impl Api {
    /// Where a request for this model goes.
    pub(super) async fn target(&self, model: &str) -> Result<Target> {
        if let Some(target) = self.models.fresh().and_then(|known| known.find(model)) {
            return Ok(target);
        }
        let known = self.models.read(&self.engine).await?;
        known.find(model).ok_or_else(|| known.unknown(model))
    }
}

/// A model, or a pool of them.
#[derive(Debug, Serialize, ToSchema)]
pub struct Model {
    /// What a request names.
    id: String,
    /// `model`.
    object: &'static str,
    /// When it was first seen, in seconds.
    created: i64,
    /// `windlass`.
    owned_by: &'static str,
}

impl Model {
    fn new(id: &str, created: i64) -> Model {
        Model { id: id.to_owned(), object: "model", created, owned_by: "windlass" }
    }
}

/// All of them.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<Model>,
}

/// List the pools and the models that providers have named, as OpenAI lists models.
#[utoipa::path(get, path = "/v1/models", tag = "openai",
    operation_id = "list_models",
    responses((status = 200, description = "All of them", body = ModelList)))]
pub async fn list(State(api): State<Api>) -> Result<Json<ModelList>> {
    let known = api.models.read(&api.engine).await?;
    let data = known.names().into_iter().map(|(name, created)| Model::new(name, created));
    Ok(Json(ModelList { object: "list", data: data.collect() }))
}

/// Show a model or a pool, as OpenAI shows a model.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai",
    operation_id = "show_model", params(("model" = String, Path)),
    responses((status = 200, description = "The model", body = Model)))]
pub async fn show(State(api): State<Api>, Path(model): Path<String>) -> Result<Json<Model>> {
    let known = api.models.read(&api.engine).await?;
    let target = known.find(&model).ok_or_else(|| known.unknown(&model))?;
    let created = known.pools.get(&target.pool).map_or(0, |pool| pool.created);
    Ok(Json(Model::new(&model, known.names().get(model.as_str()).copied().unwrap_or(created))))
}

/// The same, for a name with a slash that was not escaped.
pub async fn show_slashed(
    state: State<Api>,
    Path((pool, model)): Path<(String, String)>,
) -> Result<Json<Model>> {
    show(state, Path(format!("{pool}/{model}"))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;
    use windlass::domain::id::SessionId;
    use windlass::domain::time::Timestamp;
    use windlass::store::session::Routes;

    fn session(pool: &str, models: &[&str], is_open: bool) -> Session {
        let now: Timestamp = "2026-01-31T12:00:00.000Z".parse().unwrap();
        let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
        let mut pools = vec![pool.to_owned()];
        pools.extend(models.iter().map(|model| format!("{pool}/{model}")));
        Session {
            id: SessionId(Uuid::now_v7()),
            name: "p".into(),
            worker_type: None,
            routes: Routes { pools, models, ..Routes::default() },
            slots: 1,
            lease_ms: None,
            node: None,
            stream_epoch: 0,
            expires_at: now,
            created_at: now,
            updated_at: now,
            closed_at: (!is_open).then_some(now),
            close_reason: None,
        }
    }

    #[test]
    fn a_name_is_a_pool_or_a_model_or_both_with_a_slash() {
        let known = Known::of(&[
            session("old", &["org/big"], false),
            session("fast", &["small"], true),
            session("deep", &["org/big", "small"], true),
            session("any", &[], false),
        ]);
        let pinned = |pool: &str, model: &str, has_queue: bool| {
            let queue = has_queue.then(|| format!("{pool}/{model}"));
            Some(Target { pool: pool.into(), model: Some(model.into()), queue })
        };
        let pool = |pool: &str| Some(Target { pool: pool.into(), model: None, queue: None });
        for (name, expected) in [
            ("fast", pool("fast")),
            ("old", pool("old")),
            ("small", pinned("fast", "small", true)),
            // A pool whose provider is there comes before one whose provider is gone.
            ("org/big", pinned("deep", "org/big", true)),
            ("old/org/big", pinned("old", "org/big", true)),
            ("deep/small", pinned("deep", "small", true)),
            ("any/thing", pinned("any", "thing", false)),
            ("fast/org/big", None),
            ("fast/", None),
            ("nothing", None),
            ("", None),
        ] {
            assert_eq!(known.find(name), expected, "{name}");
        }
        let unknown = known.unknown("x\n").detail;
        assert!(unknown.contains("any, deep, fast, old, org/big, small"), "{unknown}");
    }
}
