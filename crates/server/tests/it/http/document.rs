//! The OpenAPI document and its page: valid, complete, and true.

use super::server::Server;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Every route of the API; a new one is added here and in docs/http-api.md.
const ROUTES: &[&str] = &[
    "get /healthz",
    "get /metrics",
    "get /readyz",
    "get /v1/agents",
    "get /v1/agents/{name}",
    "put /v1/agents/{name}",
    "get /v1/alerts",
    "post /v1/alerts/{id}/acknowledge",
    "get /v1/approvals",
    "post /v1/approvals/decide",
    "get /v1/approvals/{id}",
    "post /v1/approvals/{id}/approve",
    "post /v1/approvals/{id}/deny",
    "post /v1/approvals/{id}/tokens",
    "get /v1/audit",
    "get /v1/audit/export",
    "get /v1/dead-letters",
    "get /v1/dead-letters/{id}",
    "post /v1/dead-letters/{id}/abandon",
    "post /v1/dead-letters/{id}/assign",
    "post /v1/dead-letters/{id}/investigate",
    "post /v1/dead-letters/{id}/note",
    "post /v1/dead-letters/{id}/redeliver",
    "post /v1/dead-letters/{id}/resolve",
    "get /v1/messages",
    "post /v1/messages",
    "post /v1/messages/claim",
    "get /v1/messages/{id}",
    "post /v1/messages/{id}/ack",
    "post /v1/messages/{id}/heartbeat",
    "post /v1/messages/{id}/nack",
    "patch /v1/agents/{name}",
    "post /v1/agents",
    "post /v1/agents/{name}/archive",
    "post /v1/agents/{name}/restore",
    "get /v1/delegations",
    "post /v1/delegations",
    "post /v1/delegations/sweep",
    "get /v1/delegations/{id}",
    "post /v1/delegations/{id}/heartbeat",
    "post /v1/delegations/{id}/status",
    "get /v1/portfolios",
    "post /v1/portfolios",
    "get /v1/portfolios/{name}",
    "post /v1/portfolios/{name}/archive",
    "post /v1/portfolios/{name}/restore",
    "get /v1/ventures",
    "post /v1/ventures",
    "get /v1/ventures/{name}",
    "put /v1/ventures/{name}",
    "post /v1/ventures/{name}/archive",
    "post /v1/ventures/{name}/restore",
    "get /v1/backpressure",
    "post /v1/chat/completions",
    "post /v1/embeddings",
    "get /v1/models",
    "get /v1/models/{model}",
    "post /v1/responses",
    "get /v1/responses/{id}",
    "delete /v1/responses/{id}",
    "post /v1/responses/{id}/cancel",
    "get /v1/events",
    "get /v1/nodes",
    "get /v1/notices",
    "get /v1/poison",
    "get /v1/poison/{id}",
    "post /v1/poison/{id}/abandon",
    "post /v1/poison/{id}/assign",
    "post /v1/poison/{id}/investigate",
    "post /v1/poison/{id}/note",
    "post /v1/poison/{id}/resolve",
    "get /v1/sessions",
    "post /v1/sessions",
    "delete /v1/sessions/{id}",
    "get /v1/sessions/{id}",
    "post /v1/sessions/{id}/claim",
    "post /v1/sessions/{id}/finish",
    "post /v1/sessions/{id}/heartbeat",
    "get /v1/sessions/{id}/stream",
    "post /v1/signals",
    "get /v1/signals/{id}",
    "get /v1/status",
    "get /v1/steps",
    "post /v1/steps/{id}/complete",
    "post /v1/steps/{id}/fail",
    "post /v1/steps/{id}/resolve",
    "get /v1/tasks",
    "post /v1/tasks",
    "post /v1/tasks/batch",
    "get /v1/tasks/{id}",
    "post /v1/tasks/{id}/approvals",
    "post /v1/tasks/{id}/cancel",
    "post /v1/tasks/{id}/checkpoint",
    "post /v1/tasks/{id}/deltas",
    "post /v1/tasks/{id}/complete",
    "post /v1/tasks/{id}/fail",
    "get /v1/tasks/{id}/failures",
    "post /v1/tasks/{id}/heartbeat",
    "get /v1/tasks/{id}/history",
    "post /v1/tasks/{id}/park",
    "post /v1/tasks/{id}/release",
    "post /v1/tasks/{id}/replay",
    "post /v1/tasks/{id}/start",
    "get /v1/tasks/{id}/steps",
    "post /v1/tasks/{id}/steps",
    "post /v1/tasks/{id}/steps/record",
    "get /v1/tasks/{id}/wait",
    "get /v1/tasks/{id}/stream",
    "get /v1/tasks/{id}/why",
    "get /v1/version",
    "get /v1/limits",
    "get /v1/limits/{scope}",
    "put /v1/limits/{scope}",
    "patch /v1/limits/{scope}",
    "delete /v1/limits/{scope}",
    "get /v1/limits/{scope}/{name}",
    "put /v1/limits/{scope}/{name}",
    "patch /v1/limits/{scope}/{name}",
    "delete /v1/limits/{scope}/{name}",
    "get /v1/pauses",
    "get /v1/pools",
    "get /v1/pools/{name}",
    "post /v1/pauses",
    "delete /v1/pauses/{scope}",
    "delete /v1/pauses/{scope}/{name}",
];

