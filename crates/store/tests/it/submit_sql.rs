//! `windlass_submit`: a task that commits or vanishes with the application's own transaction.

use crate::hand::{Attempt, all_accepted, all_refused, run as script};
use crate::world::{
    Place, World, claim_of, delegation, inference, job, ledger, on_postgres, refused, task,
};
use serde_json::json;
use uuid::Uuid;
use windlass_domain::agent::{AgentSpec, Given, RetryPolicy, Unit, take_over};
use windlass_domain::id::TaskId;
use windlass_domain::order::order_key;
use windlass_domain::request::SubmitRequest;
use windlass_domain::retry::{Backoff, OnExhausted};
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_domain::validate;
use windlass_store::agent::Agents;
use windlass_store::statement::Dialect;
use windlass_store::task::{Filter, Order};
use windlass_store::venture::Ventures;

on_postgres!(
    a_task_commits_or_vanishes_with_the_callers_transaction,
    a_submit_wakes_listeners_after_the_commit,
    every_default_is_that_of_the_api,
    an_agents_policy_is_taken_over_as_the_api_does,
    an_agents_place_is_taken_over_as_the_api_does,
    a_repeated_submit_is_the_same_whatever_became_of_the_policy,
    the_order_key_is_that_of_the_domain,
    options_are_taken_as_the_api_takes_them,
    a_repeated_submit_is_one_task,
    what_the_api_refuses_is_refused,
    whoever_may_execute_it_may_submit_from_any_search_path,
);

fn id_of(said: &str) -> TaskId {
    TaskId(Uuid::parse_str(said.trim()).unwrap_or_else(|e| panic!("{said}: {e}")))
}

async fn a_task_commits_or_vanishes_with_the_callers_transaction(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.by_hand("CREATE TABLE orders (id int, task uuid)").unwrap();
    let both = "INSERT INTO orders VALUES (1, windlass_submit('q', '{\"n\": 1}'))";
    script(&world, &format!("BEGIN;\n{both};\nROLLBACK;\n"));
    let count = "SELECT count(*), (SELECT count(*) FROM orders) FROM task";
    assert_eq!(world.by_hand(count).unwrap(), "0|0");
    assert!(world.claim("w1", 1).await.is_empty());
    script(&world, &format!("BEGIN;\n{both};\nCOMMIT;\n"));
    let id = id_of(&world.by_hand("SELECT task FROM orders").unwrap());
    assert_eq!(id.0.get_version_num(), 7);
    let claimed = world.claim("w1", 10).await;
    assert_eq!(claimed.iter().map(|a| a.task.id).collect::<Vec<_>>(), [id]);
    assert_eq!(claimed[0].task.payload, serde_json::json!({ "n": 1 }));
    assert_eq!(world.story(id).await, ["submit:pending", "claim:claimed"]);
    let history = world.tasks.history(id, 0, 1).await.unwrap();
    let user = world.by_hand("SELECT session_user").unwrap();
    assert_eq!(history[0].actor, format!("sql:{user}"));
}

async fn a_submit_wakes_listeners_after_the_commit(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let said = |end: &str| {
        let sql = "LISTEN windlass_ready;\nBEGIN;\nSELECT windlass_submit('mail', '1');\n";
        script(&world, &format!("{sql}SELECT 'before';\n{end};\nSELECT 'after';\n")).0
    };
    let committed = said("COMMIT");
    let (before, after) = committed.split_once("before").unwrap();
    assert!(!before.contains("notification"), "{committed}");
    assert!(after.contains("\"windlass_ready\" with payload \"mail\""), "{committed}");
    assert!(!said("ROLLBACK").contains("notification"));
}

/// Everything that is stored, but the ids, the actor, and the times as distances from the submit.
const STORED: &str = "
    SELECT (to_jsonb(s) || to_jsonb(st) || to_jsonb(t))
        - ARRAY['id', 'change_id', 'created_at', 'entered_at', 'updated_at', 'run_at',
                'deadline_at', 'order_key', 'actor', 'submitted_by', 'request_digest', 'xid']
        || jsonb_build_object('runs', st.run_at - s.created_at, 'run_again', s.run_at = st.run_at,
               'ends', st.deadline_at - s.created_at, 'entered', st.entered_at - s.created_at,
               'updated', st.updated_at - s.created_at,
               'order', st.order_key - extract(epoch FROM st.run_at) * 1000,
               'history', (SELECT jsonb_agg(jsonb_build_array(h.event, h.to_status, h.from_status,
                   h.reason, h.metadata, h.at - s.created_at, h.change_id = st.change_id))
                   FROM task_history h WHERE h.task_id = s.id))
    FROM task_spec s JOIN task_state st USING (id) JOIN task t USING (id) WHERE s.id = ";

