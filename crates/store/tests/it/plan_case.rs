//! Which index each statement must use, and with which values it is asked.

/// A task that exists, and one that does not.
pub const THERE: &str = "00000000-0000-7000-8000-000000000100";
const NOWHERE: &str = "ffffffff-0000-7000-8000-000000000000";

pub struct Case {
    /// The statement.
    pub name: &'static str,
    /// The parameters that matter, as PostgreSQL's literals; the others are NULL.
    pub values: Vec<(usize, String)>,
    /// The indexes that must be used, on PostgreSQL and on SQLite.
    pub postgres: &'static [&'static str],
    pub sqlite: &'static [&'static str],
    /// Runs on a connection for reading.
    pub reads: bool,
}

/// SQLite names the index of a primary key by itself.
const STATE_KEY: &str = "PRIMARY KEY";
const SPEC_KEY: &str = "PRIMARY KEY";

pub fn writes(
    name: &'static str,
    values: &[(usize, &str)],
    postgres: &'static [&'static str],
    sqlite: &'static [&'static str],
) -> Case {
    let values = values.iter().map(|(n, value)| (*n, (*value).to_owned())).collect();
    Case { name, values, postgres, sqlite, reads: false }
}

pub fn reads(
    name: &'static str,
    values: &[(usize, &str)],
    postgres: &'static [&'static str],
    sqlite: &'static [&'static str],
) -> Case {
    Case { reads: true, ..writes(name, values, postgres, sqlite) }
}

/// The places from which lists along time are walked: in each order, the time and the id.
const EDGES: [(&str, &str, &str); 2] = [
    ("desc", "'infinity'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    ("asc", "'1970-01-01Z'", "'00000000-0000-0000-0000-000000000000'"),
];

/// A page of a list along time in both orders: the place is $1 and $2.
pub fn in_both_orders(
    name: &str,
    values: &[(usize, &str)],
    postgres: &'static [&'static str],
    sqlite: &'static [&'static str],
) -> [Case; 2] {
    EDGES.map(|(order, time, id)| {
        let place = [(1, time), (2, id)];
        let values: Vec<_> = place.iter().chain(values).copied().collect();
        reads(format!("{name} {order}").leak(), &values, postgres, sqlite)
    })
}

/// A page of a list along numbers in both orders: the place is this parameter.
pub fn by_number(
    name: &str,
    place: usize,
    values: &[(usize, &str)],
    postgres: &'static [&'static str],
    sqlite: &'static [&'static str],
) -> [Case; 2] {
    [("desc", "9223372036854775807"), ("asc", "0")].map(|(order, edge)| {
        let values: Vec<_> = [(place, edge)].iter().chain(values).copied().collect();
        reads(format!("{name} {order}").leak(), &values, postgres, sqlite)
    })
}

/// A page of a list of tasks in both orders.
fn list(driver: &str, value: (usize, &str), index: &'static [&'static str]) -> [Case; 2] {
    let mut values = vec![(3, "'1970-01-01Z'"), (4, "'9999-01-01Z'"), (5, "51"), value];
    if driver == "Tag" {
        values.push((22, "'t3'"));
    }
    in_both_orders(&format!("task/list {driver}"), &values, index, index)
}

fn hot() -> Vec<Case> {
    let now = (1, "'2026-06-01Z'");
    let some = "ARRAY['00000000-0000-7000-8000-000000000100']::uuid[]";
    let hundred: Vec<_> = (0..100).map(|_| format!("'{}'", uuid::Uuid::new_v4())).collect();
    let hundred = format!("ARRAY[{}]::uuid[]", hundred.join(", "));
    let key: &[&str] = &["task_state_pkey"];
    vec![
        writes(
            "task/claim",
            &[
                now,
                (2, "'w1'"),
                (3, &format!("'{NOWHERE}'")),
                (5, "TRUE"),
                (6, &hundred),
                (7, &hundred),
                (8, "FALSE"),
                (9, "ARRAY[1001]::bigint[]"),
                (10, "ARRAY[-9000000000000000000]::bigint[]"),
                (11, "ARRAY[100]::bigint[]"),
                (12, "ARRAY[TRUE]"),
                (13, "ARRAY[9000000000000000000]::bigint[]"),
            ],
            &["task_state_ready", "task_state_holder", "task_state_pkey"],
            &["task_state_ready", STATE_KEY],
        ),
        writes("task/ripen", &[now, (2, "1000")], &["task_state_due"], &["task_state_due"]),
        writes(
            "task/assigned",
            &[(1, "'w1'"), (2, &format!("'{NOWHERE}'"))],
            &["task_state_holder", "task_spec_pkey"],
            &["task_state_holder", SPEC_KEY],
        ),
        writes("task/start", &[now, (2, some), (3, some), (4, some)], key, &[STATE_KEY]),
        writes("task/heartbeat", &[now, (2, some), (3, some), (4, some)], key, &[STATE_KEY]),
        writes("task/complete", &[now, (2, some), (3, some), (4, some)], key, &[STATE_KEY]),
        writes("task/save_progress", &[now, (2, some), (3, some)], key, &[STATE_KEY]),
        writes("task/load", &[(1, some)], &["task_state_pkey", "task_spec_pkey"], &[STATE_KEY]),
        writes("task/save", &[(1, some)], key, &[STATE_KEY]),
    ]
}

