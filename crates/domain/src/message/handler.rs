//! Which pool of handlers an agent's messages go to, and how many of them may run.
//!
//! Invariant: a conversing agent (ceo, vp) is in one conversation at a time, whichever pool its
//! messages go to; a crew agent pulls, and may be pulled for by many.
//! Absent: the agents. The registry knows their roles.

use crate::validate::{self, Errors};

/// A pool of handlers, named like the type of its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Handler {
    /// Long-lived, woken by messages.
    Ceo,
    /// Long-lived, woken by messages.
    Vp,
    /// Short-lived, pulls; every role that is neither ceo nor vp.
    Crew,
}

impl Handler {
    /// Every pool.
    pub const ALL: &[Handler] = &[Handler::Ceo, Handler::Vp, Handler::Crew];

    /// Its name: the type of its workers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Handler::Ceo => "ceo_handler",
            Handler::Vp => "vp_handler",
            Handler::Crew => "crew_executor",
        }
    }

    /// The role whose messages go to it by themselves.
    pub const fn role(self) -> &'static str {
        match self {
            Handler::Ceo => "ceo",
            Handler::Vp => "vp",
            Handler::Crew => "crew",
        }
    }

    /// The pool of a role.
    pub fn of_role(role: &str) -> Handler {
        let own = Handler::ALL.iter().find(|handler| handler.role() == role);
        own.copied().unwrap_or(Handler::Crew)
    }

    /// Whether its agents are in one conversation at a time.
    pub const fn converses(self) -> bool {
        matches!(self, Handler::Ceo | Handler::Vp)
    }

    /// How many handlers run at once in one process: from, to. The lower one is what runs unless
    /// it is said.
    pub const fn size(self) -> (usize, usize) {
        match self {
            Handler::Ceo => (3, 5),
            Handler::Vp => (5, 10),
            Handler::Crew => (10, 50),
        }
    }
}

impl std::fmt::Display for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Handler {
    type Err = ();

    fn from_str(text: &str) -> Result<Handler, ()> {
        Handler::ALL.iter().copied().find(|handler| handler.as_str() == text).ok_or(())
    }
}

/// Whether an agent is in one conversation at a time: by its role, wherever its messages go, or
/// because they go to a pool of long-lived handlers.
pub fn converses(role: Option<&str>, worker_type: Option<&str>) -> bool {
    let by_role = role.is_some_and(|role| Handler::of_role(role).converses());
    let by_pool = worker_type.and_then(|name| name.parse().ok()).is_some_and(Handler::converses);
    by_role || by_pool
}

/// How many handlers a pool runs in one process. A single agent's pool may be of any size up to the
/// bound of its role; what nobody says is the lower bound.
pub fn pool_size(handler: Handler, asked: Option<usize>) -> validate::Result<usize> {
    let (from, to) = handler.size();
    let size = asked.unwrap_or(from);
    let mut errors = Errors::default();
    errors.range("/size", i64::try_from(size).unwrap_or(i64::MAX), 1, to as i64);
    errors.into_result().map(|()| size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_pool_and_any_other_role_is_crew() {
        let pools = ["ceo", "vp", "crew", "scout", ""].map(Handler::of_role);
        let crew = Handler::Crew;
        assert_eq!(pools, [Handler::Ceo, Handler::Vp, crew, crew, crew]);
        assert!(Handler::ALL.iter().all(|handler| handler.as_str().parse() == Ok(*handler)));
        assert!(Handler::Ceo.converses() && Handler::Vp.converses() && !crew.converses());
    }

    #[test]
    fn an_agent_converses_by_its_role_or_its_pool() {
        for (role, worker_type, is_conversing) in [
            (Some("ceo"), None, true),
            (Some("vp"), Some("gpu_handler"), true),
            (Some("vp"), Some("crew_executor"), true),
            (Some("scout"), Some("vp_handler"), true),
            (Some("crew"), None, false),
            (Some("scout"), Some("gpu_handler"), false),
            (None, None, false),
        ] {
            assert_eq!(converses(role, worker_type), is_conversing, "{role:?} {worker_type:?}");
        }
    }

    #[test]
    fn pools_have_their_sizes() {
        let sizes: Vec<_> = Handler::ALL.iter().map(|handler| handler.size()).collect();
        assert_eq!(sizes, [(3, 5), (5, 10), (10, 50)]);
        assert_eq!(pool_size(Handler::Ceo, None), Ok(3));
        assert_eq!(pool_size(Handler::Crew, Some(50)), Ok(50));
        assert!(pool_size(Handler::Ceo, Some(6)).is_err());
        assert!(pool_size(Handler::Vp, Some(0)).is_err());
    }
}