async fn every_default_is_that_of_the_api(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let delegated = "{\"caller\": \"boss\", \"callee\": \"crew\"";
    let pairs: [(NewTask, String); 6] = [
        (job(), "{}".into()),
        (delegation(|_| {}), format!("{delegated}, \"kind\": \"delegation\"}}")),
        (delegation(|_| {}), format!("{delegated}, \"mode\": \"executed\"}}")),
        (ledger(), format!("{delegated}, \"mode\": \"ledger\"}}")),
        (inference(), "{\"pool\": \"fast\"}".into()),
        (task(|r| r.priority = Some(-7)), "{\"priority\": -7, \"kind\": \"job\"}".into()),
    ];
    for (new, options) in pairs {
        let api = world.submit(new).await;
        let sql = format!("SELECT windlass_submit('q', '{{\"n\": 1}}', '{options}')");
        let sql = id_of(&world.by_hand(&sql).unwrap());
        let stored = |id: TaskId| world.by_hand(&format!("{STORED} '{id}'")).unwrap();
        assert_eq!(stored(sql), stored(api), "{options}");
    }
}

fn with(retry_policy: RetryPolicy) -> AgentSpec {
    AgentSpec { retry_policy, ..AgentSpec::default() }
}

/// Every policy meets every request, on both ways.
async fn an_agents_policy_is_taken_over_as_the_api_does(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let agents = Agents::new(world.store.clone());
    let base = |base_ms| Backoff { base_ms, ..Backoff::default() };
    let ends = [None, Some(OnExhausted::Failed), Some(OnExhausted::Poisoned)];
    let asked = [
        json!({}),
        json!({ "max_retries": 1 }),
        json!({ "backoff": {} }),
        json!({ "backoff": {"base_ms": 9, "on_exhausted": null} }),
        json!({ "backoff": {"on_exhausted": "poisoned"} }),
        json!({ "backoff": {"base_ms": 9, "on_exhausted": "failed"}, "max_retries": 0 }),
    ];
    for on_exhausted in ends {
        for (max_retries, backoff) in [(None, None), (Some(7), None), (None, Some(base(5)))] {
            let policy = RetryPolicy { max_retries, backoff, on_exhausted };
            agents.put("scout", with(policy.clone()), "tester").await.unwrap();
            let (mut both, mut cases) = (String::new(), Vec::new());
            for options in &asked {
                let mut options = options.clone();
                (options["queue"], options["payload"]) = (json!("q"), json!(1));
                options["agent"] = json!("scout");
                let request: SubmitRequest = serde_json::from_value(options.clone()).unwrap();
                let id = TaskId(Uuid::now_v7());
                let mut new = validate::new_task(&request, id, "", "tester").unwrap();
                policy.fill(&request, &mut new);
                let api = world.submit(new).await;
                options
                    .as_object_mut()
                    .unwrap()
                    .retain(|key, _| key != "queue" && key != "payload");
                let submit = format!("SELECT windlass_submit('q', '1', '{options}') AS id \\gset");
                both.push_str(&format!("{submit}\n{STORED} :'id';\n{STORED} '{api}';\n"));
                cases.push(format!("{policy:?} {options}"));
            }
            // 2 and 2.0 are the same multiplier.
            same_in_pairs(&world, &both, &cases, |stored| stored.replace("2.0", "2"));
        }
    }
}

/// Runs a script that gives, for each case, a line of the one way and a line of the other. One
/// process runs all of them: to start one for each statement would be most of the time.
#[track_caller]
fn same_in_pairs(world: &World, both: &str, cases: &[String], read: impl Fn(&str) -> String) {
    let (output, errors) = script(world, both);
    assert!(errors.is_empty(), "{errors}");
    let lines: Vec<String> = output.lines().map(read).collect();
    assert_eq!(lines.len(), 2 * cases.len(), "{output}");
    for (pair, case) in lines.chunks(2).zip(cases) {
        assert!(!pair[0].is_empty());
        assert_eq!(pair[0], pair[1], "{case}");
    }
}

