//! What clients are given: bodies, chunks and responses, each under the id of its task.
//!
//! Invariant: pure. Nothing of an upstream's answer is left out or changed but its id; its usage is
//! added when only the provider told it.

use super::error;
use serde_json::{Value, json};
use windlass::domain::id::TaskId;
use windlass::domain::state::State;
use windlass::domain::usage::Usage;
use windlass::store::task::Task;

/// The id of a chat completion.
pub fn chat_id(id: TaskId) -> String {
    format!("chatcmpl-{id}")
}

/// The id of a response.
pub fn response_id(id: TaskId) -> String {
    format!("resp_{id}")
}

/// The task that a response's id names.
pub fn task_of_response(id: &str) -> Option<TaskId> {
    id.strip_prefix("resp_")?.parse().ok()
}

/// An answer under another id.
pub fn under(mut body: Value, id: String) -> Value {
    if body.is_object() {
        body["id"] = json!(id);
    }
    body
}

/// The result of a task, with its usage.
pub fn result(task: &Task) -> Option<Value> {
    let mut body = task.result.clone()?;
    if let (true, true, Some(usage)) = (body.is_object(), body["usage"].is_null(), &task.usage) {
        let of = |name: &str| usage.others.get(name).copied().unwrap_or_default();
        let Usage { prompt_tokens, completion_tokens, total_tokens, .. } = usage;
        body["usage"] = match task.payload["endpoint"].as_str() {
            Some("responses") => json!({
                "input_tokens": prompt_tokens,
                "input_tokens_details": { "cached_tokens": of("cached_tokens") },
                "output_tokens": completion_tokens,
                "output_tokens_details": { "reasoning_tokens": of("reasoning_tokens") },
                "total_tokens": total_tokens,
            }),
            Some("embeddings") => {
                json!({ "prompt_tokens": prompt_tokens, "total_tokens": total_tokens })
            }
            _ => json!({
                "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
                "total_tokens": total_tokens,
            }),
        };
    }
    Some(body)
}

/// Whether a chunk only counts tokens.
pub fn is_usage_only(chunk: &Value) -> bool {
    chunk["choices"].as_array().is_some_and(Vec::is_empty) && chunk["usage"].is_object()
}

/// A chat completion as the chunks of a stream: one with everything, one with its end.
pub fn chunks(body: &Value, id: &str, with_usage: bool) -> Vec<Value> {
    let chunk = |choices: Vec<Value>| {
        let mut chunk = body.clone();
        chunk["id"] = json!(id);
        chunk["object"] = json!("chat.completion.chunk");
        chunk["choices"] = choices.into();
        if let Some(fields) = chunk.as_object_mut() {
            fields.remove("usage");
        }
        chunk
    };
    let choices = body["choices"].as_array().cloned().unwrap_or_default();
    let said = |choice: &Value| {
        let mut delta = choice["message"].clone();
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            call["index"] = json!(index);
        }
        let logprobs = &choice["logprobs"];
        json!({
            "index": choice["index"], "delta": delta, "logprobs": logprobs, "finish_reason": null,
        })
    };
    let ended = |choice: &Value| {
        let reason = &choice["finish_reason"];
        json!({ "index": choice["index"], "delta": {}, "finish_reason": reason })
    };
    let mut chunks =
        vec![chunk(choices.iter().map(said).collect()), chunk(choices.iter().map(ended).collect())];
    if with_usage && body["usage"].is_object() {
        let mut usage = chunk(Vec::new());
        usage["usage"] = body["usage"].clone();
        chunks.push(usage);
    }
    chunks
}