fn replays() -> Vec<Case> {
    let there = format!("'{THERE}'");
    let family = [(1, there.as_str()), (2, "10000"), (3, there.as_str())];
    let of_step: &[&str] = &["task_spec_replay", "step_task"];
    vec![
        reads(
            "replay/root",
            &[(1, &format!("'{THERE}'")), (2, "10000")],
            &["task_spec_pkey"],
            &[SPEC_KEY],
        ),
        reads(
            "replay/count",
            &[(1, &format!("'{THERE}'")), (2, "1")],
            &["task_spec_replay"],
            &["task_spec_replay"],
        ),
        reads(
            "replay/line",
            &[(1, &format!("'{THERE}'")), (2, "10000")],
            &["task_history_task", "task_spec_pkey"],
            &["task_history_task", SPEC_KEY],
        ),
        // There are no steps here, so PostgreSQL reads all of them.
        reads("replay/begun", &family, &["task_spec_replay"], of_step),
        reads(
            "replay/begun_as",
            &[family[0], family[1], family[2], (4, "'pay'"), (5, "'0'"), (6, "0")],
            &["task_spec_replay"],
            of_step,
        ),
    ]
}

fn duties() -> Vec<Case> {
    let at = [(1, "'2026-06-01Z'"), (2, "100")];
    let some = [(1, "ARRAY['00000000-0000-7000-8000-000000000100']::uuid[]")];
    vec![
        writes(
            "task/expired_leases",
            &[at[0], at[1], (3, "FALSE"), (4, "'2026-05-01Z'")],
            &["task_state_lease"],
            &["task_state_lease"],
        ),
        reads(
            "task/sweep_delegations",
            &[at[0], (2, "'2026-06-01Z'"), (3, "500")],
            // Without statistics PostgreSQL finds the overdue among all in flight: few, too.
            &["task_state_delegation"],
            &["task_state_deadline", "task_state_delegation"],
        ),
        reads(
            "task/count_delegations",
            &[],
            &["task_state_delegation"],
            &["task_state_delegation"],
        ),
        writes("task/passed_deadlines", &at, &["task_state_deadline"], &["task_state_deadline"]),
        writes(
            "task/stale_pending",
            &at,
            &["task_state_pending_inference"],
            &["task_state_pending_inference"],
        ),
        writes(
            "approval/expired",
            &at,
            &["approval_expiry", "task_state_pkey", "task_spec_pkey"],
            &["approval_expiry", STATE_KEY],
        ),
        writes(
            "signal/next_of_task",
            &[(1, &format!("'{THERE}'")), (2, "'go'")],
            &["signal_of_task"],
            &["signal_of_task"],
        ),
        writes(
            "signal/forget",
            &[some[0], (2, "'2026-06-01Z'")],
            &["signal_taken", "signal_of_task", "signal_pkey", "task_state_pkey"],
            &["signal_taken", "signal_of_task", STATE_KEY],
        ),
        writes("signal/forget_untaken", &at, &["signal_untaken"], &["signal_untaken"]),
        writes("approval/expire_requests", &at, &["approval_expiry"], &["approval_expiry"]),
        writes(
            "approval/granted",
            &[(1, &format!("'{THERE}'")), (2, "'g'"), (3, "''"), (4, "0")],
            &["approval_granted"],
            &["approval_granted"],
        ),
        writes("task/held_by", &[(1, "'w1'")], &["task_state_holder"], &["task_state_holder"]),
        writes(
            "task/finished_by_lease",
            &[(1, &format!("'{THERE}'")), (2, &format!("'{THERE}'"))],
            &["task_history_task"],
            &["task_history_task"],
        ),
    ]
}