fn operations(document: &Json) -> Vec<(String, &Json)> {
    let paths = document["paths"].as_object().unwrap();
    let methods = |(path, item): (&String, &'_ Json)| -> Vec<String> {
        item.as_object().unwrap().keys().map(|method| format!("{method} {path}")).collect()
    };
    let names = paths.iter().flat_map(methods);
    names
        .map(|name| {
            let (method, path) = name.split_once(' ').unwrap();
            let operation = &document["paths"][path][method];
            (name.clone(), operation)
        })
        .collect()
}

#[tokio::test]
async fn the_document_is_openapi_3_1_and_lists_every_route() {
    let server = Server::on_sqlite().await;
    let document = server.get("/openapi.json").await.expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let listed: BTreeSet<String> =
        operations(&document).into_iter().map(|(name, _)| name).collect();
    let expected: BTreeSet<String> = ROUTES.iter().map(|route| (*route).to_owned()).collect();
    assert_eq!(listed, expected);
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        let id = operation["operationId"].as_str().expect("an operation has an id");
        assert!(ids.insert(id.to_owned()), "{id} names two operations");
        assert!(operation["summary"].is_string(), "{name} says what it does");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{name}");
        for (status, response) in responses.iter().filter(|(status, _)| !status.starts_with('2')) {
            let (kind, schema) = match operation["tags"][0] == "openai" {
                true => ("application/json", "OpenAiError"),
                false => ("application/problem+json", "Problem"),
            };
            let content = &response["content"][kind]["schema"]["$ref"];
            let expected = format!("#/components/schemas/{schema}");
            assert_eq!(content, &json!(expected), "{name} {status}");
        }
    }
    references_lead_somewhere(&document, &document);
}

/// Lists that cannot be walked in another order, each with the reason: none at present.
const WITHOUT_ORDER: &[(&str, &str)] = &[];

#[tokio::test]
async fn every_operation_that_takes_a_cursor_takes_an_order() {
    let server = Server::on_sqlite().await;
    let document = server.get("/openapi.json").await.expect(200);
    let mut without = BTreeSet::new();
    let mut lists = 0;
    for (name, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let takes = |wanted: &str| parameters.iter().any(|one| one["name"] == wanted);
        if takes("cursor") {
            lists += 1;
            assert!(takes("limit"), "{name} has pages without a limit");
            if !takes("order") {
                without.insert(name);
            }
        }
    }
    assert!(lists > 20, "only {lists} operations take a cursor");
    let excused: BTreeSet<String> =
        WITHOUT_ORDER.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(without, excused);
}