/// Every agent meets every request, on both ways.
async fn an_agents_place_is_taken_over_as_the_api_does(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let (agents, ventures) = (Agents::new(world.store.clone()), Ventures::new(world.store.clone()));
    ventures.put(Unit::Portfolio, "alpha", None, true, "tester").await.unwrap();
    for (name, portfolio) in [("acme", Some("alpha".to_owned())), ("lone", None)] {
        ventures.put(Unit::Venture, name, portfolio, true, "tester").await.unwrap();
    }
    let text = |word: &str| Some(word.to_owned());
    let of = |role, queue, venture, portfolio| AgentSpec {
        role,
        queue,
        venture,
        portfolio,
        ..AgentSpec::default()
    };
    let specs = [
        of(None, None, None, None),
        of(text("crew"), None, text("acme"), None),
        of(text("crew"), text("own"), text("lone"), text("alpha")),
    ];
    for (i, spec) in specs.into_iter().enumerate() {
        agents.put(&format!("a{i}"), spec, "tester").await.unwrap();
    }
    let asked = [
        json!({ "agent": "NAME" }),
        json!({ "agent": "NAME", "venture": "acme" }),
        json!({ "agent": "NAME", "venture": "other" }),
        json!({ "agent": "NAME", "portfolio": "mine" }),
        json!({ "agent": "NAME", "venture": "v", "portfolio": "p" }),
        json!({ "caller": "boss", "callee": "NAME" }),
        json!({ "caller": "boss", "callee": "NAME", "agent": "a1" }),
        json!({ "caller": "boss", "callee": "NAME", "mode": "ledger", "venture": "v" }),
        json!({ "pool": "fast", "agent": "NAME" }),
    ];
    let (mut both, mut cases) = (String::new(), Vec::new());
    for name in ["a0", "a1", "a2", "nobody"] {
        for options in &asked {
            let options = options.to_string().replace("NAME", name);
            let mut request: SubmitRequest = serde_json::from_str(&options).unwrap();
            request.payload = json!(1);
            let mut new =
                validate::new_task(&request, TaskId(Uuid::now_v7()), "", "tester").unwrap();
            let names = [request.agent.clone(), request.callee.clone()];
            let found = agents.given(names.iter().flatten().cloned().collect()).await.unwrap();
            let given = |name: &Option<String>| -> Option<&Given> {
                Some(&found.iter().find(|(known, _)| Some(known) == name.as_ref())?.1)
            };
            take_over(&request, &mut new, given(&names[0]), given(&names[1]));
            let api = world.submit(new).await;
            let submit = format!("SELECT windlass_submit(NULL, '1', '{options}') AS id \\gset");
            let placed = "SELECT queue, venture, portfolio FROM task WHERE id =";
            both.push_str(&format!("{submit}\n{placed} :'id';\n{placed} '{api}';\n"));
            cases.push(options);
        }
    }
    same_in_pairs(&world, &both, &cases, str::to_owned);
    // A repeat is the same, wherever the agent has gone meanwhile.
    let submit = "SELECT windlass_submit(NULL, '1', '{\"agent\": \"a1\", \
                  \"idempotency_key\": \"k\"}')";
    let first = world.by_hand(submit).unwrap();
    agents.put("a1", of(text("vp"), None, text("lone"), None), "tester").await.unwrap();
    assert_eq!(world.by_hand(submit).unwrap(), first);
}