/// A page of what has ended, who of it has a family, and what may go.
fn retention() -> Vec<Case> {
    let some = [(1, "ARRAY['00000000-0000-7000-8000-000000000100']::uuid[]")];
    let (latest, roots) = ((1, "'2026-06-01Z'"), (2, some[0].1));
    let there = format!("'{THERE}'");
    vec![
        writes(
            "retention/expired",
            &[latest, (2, "'2026-01-01Z'"), (3, &there), (4, "500")],
            &["task_state_finished_inference"],
            &["task_state_finished_inference"],
        ),
        writes(
            "retention/alone",
            &some,
            &["task_spec_pkey", "task_spec_replay"],
            &[SPEC_KEY, "task_spec_replay"],
        ),
        writes("retention/roots", &some, &["task_spec_pkey"], &[SPEC_KEY]),
        writes(
            "retention/family",
            &[latest, roots],
            &["task_spec_replay", "task_state_pkey"],
            &["task_spec_replay", STATE_KEY],
        ),
        writes("retention/lock", &some, &["task_state_pkey"], &[STATE_KEY]),
        writes("retention/remove_votes", &some, &["approval_vote_task"], &["approval_vote_task"]),
        writes(
            "retention/remove_tokens",
            &some,
            &["approval_token_task"],
            &["approval_token_task"],
        ),
        writes("retention/remove_state", &some, &["task_state_pkey"], &[STATE_KEY]),
        writes("retention/remove_spec", &some, &["task_spec_pkey"], &[SPEC_KEY]),
        writes("retention/remove_history", &some, &["task_history_task"], &["task_history_task"]),
        writes("retention/remove_tags", &some, &["task_spec_pkey", "task_tag_pkey"], &[SPEC_KEY]),
    ]
}

/// What `why` asks, with the planner told to prefer indexes.
fn whys() -> Vec<Case> {
    let there = format!("'{THERE}'");
    let line = [(1, "'q1'"), (2, "1001")];
    vec![
        writes("task/why", &[(1, &there)], &["task_spec_pkey", "task_state_pkey"], &[SPEC_KEY]),
        writes(
            "task/ahead",
            &[(1, "ARRAY['1001', '1002']"), (2, "0"), (3, &there), (4, "1001")],
            &["task_state_ready"],
            &["task_state_ready"],
        ),
        writes(
            "lane/before",
            &[(1, "1001"), (2, "0"), (3, &there), (4, "1001")],
            &["task_state_ready"],
            &["task_state_ready"],
        ),
        writes("lane/waiting", &line, &["task_state_ready"], &["task_state_ready"]),
        writes(
            "session/held",
            &[(1, "ARRAY['w1', 'w2']"), (2, "10000")],
            &["task_state_holder"],
            &["task_state_holder"],
        ),
        writes(
            "limit/drift",
            &[],
            &["task_state_ready", "task_state_due", "task_state_holder"],
            &["task_state_ready", "task_state_due", "task_state_holder"],
        ),
        writes(
            "limit/holders",
            &[(1, "'venture'"), (2, "'venture-7'"), (3, "1000")],
            &["task_state_holder"],
            &["task_state_holder"],
        ),
        writes(
            "approval/token_holders",
            &[(1, &there), (2, "'2026-06-01Z'"), (3, "1000")],
            &["approval_token_good"],
            &["approval_token_good"],
        ),
        writes("lane/remove", &[(1, "1000")], &[], &["task_state_rare"]),
    ]
}

