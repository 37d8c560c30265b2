//! The registry: agents in their tree, ventures and portfolios.

use crate::world::*;
use serde_json::json;
use windlass_domain::agent::{AgentPatch, AgentSpec, Authority, Executor, Given, MAX_DEPTH, Unit};
use windlass_store::agent::{Agent, AgentFilter, Agents, Said, Written};
use windlass_store::audit::{Audit, Filter};
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::venture::Ventures;

conformance!(
    an_agent_is_kept_as_it_was_told,
    an_agent_is_created_once,
    a_change_leaves_the_rest_alone,
    nobody_is_above_itself_in_the_registry,
    two_changes_at_once_make_no_circle,
    no_tree_is_deeper_than_a_line_is_read,
    of_two_who_make_a_venture_at_once_one_is_refused,
    a_parent_a_venture_and_a_portfolio_are_there,
    the_portfolio_is_the_ventures,
    archiving_an_agent_touches_nothing_that_it_did,
    agents_are_listed_by_what_they_are,
    ventures_belong_to_portfolios,
    changes_of_the_registry_are_audited,
    the_database_keeps_only_agents_that_can_be_read,
    an_agent_that_nobody_can_read_keeps_nobody_from_the_others,
    a_write_says_whether_the_agent_is_new,
);

struct Company {
    world: World,
    agents: Agents,
    ventures: Ventures,
}

async fn company(dialect: Dialect) -> Company {
    let world = World::new(dialect).await;
    let (agents, ventures) = (Agents::new(world.store.clone()), Ventures::new(world.store.clone()));
    Company { world, agents, ventures }
}

fn under(parent: Option<&str>, role: &str) -> AgentSpec {
    AgentSpec { parent: parent.map(Into::into), role: Some(role.into()), ..AgentSpec::default() }
}

