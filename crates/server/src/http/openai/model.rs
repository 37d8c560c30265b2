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
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;
use windlass::Engine;
use windlass::store::session::Providing;

/// How long what is known is used; a name that is not known is looked for at once.
const FRESH: Duration = Duration::from_secs(2);
/// How many kinds of sessions are looked at; those that provide for the same are one.
const MOST: usize = 10_000;
/// How many names an error lists.
const LISTED: usize = 20;

/// Where a task goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The pool.
    pub pool: String,
    /// Only providers of this model.
    pub model: Option<String>,
}

/// What a pool has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pool {
    /// When it was first seen, in seconds.
    created: i64,
    /// The models that its providers named. One that names none has promised none.
    models: BTreeSet<String>,
}

/// Every pool, and where each model is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pools: BTreeMap<String, Pool>,
    /// The pool of each model: one with a provider that is there, the newest.
    models: BTreeMap<String, (String, i64)>,
}

impl Known {
    /// From what sessions provide for: those that are there first, then the newest.
    fn of(provided: &[Providing]) -> Known {
        let mut known = Known::default();
        for Providing { routes, first_at, .. } in provided {
            let created = first_at.as_ms() / 1_000;
            for name in &routes.pools {
                let fresh = Pool { created, ..Pool::default() };
                let pool = known.pools.entry(name.clone()).or_insert(fresh);
                pool.created = pool.created.min(created);
                for model in &routes.models {
                    pool.models.insert(model.clone());
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
            return Some(Target { pool: name.to_owned(), model: None });
        }
        if let Some((pool, _)) = self.models.get(name) {
            return Some(pinned(pool, name));
        }
        // A pool's name may have slashes, too.
        let parts = name.match_indices('/').map(|(at, _)| (&name[..at], &name[at + 1..]));
        let has = |(pool, model): &(&str, &str)| {
            let pool = self.pools.get(*pool);
            pool.is_some_and(|pool| pool.models.contains(*model))
        };
        let (pool, model) = parts.into_iter().filter(|(_, model)| !model.is_empty()).find(has)?;
        Some(pinned(pool, model))
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

fn pinned(pool: &str, model: &str) -> Target {
    Target { pool: pool.to_owned(), model: Some(model.to_owned()) }
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
        let read = Arc::new(Known::of(&engine.sessions().providing(MOST).await?));
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

/// The same, for a name with slashes that were not escaped.
pub async fn show_slashed(
    state: State<Api>,
    Path((pool, model)): Path<(String, String)>,
) -> Result<Json<Model>> {
    show(state, Path(format!("{pool}/{model}"))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::domain::time::Timestamp;
    use windlass::store::session::Routes;

    fn provided(pool: &str, models: &[&str], is_open: bool) -> Providing {
        let first_at: Timestamp = "2026-01-31T12:00:00.000Z".parse().unwrap();
        let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
        let pools = vec![pool.to_owned()];
        Providing { routes: Routes { pools, models, ..Routes::default() }, is_open, first_at }
    }

    #[test]
    fn a_name_is_a_pool_or_a_model_or_both_with_a_slash() {
        let known = Known::of(&[
            provided("fast", &["small"], true),
            provided("deep", &["org/big", "small"], true),
            provided("old", &["org/big"], false),
            provided("any", &[], false),
        ]);
        let pinned = |pool: &str, model: &str| Some(pinned(pool, model));
        let pool = |pool: &str| Some(Target { pool: pool.into(), model: None });
        for (name, expected) in [
            ("fast", pool("fast")),
            ("old", pool("old")),
            ("small", pinned("fast", "small")),
            // A pool whose provider is there comes before one whose provider is gone.
            ("org/big", pinned("deep", "org/big")),
            ("old/org/big", pinned("old", "org/big")),
            ("deep/small", pinned("deep", "small")),
            // Its provider names no model.
            ("any/thing", None),
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
