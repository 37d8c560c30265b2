//! What a person at a command line is told about agents and their messages.

use super::message::{company, run};
use super::server::{Server, text};
use serde_json::Value as Json;

super::facts!(
    what_was_not_found_is_looked_for_where_it_is,
    a_refused_send_is_listed_with_its_rule_and_its_subject,
    an_agent_that_nobody_meant_is_told_as_new,
    a_message_that_was_sent_before_is_told_as_such,
    a_list_that_filters_leave_empty_says_so,
    a_message_is_held_for_longer_and_given_back_for_a_while,
);

const NOWHERE: &str = "11111111-2222-4333-8444-555555555555";

/// Standard output and standard error of what must succeed.
#[track_caller]
fn told(server: &Server, arguments: &[&str]) -> (String, String) {
    let (code, out, error) = run(server, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {error}");
    (out, error)
}

/// Every one of them was sent to the list of tasks.
async fn what_was_not_found_is_looked_for_where_it_is(server: Server) {
    for (arguments, list) in [
        (&["agent", "show", "nobody"][..], "agent list"),
        (&["agent", "tree", "nobody"], "agent list"),
        (&["venture", "show", "nobody"], "venture list"),
        (&["portfolio", "show", "nobody"], "portfolio list"),
        (&["message", "send", "nobody", "--type", "x"], "agent list"),
        (&["message", "show", NOWHERE], "message list"),
        (&["dead-letter", "show", NOWHERE], "dead-letter list"),
        (&["delegation", "show", NOWHERE], "delegation list"),
        (&["approval", "show", NOWHERE], "approval list"),
        (&["alert", "ack", NOWHERE], "alert list"),
        (&["poison", "show", NOWHERE], "poison list"),
        (&["limit", "remove", "queue", "nobody"], "limit list"),
        (&["pool", "show", "nobody"], "pool list"),
        (&["task", "show", NOWHERE], "task list"),
    ] {
        let (code, _, error) = run(&server, arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {error}");
        assert!(error.contains(&format!("windlass {list}")), "{arguments:?}: {error}");
    }
}

async fn a_refused_send_is_listed_with_its_rule_and_its_subject(server: Server) {
    company(&server).await;
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let send = ["message", "send", "ceo", "--from", "hermit", "--type", "note", "--id", id];
    let (code, _, error) = run(&server, &send);
    assert!(code != Some(0) && error.contains("other_line"), "{error}");
    let (out, _) = told(&server, &["audit", "list", "--event", "message_refused"]);
    for words in ["SUBJECT", id, "other_line", "hermit to ceo: note"] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

async fn an_agent_that_nobody_meant_is_told_as_new(server: Server) {
    company(&server).await;
    let (_, error) = told(&server, &["agent", "set", "crew", "--queue", "q"]);
    assert!(error.contains("changed the agent `crew`"), "{error}");
    let (_, error) = told(&server, &["agent", "set", "crwe", "--queue", "q"]);
    assert!(error.contains("created a new agent `crwe`"), "{error}");
    let (_, error) = told(&server, &["agent", "set", "crwe", "--queue", "q"]);
    assert!(error.contains("nothing changed of the agent `crwe`"), "{error}");
}

async fn a_message_that_was_sent_before_is_told_as_such(server: Server) {
    company(&server).await;
    let send = ["message", "send", "ceo", "--type", "note", "--key", "once"];
    let (first, error) = told(&server, &send);
    assert!(!error.contains("already"), "{error}");
    let (second, error) = told(&server, &send);
    assert!(error.contains("it was sent already"), "{error}");
    assert_eq!(first.lines().next(), second.lines().next());
}

async fn a_list_that_filters_leave_empty_says_so(server: Server) {
    let unfiltered = [
        (&["message", "list"][..], "no messages"),
        (&["delegation", "list"], "no delegations"),
        (&["agent", "list", "--archived"], "no agents"),
        (&["task", "list"], "no tasks"),
    ];
    for (arguments, words) in unfiltered {
        let (_, error) = told(&server, arguments);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    company(&server).await;
    for arguments in [
        &["message", "list", "--to", "ceo"][..],
        &["delegation", "list", "--in-flight"],
        &["agent", "list", "--role", "cook"],
        &["dead-letter", "list", "--to", "ceo"],
        &["audit", "list", "--actor", "nobody"],
        &["task", "list", "--queue", "q"],
        &["approval", "list", "--gate", "pay"],
        &["poison", "list", "--queue", "q"],
    ] {
        let (_, error) = told(&server, arguments);
        assert!(error.contains("nothing matches these filters"), "{arguments:?}: {error}");
    }
}

async fn a_message_is_held_for_longer_and_given_back_for_a_while(server: Server) {
    company(&server).await;
    told(&server, &["message", "send", "ceo", "--type", "note"]);
    let claim = ["--json", "message", "claim", "--agent", "ceo", "--wait", "5s", "--lease", "30s"];
    let taken: Json = serde_json::from_str(&told(&server, &claim).0).unwrap();
    let delivery = &taken["deliveries"][0];
    let (id, lease) = (text(&delivery["message"]["id"]), text(&delivery["lease_id"]));
    let longer = ["--json", "message", "heartbeat", &id, "--lease", &lease, "--for", "10m"];
    let held: Json = serde_json::from_str(&told(&server, &longer).0).unwrap();
    assert!(text(&held["lease_expires_at"]) > text(&delivery["lease_expires_at"]));
    let (out, _) = told(&server, &["message", "heartbeat", &id, "--lease", &lease]);
    assert!(out.contains("lease_expires_at"), "{out}");
    let nack = ["--json", "message", "nack", &id, "--lease", &lease, "--retry-after", "10m"];
    let back: Json = serde_json::from_str(&told(&server, &nack).0).unwrap();
    assert_eq!(back["status"], "pending");
    // Later than any backoff would be.
    let due: windlass::domain::time::Timestamp = text(&back["due_at"]).parse().unwrap();
    let sent: windlass::domain::time::Timestamp = text(&back["created_at"]).parse().unwrap();
    assert!(due.as_ms() - sent.as_ms() >= 600_000, "{back}");
}