/// The pointer and code of the only thing that is wrong.
fn wrong<T: std::fmt::Debug>(outcome: Outcome<T>) -> (String, &'static str) {
    use windlass_domain::refusal::Refusal;
    use windlass_store::error::Rejection;
    match outcome {
        Err(Rejection::Refused(Refusal::Invalid(mut errors))) => {
            let error = errors.pop().unwrap();
            assert!(errors.is_empty(), "{errors:?}");
            (error.pointer, error.code)
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

impl Company {
    async fn put(&self, name: &str, spec: AgentSpec) -> Outcome<Agent> {
        self.agents.put(name, spec, "ada").await
    }

    async fn venture(&self, name: &str, portfolio: Option<&str>) {
        let portfolio = portfolio.map(str::to_owned);
        self.ventures.put(Unit::Venture, name, portfolio, true, "ada").await.unwrap();
    }

    async fn portfolio(&self, name: &str) {
        self.ventures.put(Unit::Portfolio, name, None, true, "ada").await.unwrap();
    }
}

async fn an_agent_is_kept_as_it_was_told(dialect: Dialect) {
    let company = company(dialect).await;
    company.portfolio("alpha").await;
    company.venture("acme", None).await;
    company.put("ceo", AgentSpec::default()).await.unwrap();
    let executor = Executor::Command { command: vec!["sh".into(), "-c".into()], timeout_ms: None };
    let spec = AgentSpec {
        portfolio: Some("alpha".into()),
        venture: Some("acme".into()),
        queue: Some("q".into()),
        worker_type: Some("gpu".into()),
        executor: Some(executor),
        authority: Authority { agents: vec!["Zoë".into()], ventures: vec!["beta".into()] },
        ..under(Some("ceo"), "vp")
    };
    let written = company.put("vp", spec.clone()).await.unwrap();
    assert_eq!((written.spec, written.created_at), (spec, company.world.now()));
    assert_eq!(written.archived_at, None);
    let shown = company.agents.show("vp").await.unwrap().unwrap();
    assert_eq!(shown.portfolio(), Some("alpha"));
    assert_eq!(company.agents.line("vp").await.unwrap(), ["vp", "ceo"]);
    assert_eq!(company.agents.line("nobody").await.unwrap(), ["nobody"]);
}

async fn an_agent_is_created_once(dialect: Dialect) {
    let company = company(dialect).await;
    let create = |role: &'static str| company.agents.create("a", under(None, role), "ada");
    let first = create("vp").await.unwrap();
    company.world.pass_ms(5);
    assert_eq!(create("vp").await.unwrap(), first, "the same again is the same");
    assert_eq!(refused(create("ceo").await), "already_exists");
    company.agents.archive("a", true, "ada").await.unwrap();
    assert_eq!(refused(create("vp").await), "already_exists");
}

async fn a_change_leaves_the_rest_alone(dialect: Dialect) {
    let company = company(dialect).await;
    company.put("a", AgentSpec { queue: Some("q".into()), ..under(None, "vp") }).await.unwrap();
    let patch: AgentPatch = serde_json::from_value(json!({ "role": "ceo" })).unwrap();
    let after = company.agents.patch("a", patch.clone(), "ada").await.unwrap();
    assert_eq!((after.spec.role.as_deref(), after.spec.queue.as_deref()), (Some("ceo"), Some("q")));
    let new = company.agents.patch("b", patch, "ada").await.unwrap();
    assert_eq!(new.spec, under(None, "ceo"));
}

async fn nobody_is_above_itself_in_the_registry(dialect: Dialect) {
    let company = company(dialect).await;
    company.put("ceo", under(None, "ceo")).await.unwrap();
    company.put("vp", under(Some("ceo"), "vp")).await.unwrap();
    company.put("crew", under(Some("vp"), "crew")).await.unwrap();
    let circle = ("/parent".to_owned(), "cycle");
    assert_eq!(wrong(company.put("ceo", under(Some("crew"), "ceo")).await), circle);
    assert_eq!(wrong(company.put("vp", under(Some("crew"), "vp")).await), circle);
    assert_eq!(company.agents.line("crew").await.unwrap(), ["crew", "vp", "ceo"]);
    // Nor by hand.
    for sql in [
        "UPDATE agent SET parent = 'crew' WHERE name = 'ceo'",
        "UPDATE agent SET parent = 'ceo' WHERE name = 'ceo'",
    ] {
        let said = company.world.by_hand(sql).unwrap_err();
        assert!(said.contains("above itself"), "{said}");
    }
}

async fn two_changes_at_once_make_no_circle(dialect: Dialect) {
    let company = company(dialect).await;
    for round in 0..5 {
        let (one, two) = (format!("one{round}"), format!("two{round}"));
        company.put(&one, AgentSpec::default()).await.unwrap();
        company.put(&two, AgentSpec::default()).await.unwrap();
        let (first, second) = tokio::join!(
            company.put(&one, under(Some(&two), "vp")),
            company.put(&two, under(Some(&one), "vp")),
        );
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        let refused = if first.is_ok() { second } else { first };
        assert_eq!(wrong(refused), ("/parent".to_owned(), "cycle"));
    }
}

/// Whoever was put below somebody took along those below, however many: they were no longer in the
/// line of whoever is at the top, and were refused as if they were in another one.
async fn no_tree_is_deeper_than_a_line_is_read(dialect: Dialect) {
    let company = company(dialect).await;
    for depth in 0..MAX_DEPTH {
        let parent = depth.checked_sub(1).map(|above| format!("low{above}"));
        company.put(&format!("low{depth}"), under(parent.as_deref(), "crew")).await.unwrap();
    }
    company.put("top", under(None, "ceo")).await.unwrap();
    company.put("upper", under(Some("top"), "vp")).await.unwrap();
    let too_deep = ("/parent".to_owned(), "out_of_range");
    assert_eq!(wrong(company.put("low0", under(Some("upper"), "crew")).await), too_deep);
    company.put("low0", under(Some("top"), "crew")).await.unwrap();
    let lowest = format!("low{}", MAX_DEPTH - 1);
    let line = company.agents.line(&lowest).await.unwrap();
    assert_eq!((line.len(), line.last().unwrap().as_str()), (MAX_DEPTH + 1, "top"));
    assert_eq!(wrong(company.put("lower", under(Some(&lowest), "crew")).await), too_deep);
}

/// On PostgreSQL both looked before either wrote: both were told that it was theirs, and the second
/// had written over the first. An agent could come into a venture that had just been archived.
async fn of_two_who_make_a_venture_at_once_one_is_refused(dialect: Dialect) {
    let company = company(dialect).await;
    company.portfolio("one").await;
    company.portfolio("two").await;
    let make = |name: String, portfolio: &str| {
        let (ventures, portfolio) = (company.ventures.clone(), Some(portfolio.to_owned()));
        async move { ventures.put(Unit::Venture, &name, portfolio, true, "ada").await }
    };
    for round in 0..10 {
        let name = format!("venture{round}");
        let (one, two) = tokio::join!(make(name.clone(), "one"), make(name.clone(), "two"));
        let made: Vec<_> = [one, two].into_iter().flatten().collect();
        assert_eq!(made.len(), 1, "{made:?}");
        let kept = company.ventures.show(Unit::Venture, &name).await.unwrap();
        assert_eq!(kept.as_ref(), made.first());
    }
}

async fn a_parent_a_venture_and_a_portfolio_are_there(dialect: Dialect) {
    let company = company(dialect).await;
    let unknown = |pointer: &str| (pointer.to_owned(), "not_found");
    let of = |venture: Option<&str>, portfolio: Option<&str>| AgentSpec {
        venture: venture.map(Into::into),
        portfolio: portfolio.map(Into::into),
        ..AgentSpec::default()
    };
    assert_eq!(wrong(company.put("a", under(Some("b"), "vp")).await), unknown("/parent"));
    assert_eq!(wrong(company.put("a", of(Some("acme"), None)).await), unknown("/venture"));
    assert_eq!(wrong(company.put("a", of(None, Some("p"))).await), unknown("/portfolio"));
    assert_eq!(company.agents.show("a").await.unwrap(), None, "nothing is half-written");
    company.venture("acme", None).await;
    company.put("a", of(Some("acme"), None)).await.unwrap();
    company.ventures.archive(Unit::Venture, "acme", true, "ada").await.unwrap();
    assert_eq!(wrong(company.put("b", of(Some("acme"), None)).await), unknown("/venture"));
    // Whoever is there stays there, and may be changed in other ways.
    let patch: AgentPatch = serde_json::from_value(json!({ "queue": "q" })).unwrap();
    company.agents.patch("a", patch, "ada").await.unwrap();
    let put = company.ventures.put(Unit::Venture, "x", Some("p".into()), true, "ada").await;
    assert_eq!(wrong(put), unknown("/portfolio"));
}

async fn the_portfolio_is_the_ventures(dialect: Dialect) {
    let company = company(dialect).await;
    company.portfolio("alpha").await;
    company.portfolio("beta").await;
    company.venture("acme", Some("alpha")).await;
    let of = |portfolio: Option<&str>| AgentSpec {
        venture: Some("acme".into()),
        portfolio: portfolio.map(Into::into),
        ..AgentSpec::default()
    };
    assert_eq!(company.put("a", of(None)).await.unwrap().portfolio(), Some("alpha"));
    let conflict = ("/portfolio".to_owned(), "conflict");
    assert_eq!(wrong(company.put("b", of(Some("beta"))).await), conflict);
    company.put("b", of(Some("alpha"))).await.unwrap();
    // The venture moves, and takes its agents along.
    let moved = company.ventures.put(Unit::Venture, "acme", Some("beta".into()), false, "ada");
    moved.await.unwrap();
    for name in ["a", "b"] {
        let agent = company.agents.show(name).await.unwrap().unwrap();
        assert_eq!(agent.portfolio(), Some("beta"), "{name}");
        let given = company.agents.given(vec![name.into()]).await.unwrap().pop().unwrap().1;
        let (venture, portfolio) = (Some("acme".into()), Some("beta".into()));
        assert_eq!(given, Given { venture, portfolio, ..Given::default() });
    }
}

async fn archiving_an_agent_touches_nothing_that_it_did(dialect: Dialect) {
    let company = company(dialect).await;
    company.put("boss", under(None, "ceo")).await.unwrap();
    company.put("crew", under(Some("boss"), "crew")).await.unwrap();
    let id = company.world.submit(delegation(|_| {})).await;
    let (task, story) = (company.world.show(id).await, company.world.story(id).await);
    company.world.pass_ms(5);
    let now = company.world.now();
    let archived = company.agents.archive("boss", true, "ada").await.unwrap();
    assert_eq!(archived.archived_at, Some(now));
    company.world.pass_ms(5);
    let again = company.agents.archive("boss", true, "ada").await.unwrap();
    assert_eq!(again, archived, "once is enough");
    assert_eq!((company.world.show(id).await, company.world.story(id).await), (task, story));
    let crew = company.agents.show("crew").await.unwrap().unwrap();
    assert_eq!(crew.spec.parent.as_deref(), Some("boss"));
    assert_eq!(wrong(company.put("new", under(Some("boss"), "vp")).await).1, "not_found");
    let restored = company.agents.archive("boss", false, "ada").await.unwrap();
    assert_eq!(restored.archived_at, None);
    assert_eq!(refused(company.agents.archive("nobody", true, "ada").await), "not_found");
    // Not even a removal by hand takes anything along.
    company.world.by_hand("DELETE FROM agent").unwrap();
    assert_eq!(company.world.show(id).await.caller.as_deref(), Some("boss"));
}

async fn agents_are_listed_by_what_they_are(dialect: Dialect) {
    let company = company(dialect).await;
    company.portfolio("alpha").await;
    company.venture("acme", Some("alpha")).await;
    company.put("ceo", under(None, "ceo")).await.unwrap();
    let venture = Some("acme".to_owned());
    let crew = AgentSpec { venture, ..under(Some("ceo"), "crew") };
    for name in ["c1", "c2", "c3"] {
        company.put(name, crew.clone()).await.unwrap();
    }
    company.agents.archive("c2", true, "ada").await.unwrap();
    let text = |word: &str| Some(word.to_owned());
    let none = AgentFilter::default;
    for (filter, wanted) in [
        (none(), vec!["c1", "c3", "ceo"]),
        (AgentFilter { archived: true, ..none() }, vec!["c1", "c2", "c3", "ceo"]),
        (AgentFilter { role: text("ceo"), ..none() }, vec!["ceo"]),
        (AgentFilter { parent: text("ceo"), ..none() }, vec!["c1", "c3"]),
        (AgentFilter { venture: text("acme"), ..none() }, vec!["c1", "c3"]),
        (AgentFilter { portfolio: text("alpha"), ..none() }, vec!["c1", "c3"]),
        (AgentFilter { portfolio: text("beta"), ..none() }, vec![]),
    ] {
        let (page, _) = company.agents.list(filter.clone(), "", 10).await.unwrap();
        let names: Vec<_> = page.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, wanted, "{filter:?}");
    }
}

async fn ventures_belong_to_portfolios(dialect: Dialect) {
    let Company { world, ventures, .. } = company(dialect).await;
    let put = |unit, name: &'static str, portfolio: Option<&str>, is_new| {
        ventures.put(unit, name, portfolio.map(str::to_owned), is_new, "ada")
    };
    put(Unit::Portfolio, "alpha", None, true).await.unwrap();
    let first = put(Unit::Venture, "acme", Some("alpha"), true).await.unwrap();
    world.pass_ms(5);
    assert_eq!(put(Unit::Venture, "acme", Some("alpha"), true).await.unwrap(), first);
    assert_eq!(refused(put(Unit::Venture, "acme", None, true).await), "already_exists");
    put(Unit::Venture, "zeta", None, true).await.unwrap();
    let names = async |portfolio: Option<&str>, archived: bool| {
        let of = portfolio.map(str::to_owned);
        let (page, _) = ventures.list(Unit::Venture, of, archived, "", 10).await.unwrap();
        page.into_iter().map(|kept| kept.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, false).await, ["acme", "zeta"]);
    assert_eq!(names(Some("alpha"), false).await, ["acme"]);
    let archived = ventures.archive(Unit::Venture, "acme", true, "ada").await.unwrap();
    assert_eq!(archived.archived_at, Some(world.now()));
    assert_eq!(names(None, false).await, ["zeta"]);
    assert_eq!(names(None, true).await, ["acme", "zeta"]);
    assert_eq!(refused(ventures.archive(Unit::Portfolio, "x", true, "ada").await), "not_found");
    let (portfolios, next) = ventures.list(Unit::Portfolio, None, false, "", 1).await.unwrap();
    assert_eq!((portfolios[0].name.as_str(), portfolios.len(), next), ("alpha", 1, None));
}

async fn changes_of_the_registry_are_audited(dialect: Dialect) {
    let company = company(dialect).await;
    company.portfolio("alpha").await;
    company.venture("acme", None).await;
    company.put("a", under(None, "vp")).await.unwrap();
    company.put("a", under(None, "vp")).await.unwrap();
    company.put("a", under(None, "ceo")).await.unwrap();
    company.agents.archive("a", true, "ada").await.unwrap();
    let entries =
        Audit::new(company.world.store.clone()).list(Filter::default(), None, 10).await.unwrap();
    let events: Vec<_> = entries.iter().rev().map(|entry| entry.event.as_str()).collect();
    let wanted = [
        "portfolio_created",
        "venture_created",
        "agent_created",
        "agent_changed",
        "agent_archived",
    ];
    assert_eq!(events, wanted);
    let changed = &entries[1];
    assert_eq!(changed.actor, "ada");
    assert_eq!(changed.detail["before"]["role"], "vp");
    assert_eq!(changed.detail["after"]["role"], "ceo");
}

async fn the_database_keeps_only_agents_that_can_be_read(dialect: Dialect) {
    let company = company(dialect).await;
    company.put("a", AgentSpec::default()).await.unwrap();
    let long = format!("authority = '{{\"agents\": [\"{}\"]}}'", "x".repeat(256));
    for change in [
        "executor = '{\"type\": \"pigeon\"}'",
        "executor = '{}'",
        "executor = '{\"type\": \"command\"}'",
        "executor = '{\"type\": \"command\", \"command\": []}'",
        "executor = '{\"type\": \"command\", \"command\": [1]}'",
        "executor = '{\"type\": \"command\", \"command\": \"x\"}'",
        "executor = '{\"type\": \"command\", \"command\": [\"x\"], \"timeout_ms\": 1.5}'",
        "executor = '{\"type\": \"webhook\", \"url\": 1}'",
        "executor = '{\"type\": \"webhook\", \"url\": \"ftp://x\"}'",
        "executor = '{\"type\": \"session\", \"url\": \"http://x\"}'",
        "executor = '\"session\"'",
        "authority = '[]'",
        "authority = '{\"all\": true}'",
        "authority = '{\"agents\": \"x\"}'",
        "authority = '{\"agents\": [1]}'",
        "authority = '{\"agents\": [\" x\"]}'",
        "authority = '{\"ventures\": [null]}'",
        "authority = '{\"ventures\": null}'",
        &long,
        "retry_policy = '{\"max_retries\": \"3\"}'",
        "retry_policy = '{\"backoff\": {\"base_ms\": \"x\"}}'",
        "retry_policy = '{\"backoff\": {\"jitter\": 1}}'",
        "retry_policy = '{\"backoff\": {\"retryable\": [1]}}'",
        "retry_policy = '{\"backoff\": {\"on_exhausted\": \"failed\"}}'",
        "retry_policy = '{\"backoff\": {\"base_ms\": 5, \"max_ms\": 4}}'",
        "role = ''",
        "role = ' x'",
    ] {
        let sql = format!("UPDATE agent SET {change}");
        assert!(company.world.by_hand(&sql).is_err(), "{change}");
        let time = crate::refusal::instant(dialect, NOON);
        let (column, value) = change.split_once(" = ").unwrap();
        let sql = format!(
            "INSERT INTO agent (name, {column}, created_at, updated_at) \
             VALUES ('b', {value}, {time}, {time})"
        );
        assert!(company.world.by_hand(&sql).is_err(), "{sql}");
    }
    for change in [
        "authority = '{\"agents\": [\"x\", \"y.z\"], \"ventures\": []}'",
        "executor = '{\"type\": \"command\", \"command\": [\"sh\", \"\"], \"timeout_ms\": null}'",
        "executor = '{\"type\": \"webhook\", \"url\": \"https://x\", \"timeout_ms\": 5}'",
        "executor = '{\"type\": \"in_process\"}'",
        "executor = NULL",
        "retry_policy = '{\"backoff\": {\"base_ms\": 5, \"retryable\": [\"A_B\"]}}'",
    ] {
        company.world.by_hand(&format!("UPDATE agent SET {change}")).unwrap();
        let agent = company.agents.show("a").await.unwrap().unwrap();
        assert!(agent.unreadable.is_empty(), "{change}: {agent:?}");
        agent.spec.check("a").unwrap();
    }
}

/// Written past the checks, as before there were any.
fn smuggle(world: &World, sql: &str) {
    let sql = match world.dialect() {
        Dialect::Postgres => format!(
            "ALTER TABLE agent DISABLE TRIGGER agent_can_be_read; {sql};
             ALTER TABLE agent ENABLE TRIGGER agent_can_be_read"
        ),
        Dialect::Sqlite => {
            let kept = "SELECT sql FROM sqlite_schema WHERE name = 'agent_stays_readable'";
            let trigger = world.by_hand(kept).unwrap();
            format!("DROP TRIGGER agent_stays_readable; {sql}; {trigger}")
        }
    };
    world.by_hand(&sql).unwrap();
}

/// One of them made every list of agents, and every send of it, fail.
async fn an_agent_that_nobody_can_read_keeps_nobody_from_the_others(dialect: Dialect) {
    let company = company(dialect).await;
    for name in ["a", "b", "c"] {
        company.put(name, under(None, "vp")).await.unwrap();
    }
    let executor = "executor = '{\"type\": \"command\", \"command\": 1}'";
    let change = format!("authority = '{{\"agents\": [1]}}', {executor}");
    smuggle(&company.world, &format!("UPDATE agent SET {change} WHERE name = 'b'"));
    let (found, _) = company.agents.list(AgentFilter::default(), "", 10).await.unwrap();
    let unreadable: Vec<_> = found.iter().map(|agent| agent.unreadable.clone()).collect();
    assert_eq!(unreadable, [vec![], vec!["executor", "authority"], vec![]]);
    assert_eq!(found[1].spec, under(None, "vp"));
    // It may write to nobody beyond its line, and is told so.
    let message = super::message::new("c");
    let message = windlass_domain::message::NewMessage { from: "b".into(), ..message };
    let messages = windlass_store::message::Messages::new(company.world.store.clone());
    let speaker = windlass_store::message::Speaker::Agent;
    let said = messages.send(message, speaker, Vec::new()).await.unwrap_err();
    assert!(said.to_string().contains("may not write"), "{said}");
    // It can be archived as it is, and is mended by whoever says what it is like.
    company.agents.archive("b", true, "ada").await.unwrap();
    company.agents.archive("b", false, "ada").await.unwrap();
    let (mended, written) =
        company.agents.set("b", Said::All(under(None, "vp")), "ada").await.unwrap();
    assert_eq!((mended.unreadable.len(), written), (0, Written::Changed));
}

async fn a_write_says_whether_the_agent_is_new(dialect: Dialect) {
    let company = company(dialect).await;
    let set = async |said: Said| company.agents.set("a", said, "ada").await.unwrap().1;
    let patch = AgentPatch { role: Some(Some("vp".into())), ..AgentPatch::default() };
    assert_eq!(set(Said::Some(patch.clone())).await, Written::Created);
    assert_eq!(set(Said::Some(patch)).await, Written::Unchanged);
    assert_eq!(set(Said::All(AgentSpec::default())).await, Written::Changed);
}