fn views() -> Vec<Case> {
    let there = format!("'{THERE}'");
    vec![
        reads(
            "task/find_existing",
            &[(1, &there), (2, "''"), (3, "'k-1001'")],
            &["task_spec_pkey", "task_spec_idempotency", "task_state_pkey"],
            &[SPEC_KEY, "task_spec_idempotency", STATE_KEY],
        ),
        reads("task/show", &[(1, &there)], &["task_spec_pkey", "task_state_pkey"], &[SPEC_KEY]),
        reads(
            "history/tail",
            &[(1, "'1'"), (2, "0"), (3, "100")],
            &["task_history_position"],
            &["INTEGER PRIMARY KEY"],
        ),
        reads(
            "history/left",
            &[(1, "'1'"), (2, "0"), (3, "100")],
            &["task_history_position"],
            &["INTEGER PRIMARY KEY"],
        ),
        reads("history/newest", &[], &["task_history_position"], &["INTEGER PRIMARY KEY"]),
        reads(
            "task/among",
            &[
                (1, "'infinity'"),
                (2, "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
                (3, "'1970-01-01Z'"),
                (4, "'9999-01-01Z'"),
                (5, "100"),
                (10, "'venture-7'"),
                (23, &format!("ARRAY[{there}]::uuid[]")),
            ],
            &["task_spec_pkey", "task_state_pkey"],
            &[SPEC_KEY],
        ),
        writes(
            "task/count_in_line",
            &[(1, "'2026-06-01Z'"), (2, "100")],
            &["task_state_ready", "task_state_due"],
            &["task_state_ready", "task_state_due"],
        ),
        writes(
            "task/count_later",
            &[(1, "'2026-06-01Z'"), (2, "100")],
            &["task_state_due"],
            &["task_state_due"],
        ),
        writes(
            "task/count_later_going",
            &[(1, "'2026-06-01Z'"), (2, "100"), (3, "ARRAY['queue:q']::text[]")],
            &["task_state_due", "lane_pkey"],
            &["task_state_due", "INTEGER PRIMARY KEY"],
        ),
        writes("task/count_ended", &[], &["task_history_position"], &["INTEGER PRIMARY KEY"]),
        writes(
            "task/fold_tally",
            &[(1, "100")],
            &["task_history_position"],
            &["INTEGER PRIMARY KEY"],
        ),
        reads("task/count_ready", &[], &["task_state_ready"], &["task_state_ready"]),
        reads("task/count_due", &[], &["task_state_due"], &["task_state_due"]),
        reads("task/count_held", &[], &["task_state_holder"], &["task_state_holder"]),
        reads("task/count_parked", &[], &["task_state_rare"], &["task_state_rare"]),
    ]
}

/// Lists along numbers.
fn numbered() -> [[Case; 2]; 3] {
    let there = format!("'{THERE}'");
    let of_task = [(1, there.as_str()), (3, "100")];
    let history: &[&str] = &["task_history_task"];
    // Few steps are here and all in the index, so PostgreSQL must be told to use it.
    let in_doubt = by_number(
        "step/in_doubt",
        1,
        &[(2, "50")],
        &["step_doubt", "task_state_pkey"],
        &["step_doubt", STATE_KEY],
    );
    [
        by_number("history/of_task", 2, &of_task, history, history),
        by_number("history/failures", 2, &of_task, history, history),
        in_doubt.map(|case| Case { reads: false, ..case }),
    ]
}

/// Every statement whose cost could grow with the number of tasks.
pub fn cases() -> Vec<Case> {
    let there = format!("'{THERE}'");
    let lists = [
        list("Recent", (8, "'q1'"), &["task_spec_recent"]),
        list("Agent", (9, "'agent-7'"), &["task_spec_agent"]),
        list("Venture", (10, "'venture-7'"), &["task_spec_venture"]),
        list("Owner", (13, "'owner-7'"), &["task_spec_owner"]),
        list("Caller", (14, "'caller-8'"), &["task_spec_caller"]),
        list("Callee", (15, "'callee-8'"), &["task_spec_callee"]),
        list("Parent", (17, &there), &["task_spec_parent"]),
        list("Replay", (18, &there), &["task_spec_replay"]),
        list("Correlation", (19, "'c-7'"), &["task_spec_correlation"]),
        list("Tag", (21, "'team'"), &["task_tag"]),
        list("Rare", (6, "ARRAY['poisoned']::task_status[]"), &["task_state_rare"]),
        list("Rare", (6, "ARRAY['retry', 'stuck']::task_status[]"), &["task_state_rare"]),
        list(
            "Living",
            (6, "ARRAY['running']::task_status[]"),
            &["task_state_ready", "task_state_due", "task_state_holder"],
        ),
    ];
    let fixed = hot().into_iter().chain(replays()).chain(duties()).chain(retention());
    let fixed = fixed.chain(whys()).chain(views());
    fixed.chain(lists.into_iter().chain(numbered()).flatten()).collect()
}