fn references_lead_somewhere(value: &Json, document: &Json) {
    if let Some(reference) = value.get("$ref").and_then(Json::as_str) {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    match value {
        Json::Object(fields) => {
            fields.values().for_each(|field| references_lead_somewhere(field, document));
        }
        Json::Array(items) => {
            items.iter().for_each(|item| references_lead_somewhere(item, document));
        }
        _ => {}
    }
}

#[tokio::test]
async fn the_documents_view_of_a_new_task_has_the_fields_that_a_submit_takes() {
    let server = Server::on_sqlite().await;
    let document = server.get("/openapi.json").await.expect(200);
    let listed = document["components"]["schemas"]["NewTask"]["properties"].as_object().unwrap();
    let taken = windlass::domain::request::SubmitRequest::default();
    let taken = serde_json::to_value(taken).unwrap();
    let names = |fields: &serde_json::Map<String, Json>| -> BTreeSet<String> {
        fields.keys().cloned().collect()
    };
    assert_eq!(names(listed), names(taken.as_object().unwrap()));
}

/// Exactly one of them must fit: a null that fits two is forbidden, although the server takes it.
fn null_fits_one(value: &Json, document: &Json, place: &str) {
    match value {
        Json::Object(fields) => {
            let either = fields.get("oneOf").and_then(Json::as_array);
            if let Some(either) = either.filter(|e| e.contains(&json!({ "type": "null" }))) {
                let takes_null = |one: &&Json| {
                    let pointer = one["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
                    let schema = pointer.map_or(*one, |to| document.pointer(to).unwrap());
                    !["type", "enum", "oneOf", "allOf"].iter().any(|k| schema.get(k).is_some())
                };
                assert!(!either.iter().any(|one| takes_null(&one)), "{place}: {value}");
            }
            for (name, inner) in fields {
                null_fits_one(inner, document, &format!("{place}/{name}"));
            }
        }
        Json::Array(items) => items.iter().for_each(|item| null_fits_one(item, document, place)),
        _ => {}
    }
}

#[tokio::test]
async fn what_may_be_anything_may_be_null() {
    let document = Server::on_sqlite().await.get("/openapi.json").await.expect(200);
    null_fits_one(&document, &document, "");
    let detail = &document["components"]["schemas"]["TaskError"]["properties"]["detail"];
    assert_eq!(detail["$ref"], "#/components/schemas/Json", "{detail}");
    assert!(detail["description"].is_string(), "{detail}");
}

#[tokio::test]
async fn the_page_shows_the_document_and_loads_nothing_from_elsewhere() {
    let server = Server::on_sqlite().await;
    let page = server.get("/docs").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    assert!(page.text.contains("/openapi.json"));
    assert!(!page.text.contains("http://") && !page.text.contains("https://"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
}

#[tokio::test]
async fn every_type_of_a_problem_leads_to_a_page() {
    let server = Server::on_sqlite().await;
    let problem = server.get("/v1/tasks/x").await.refused(400, "invalid_id");
    assert_eq!(problem["type"], json!("/docs#invalid_id"));
}

/// The repository's own page about the API.
const PAGE: &str = include_str!("../../../../../docs/http-api.md");

#[test]
fn the_page_in_the_repository_names_every_route() {
    let missing: Vec<&str> = ROUTES
        .iter()
        .copied()
        .filter(|route| {
            let (method, path) = route.split_once(' ').unwrap();
            !PAGE.contains(&format!("{} {path}`", method.to_uppercase()))
        })
        .collect();
    assert_eq!(missing, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_in_the_repository_names_every_field() {
    let server = Server::on_sqlite().await;
    let document = server.get("/openapi.json").await.expect(200);
    let mut missing = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for field in schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
            let words = PAGE.split(|c: char| !c.is_alphanumeric() && c != '_');
            if !words.into_iter().any(|word| word == field) {
                missing.push(format!("{name}.{field}"));
            }
        }
    }
    assert_eq!(missing, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_page_in_the_repository_run() {
    let server = Server::on_sqlite().await;
    let mut script = "set -eu -o pipefail\n".to_owned();
    for block in PAGE.split("```sh\n").skip(1) {
        script.push_str(block.split("```").next().unwrap());
    }
    let script = script.replace("http://127.0.0.1:7070", &server.url(""));
    let folder = tempfile::tempdir().unwrap();
    let ran = tokio::task::spawn_blocking(move || {
        let mut shell = std::process::Command::new("bash");
        shell.args(["-x", "-c", &script]).current_dir(folder.path()).output().unwrap()
    });
    let ran = ran.await.unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
    let page = server.get("/v1/tasks?queue=docs&status=completed").await.expect(200);
    assert_eq!(page["items"][0]["result"], json!({ "sent": true }), "{told}");
}