async fn a_repeated_submit_is_the_same_whatever_became_of_the_policy(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let agents = Agents::new(world.store.clone());
    let submit = |options: &str| {
        let options = format!("{{\"idempotency_key\": \"k\", \"agent\": \"scout\"{options}}}");
        world.by_hand(&format!("SELECT windlass_submit('q', '1', '{options}')"))
    };
    let told = ", \"backoff\": {\"base_ms\": 9}";
    let end = |on_exhausted| RetryPolicy { on_exhausted, max_retries: Some(7), backoff: None };
    agents.put("scout", with(end(Some(OnExhausted::Failed))), "tester").await.unwrap();
    let first = submit(told).unwrap();
    for policy in [end(None), end(Some(OnExhausted::Poisoned)), RetryPolicy::default()] {
        agents.put("scout", with(policy), "tester").await.unwrap();
        assert_eq!(submit(told).unwrap(), first);
    }
    for other in [", \"backoff\": {\"base_ms\": 8}", &format!("{told}, \"max_retries\": 6")] {
        assert!(submit(other).unwrap_err().contains("with another request"), "{other}");
    }
    let other = ", \"backoff\": {\"base_ms\": 9, \"on_exhausted\": \"poisoned\"}";
    assert!(submit(other).unwrap_err().contains("with another request"));
}

async fn the_order_key_is_that_of_the_domain(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let times = [0, 1, 999, 1_769_860_800_123, 32_503_680_000_000, 253_370_764_800_000];
    for priority in [-32_768, -1, 0, 1, 5, 32_767] {
        for ms in times {
            let sql = format!("SELECT windlass_order_key({priority}, to_timestamp({ms} / 1000.0))");
            let key = order_key(priority, Timestamp::from_ms(ms)).to_string();
            assert_eq!(world.by_hand(&sql).unwrap(), key, "{priority} {ms}");
        }
    }
}

async fn options_are_taken_as_the_api_takes_them(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let id = TaskId(Uuid::new_v4());
    let submit = |options: &str| {
        let sql = format!("SELECT windlass_submit('q', '1', '{options}')");
        id_of(&world.by_hand(&sql).unwrap())
    };
    let given = submit(&format!(
        "{{\"id\": \"{id}\", \"name\": \"n\", \"agent\": \"a\", \"venture\": \"v\",
          \"owner\": \"o\", \"tags\": {{\"team\": \"x\", \"env\": \"y\"}},
          \"max_retries\": 9, \"priority\": 3,
          \"correlation_id\": \"c\", \"backoff\": {{\"base_ms\": 5, \"jitter\": false}},
          \"deadline_ms\": 60000, \"delay_ms\": 0, \"stage\": null}}"
    ));
    assert_eq!(given, id);
    let tagged = Filter { tag: Some(("env".into(), "y".into())), ..Filter::default() };
    let page = world.tasks.list(tagged, Order::Descending, None, 10).await.unwrap();
    let shown = &page.items[0];
    assert_eq!((shown.id, shown.max_retries, shown.priority), (id, 9, 3));
    assert_eq!(shown.tags.len(), 2);
    assert_eq!(shown.deadline_at, Some(shown.created_at.plus_ms(60_000)));
    let later = submit("{\"delay_ms\": 3600000}");
    let shown = world.tasks.show(later).await.unwrap().unwrap();
    assert_eq!(shown.run_at, shown.created_at.plus_ms(3_600_000));
    let at = submit("{\"run_at\": \"2999-01-01T00:00:00.1234567Z\"}");
    let shown = world.tasks.show(at).await.unwrap().unwrap();
    assert_eq!(shown.run_at, Timestamp::from_ms(32_472_144_000_123));
    assert_eq!(world.claim("w1", 10).await.len(), 1, "only what is due");
    // The queue may be left to the pool, the callee or the agent.
    world.by_hand("SELECT windlass_submit(NULL, '1', '{\"agent\": \"ada\"}')").unwrap();
    assert_eq!(world.tasks.claim(claim_of("w1", &["ada"], 1)).await.unwrap().len(), 1);
}