/// A task as a response.
pub fn response(task: &Task) -> Value {
    let request = &request(task);
    let is_background = json!(request["background"] == true);
    if let (State::Completed, Some(result)) = (task.status, result(task)) {
        let mut response = under(result, response_id(task.id));
        response["background"] = is_background;
        return response;
    }
    let said = |name: &str, otherwise: Value| match &request[name] {
        Value::Null => otherwise,
        value => value.clone(),
    };
    let status = status(task.status);
    let error = (status == "failed").then(|| {
        let told = error::of_task(task).error;
        let code = told["code"].as_str().unwrap_or("server_error").to_owned();
        json!({ "code": code, "message": told["message"] })
    });
    json!({
        "id": response_id(task.id),
        "object": "response",
        "created_at": task.created_at.as_ms() / 1_000,
        "status": status,
        "background": is_background,
        "error": error,
        "incomplete_details": null,
        "instructions": request["instructions"],
        "max_output_tokens": request["max_output_tokens"],
        "metadata": said("metadata", json!({})),
        "model": request["model"],
        "output": [],
        "parallel_tool_calls": said("parallel_tool_calls", json!(true)),
        "previous_response_id": request["previous_response_id"],
        "temperature": request["temperature"],
        "tool_choice": said("tool_choice", json!("auto")),
        "tools": said("tools", json!([])),
        "top_p": request["top_p"],
        "usage": null,
    })
}

/// A response that has only just begun, whatever became of it since.
pub fn begun(task: &Task) -> Value {
    let mut begun = response(task);
    begun["status"] = json!("in_progress");
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    begun["error"] = Value::Null;
    begun
}

/// Whether a response was asked for without anybody who waits.
pub fn is_background(task: &Task) -> bool {
    request(task)["background"] == true
}

/// The request, which is kept as text; one that was submitted as a task may be an object.
fn request(task: &Task) -> Value {
    match &task.payload["body"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        body => body.clone(),
    }
}

/// A task's state in the words of a response.
fn status(state: State) -> &'static str {
    match state {
        State::Pending | State::Claimed => "queued",
        State::Completed => "completed",
        State::Cancelled => "cancelled",
        state if state.is_terminal() => "failed",
        _ => "in_progress",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_whole_answer_is_told_as_chunks() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "f" } });
        let usage = json!({ "total_tokens": 3 });
        let body = json!({
            "id": "u", "object": "chat.completion", "model": "m", "usage": usage,
            "choices": [{ "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "hi", "tool_calls": [call] } }],
        });
        let chunks = super::chunks(&body, "i", true);
        assert_eq!(chunks.len(), 3);
        for chunk in &chunks {
            assert_eq!((&chunk["id"], &chunk["model"]), (&json!("i"), &json!("m")));
            assert_eq!(chunk["object"], "chat.completion.chunk");
        }
        let delta = &chunks[0]["choices"][0]["delta"];
        assert_eq!(
            (&delta["content"], &delta["tool_calls"][0]["index"]),
            (&json!("hi"), &json!(0))
        );
        assert_eq!(chunks[0]["choices"][0]["finish_reason"], Value::Null);
        assert_eq!(chunks[1]["choices"][0]["finish_reason"], "stop");
        assert!(is_usage_only(&chunks[2]) && !is_usage_only(&chunks[1]));
        assert_eq!(super::chunks(&body, "i", false).len(), 2);
        let plain = json!({ "choices": [{ "message": { "content": "hi" } }] });
        let chunks = super::chunks(&plain, "i", false);
        assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "content": "hi" }));
    }

    #[test]
    fn the_id_of_a_response_names_its_task() {
        let id = TaskId(Uuid::now_v7());
        assert_eq!(task_of_response(&response_id(id)), Some(id));
        for wrong in ["", "resp_", "resp_x", "chatcmpl-x"] {
            assert_eq!(task_of_response(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_state_has_a_word() {
        let words: Vec<&str> = State::ALL.iter().map(|state| status(*state)).collect();
        let known = ["queued", "in_progress", "completed", "failed", "cancelled"];
        assert!(words.iter().all(|word| known.contains(word)));
        assert_eq!([State::Retry, State::Stuck].map(status), ["in_progress", "failed"]);
    }
}