async fn a_repeated_submit_is_one_task(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let submit = |payload: &str, options: &str| {
        world.by_hand(&format!("SELECT windlass_submit('q', '{payload}', '{options}')"))
    };
    let key = "{\"idempotency_key\": \"k\"}";
    let first = submit("1", key).unwrap();
    assert_eq!(submit("1", key).unwrap(), first);
    let reused = "was used before with another request";
    assert!(submit("2", key).unwrap_err().contains(reused));
    let id = format!("{{\"id\": \"{}\"}}", Uuid::new_v4());
    let second = submit("1", &id).unwrap();
    assert_eq!(submit("1", &id).unwrap(), second);
    assert!(submit("2", &id).unwrap_err().contains(reused));
    // The key of one caller is not that of another, and a repeated delegation is a no-op.
    let of = |caller: &str| {
        format!("{{\"idempotency_key\": \"k\", \"caller\": \"{caller}\", \"callee\": \"crew\"}}")
    };
    let third = submit("1", &of("boss")).unwrap();
    assert_ne!(submit("1", &of("chief")).unwrap(), third);
    assert_eq!(submit("2", &of("boss")).unwrap(), third);
    // But only of what is its own caller's: neither of another one's, nor of a job.
    for id in [&third, &first] {
        let options = format!("{{\"id\": \"{id}\", \"caller\": \"rival\", \"callee\": \"crew\"}}");
        assert!(submit("1", &options).unwrap_err().contains(reused), "{id}");
    }
    // What is asked for beside the payload counts as well, on both ways and between them.
    let other = ["\"priority\": 9", "\"max_retries\": 7", "\"agent\": \"zed\"", "\"delay_ms\": 99"];
    for option in other {
        let said = submit("1", &format!("{{\"idempotency_key\": \"k\", {option}}}")).unwrap_err();
        assert!(said.contains(reused), "{option}: {said}");
    }
    let keyed = |change: fn(&mut SubmitRequest)| {
        task(|r| {
            r.idempotency_key = Some("k".into());
            r.payload = 1.into();
            change(r);
        })
    };
    let changes: [fn(&mut SubmitRequest); 5] = [
        |r| r.priority = Some(3),
        |r| r.agent = Some("other".into()),
        |r| r.delay_ms = Some(5),
        |r| r.backoff = Some(Default::default()),
        |r| r.tags = Some([("a".into(), "b".into())].into()),
    ];
    for change in changes {
        let outcome = world.submit_all(vec![keyed(change)]).await.pop().unwrap();
        assert_eq!(refused(outcome), "idempotency_key_reused");
    }
    let by_api = |r: &mut SubmitRequest| {
        r.idempotency_key = Some("k2".into());
        r.backoff = Some(Backoff { base_ms: 5, ..Backoff::default() });
        r.priority = Some(3);
        r.payload = 1.into();
    };
    let api = world.submit(task(by_api)).await;
    let same = "\"idempotency_key\": \"k2\", \"backoff\": {\"base_ms\": 5}, \"priority\": 3";
    assert_eq!(submit("1", &format!("{{{same}}}")).unwrap(), api.to_string());
    assert!(submit("1", &format!("{{{same}, \"name\": \"n\"}}")).unwrap_err().contains(reused));
    // The API sees the same task under the same key.
    let again = task(|r| {
        r.idempotency_key = Some("k".into());
        r.payload = 1.into();
    });
    let outcome = world.submit_all(vec![again]).await.pop().unwrap().unwrap();
    assert!(outcome.duplicate);
    assert_eq!(outcome.id, id_of(&first));
    assert_eq!(world.by_hand("SELECT count(*) FROM task").unwrap(), "5");
}

async fn what_the_api_refuses_is_refused(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let long = "x".repeat(256);
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let many: Vec<String> = (0..65).map(|i| format!("\"k{i}\": \"v\"")).collect();
    let many = format!("{{\"tags\": {{{}}}}}", many.join(","));
    let cases: &[(&str, &str, &str)] = &[
        ("1", "{\"color\": \"red\"}", "unknown option: color"),
        ("1", "{\"kind\": \"ledger\"}", "kind must be job, delegation or inference"),
        ("1", "{\"kind\": \"chore\"}", "kind must be job, delegation or inference"),
        ("1", "{\"kind\": \"delegation\", \"callee\": \"c\"}", "must name its caller"),
        ("1", "{\"kind\": \"delegation\", \"caller\": \"c\"}", "must name its callee"),
        ("1", "{\"kind\": \"inference\"}", "must name its pool"),
        ("1", "{\"mode\": \"ledger\"}", "belong to kind delegation"),
        ("1", "{\"kind\": \"job\", \"pool\": \"p\"}", "belong to kind inference"),
        ("1", "{\"callee\": \"c\", \"caller\": \"d\", \"mode\": \"x\"}", "mode must be"),
        ("1", "{\"delay_ms\": 1, \"run_at\": \"2030-01-01T00:00Z\"}", "either run_at or delay_ms"),
        ("1", "{\"delay_ms\": -1}", "delay_ms must be from 0"),
        ("1", "{\"run_at\": \"infinity\"}", "from the year 1970 to 9999"),
        ("1", "{\"deadline_at\": \"-infinity\"}", "from the year 1970 to 9999"),
        ("1", "{\"priority\": 40000}", "priority must be from -32768 to 32767"),
        ("1", "{\"priority\": \"high\"}", "priority must be an integer"),
        ("1", "{\"max_retries\": 101}", "max_retries must be from 0 to 100"),
        ("1", "{\"agent\": \"\"}", "agent must not be empty"),
        ("1", "{\"agent\": \" a\"}", "agent must not begin or end with white space"),
        ("1", "{\"agent\": 5}", "agent must be a string"),
        ("1", "{\"tags\": {\"a\": 1}}", "tags must be an object of strings"),
        ("1", "{\"tags\": [\"a\"]}", "tags must be an object of strings"),
        ("1", &many, "at most 64 tags"),
        ("1", "{\"backoff\": {\"base_ms\": \"x\"}}", "backoff: base_ms must be an integer"),
        ("1", "{\"backoff\": {\"speed\": 1}}", "backoff: speed is unknown"),
        ("1", "{\"backoff\": {\"base_ms\": 10, \"max_ms\": 5}}", "must not be less than base_ms"),
        ("1", "{\"backoff\": 7}", "backoff must be"),
        ("1", "{\"backoff\": {\"on_exhausted\": \"lost\"}}", "must be poisoned or failed"),
        ("1", "{\"backoff\": {\"base_ms\": 1.0}}", "backoff: base_ms must be an integer"),
        ("1", "{\"backoff\": {\"base_ms\": 400000}}", "must not be less than base_ms"),
        (
            "1",
            "{\"backoff\": {\"retryable\": [\"has space\"]}}",
            "backoff: retryable may hold only",
        ),
        (
            "1",
            "{\"backoff\": {\"retryable\": [\"A\", \"B\"], \"non_retryable\": [\"B\"]}}",
            "backoff: non_retryable has B, and so has retryable",
        ),
        ("1", "{\"delay_ms\": \"5\"}", "delay_ms must be an integer"),
        ("1", "{\"delay_ms\": 1.5}", "delay_ms must be an integer"),
        ("1", "{\"max_retries\": 1.5}", "max_retries must be an integer"),
        ("1", "{\"max_retries\": -1}", "max_retries must be from 0 to 100"),
        ("1", "{\"priority\": \"7\"}", "priority must be an integer"),
        ("1", "{\"run_at\": \"tomorrow\"}", "run_at must be an instant"),
        ("1", "{\"run_at\": \"2030-01-01 00:00\"}", "run_at must be an instant"),
        ("1", "{\"id\": \"nonsense\"}", "id must be a UUID"),
        ("1", "{\"pool\": \"p\", \"callee\": \"c\"}", "either pool"),
        ("1", "{\"name\": \"a\\nb\"}", "name must not hold control characters"),
        ("1", "{\"name\": \"a\\u202eb\"}", "name must not hold control characters"),
        ("1", "{\"name\": \"\\tx\"}", "name must not hold control characters"),
        ("1", "{\"tags\": {\"\": \"x\"}}", "must not be empty"),
        ("1", "{\"tags\": {\" k \": \"x\"}}", "must not begin or end with white space"),
        ("1", "{\"tags\": {\"k\": \"a\\nb\"}}", "must not hold control characters"),
        ("1", "[]", "the options must be an object"),
        ("1", "null", "the options must be an object"),
        ("123456789012345678901234567890", "{}", "would lose digits"),
        ("[1, {\"a\": 1e400}]", "{}", "64-bit float"),
        ("-1e309", "{}", "64-bit float"),
        (&deep(65), "{}", "64 deep"),
        ("{\"a\": \"\\u0000\"}", "{}", "cannot be converted to text"),
    ];
    let submit = |payload: &str, options: &str| {
        Attempt::new(format!("SELECT windlass_submit('q', '{payload}', '{options}')"))
    };
    let mut attempts: Vec<(Attempt, &str)> =
        cases.iter().map(|(payload, options, words)| (submit(payload, options), *words)).collect();
    for name in ["name", "agent", "venture", "owner", "stage", "correlation_id", "idempotency_key"]
    {
        let options = format!("{{\"{name}\": \"{long}\"}}");
        attempts.push((submit("1", &options), "names_are_bounded"));
    }
    for queue in [" q ", "q\u{202e}", "\u{3000}q"] {
        let sql = format!("SELECT windlass_submit('{queue}', '1')");
        attempts.push((Attempt::new(sql), "queue must not"));
    }
    let large = "SELECT windlass_submit('q', to_jsonb(repeat('x', 1048576)))";
    attempts.push((Attempt::new(large), "more than 1048576 bytes"));
    attempts.push((Attempt::new("SELECT windlass_submit('', '1')"), "queue must not be empty"));
    attempts.push((Attempt::new("SELECT windlass_submit(NULL, '1')"), "null value"));
    attempts.push((Attempt::new("SELECT windlass_submit('q', NULL)"), "null value"));
    all_refused(&world, &attempts);
    all_accepted(&world, &[submit(&deep(64), "{}"), submit("[1.7976931348623157e308]", "{}")]);
}

/// The names inside were looked up in the caller's search_path, and the caller needed rights on
/// every table.
async fn whoever_may_execute_it_may_submit_from_any_search_path(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let Place::Postgres(database) = &world.place else { panic!("PostgreSQL only") };
    // Roles belong to the cluster, so the name must be this database's own.
    let (app, nobody) = (format!("app_{}", database.name()), format!("nobody_{}", database.name()));
    world
        .by_hand(&format!(
            "CREATE ROLE {app}; CREATE ROLE {nobody};
             GRANT EXECUTE ON FUNCTION windlass_submit(text, jsonb, jsonb) TO {app};
             CREATE SCHEMA trap AUTHORIZATION {app};
             GRANT CREATE, TEMPORARY ON DATABASE {} TO {app};",
            database.name()
        ))
        .unwrap();
    // Tables and functions with our names that would swallow the task.
    let traps = "SET search_path = trap;
        CREATE TABLE trap.task_spec (id uuid); CREATE TABLE trap.task_state (id uuid);
        CREATE TABLE trap.task_history (id uuid); CREATE TABLE trap.profile (profile text);
        CREATE TEMP TABLE task_spec (id uuid); CREATE TEMP TABLE profile (profile text);
        CREATE FUNCTION trap.windlass_order_key(int, timestamptz) RETURNS bigint
            LANGUAGE sql AS 'SELECT 1::bigint';
        CREATE FUNCTION trap.windlass_xid() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
        SET search_path = pg_temp, trap;";
    let submit = "SELECT public.windlass_submit('q', '1', '{\"tags\": {\"a\": \"b\"}}')";
    let as_app = format!("SET ROLE {app}; {traps} {submit};");
    let said = world.by_hand(&as_app).unwrap();
    let id = id_of(said.lines().last().unwrap());
    assert_eq!(world.claim("w1", 10).await.pop().unwrap().task.id, id);
    let history = world.tasks.history(id, 0, 1).await.unwrap();
    assert!(history[0].actor.starts_with("sql:"), "{}", history[0].actor);
    // Nothing but that.
    for sql in ["SELECT * FROM public.task_spec", "DELETE FROM public.task_state"] {
        let said = world.by_hand(&format!("SET ROLE {app}; {sql}")).unwrap_err();
        assert!(said.contains("permission denied"), "{said}");
    }
    let said = world.by_hand(&format!("SET ROLE {nobody}; {submit}")).unwrap_err();
    assert!(said.contains("permission denied for function windlass_submit"), "{said}");
    // A person's own session may have any search_path, too.
    let update = "UPDATE public.task_state SET status = 'cancelled', lease_id = NULL,
                  lease_expires_at = NULL";
    world.by_hand(&format!("SET search_path = pg_temp, trap; {update}")).unwrap();
    assert_eq!(world.story(id).await.pop().unwrap(), "cancel:cancelled");
    let roles = format!("DROP OWNED BY {app}, {nobody}; DROP ROLE {app}, {nobody};");
    world.by_hand(&roles).unwrap();
}
