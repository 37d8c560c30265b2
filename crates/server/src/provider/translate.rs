//! `/responses` in terms of `/chat/completions`, for servers that know only the latter.
//!
//! Invariant: pure; what cannot be said in the other language is refused, never left out silently.
//! Absent: the conversation behind a response. Whoever needs it sends all items.

pub mod event;

use serde_json::{Map, Value, json};

/// Fields of a request that mean nothing to a chat completion, or are ours.
const LEFT_OUT: &[&str] =
    &["background", "store", "include", "truncation", "metadata", "stream_options"];

/// The chat completion that a request for a response asks for; why not, in words.
pub fn request(body: &Value) -> Result<Value, String> {
    let mut chat = Map::new();
    let mut messages = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        match name.as_str() {
            _ if value.is_null() => {}
            "instructions" => messages.insert(0, json!({ "role": "system", "content": value })),
            "input" => input(value, &mut messages)?,
            "previous_response_id" | "conversation" | "prompt" => {
                return Err(format!("`{name}` needs a server that has /responses itself"));
            }
            "max_output_tokens" => drop(chat.insert("max_tokens".into(), value.clone())),
            "tools" => drop(chat.insert(name.clone(), tools(value)?)),
            "tool_choice" => drop(chat.insert(name.clone(), tool_choice(value))),
            "text" => {
                if let Some(format) = response_format(&value["format"]) {
                    chat.insert("response_format".into(), format);
                }
            }
            "reasoning" => {
                if let Some(effort) = value["effort"].as_str() {
                    chat.insert("reasoning_effort".into(), json!(effort));
                }
            }
            name if LEFT_OUT.contains(&name) => {}
            _ => drop(chat.insert(name.clone(), value.clone())),
        }
    }
    if messages.is_empty() {
        return Err("`input` is missing".into());
    }
    chat.insert("messages".into(), messages.into());
    Ok(Value::Object(chat))
}

fn input(input: &Value, messages: &mut Vec<Value>) -> Result<(), String> {
    if let Some(text) = input.as_str() {
        messages.push(json!({ "role": "user", "content": text }));
        return Ok(());
    }
    let items = input.as_array().ok_or("`input` must be text or a list of items")?;
    for item in items {
        match item["type"].as_str().unwrap_or("message") {
            "message" => messages.push(json!({
                "role": item["role"].as_str().unwrap_or("user"),
                "content": content(&item["content"])?,
            })),
            "function_call" => {
                let function = json!({ "name": item["name"], "arguments": item["arguments"] });
                let id = &item["call_id"];
                let call = json!({ "id": id, "type": "function", "function": function });
                // Calls of one turn stand in one message.
                let last = messages.last_mut().and_then(|message| message.get_mut("tool_calls"));
                match last.and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => messages.push(json!({
                        "role": "assistant", "content": null, "tool_calls": [call],
                    })),
                }
            }
            "function_call_output" => messages.push(json!({
                "role": "tool", "tool_call_id": item["call_id"], "content": text(&item["output"]),
            })),
            // What a model thought before is of no use to another interface.
            "reasoning" => {}
            other => return Err(format!("an item of type `{other}` needs /responses itself")),
        }
    }
    Ok(())
}

fn text(value: &Value) -> Value {
    if value.is_string() { value.clone() } else { json!(value.to_string()) }
}

fn content(content: &Value) -> Result<Value, String> {
    let Some(parts) = content.as_array() else { return Ok(content.clone()) };
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    if texts.len() == parts.len() {
        return Ok(json!(texts.concat()));
    }
    let part = |part: &Value| match part["type"].as_str().unwrap_or_default() {
        "input_text" | "output_text" | "text" => {
            Ok(json!({ "type": "text", "text": part["text"] }))
        }
        "refusal" => Ok(json!({ "type": "refusal", "refusal": part["refusal"] })),
        "input_image" if part["image_url"].is_string() => {
            let mut image = json!({ "url": part["image_url"] });
            if part["detail"].is_string() {
                image["detail"] = part["detail"].clone();
            }
            Ok(json!({ "type": "image_url", "image_url": image }))
        }
        other => Err(format!("content of type `{other}` needs /responses itself")),
    };
    parts.iter().map(part).collect()
}

fn tools(tools: &Value) -> Result<Value, String> {
    let tool = |tool: &Value| {
        let mut function = tool.as_object().cloned().unwrap_or_default();
        match function.remove("type") {
            Some(kind) if kind == "function" => {
                Ok(json!({ "type": "function", "function": function }))
            }
            kind => {
                let kind = kind.unwrap_or_default();
                Err(format!("a tool of type {kind} needs /responses itself"))
            }
        }
    };
    tools.as_array().into_iter().flatten().map(tool).collect()
}

fn tool_choice(choice: &Value) -> Value {
    match choice["name"].as_str() {
        Some(name) => json!({ "type": "function", "function": { "name": name } }),
        None => choice.clone(),
    }
}

fn response_format(format: &Value) -> Option<Value> {
    match format["type"].as_str()? {
        "text" => None,
        "json_schema" => {
            let mut schema = format.as_object()?.clone();
            schema.remove("type");
            Some(json!({ "type": "json_schema", "json_schema": schema }))
        }
        _ => Some(format.clone()),
    }
}

/// The response that a chat completion amounts to; `id` names it and its items.
pub fn response(request: &Value, chat: &Value, id: &str) -> Value {
    let choice = &chat["choices"][0];
    let reason = match choice["finish_reason"].as_str() {
        Some("length") => Some("max_output_tokens"),
        Some("content_filter") => Some("content_filter"),
        _ => None,
    };
    let status = if reason.is_some() { "incomplete" } else { "completed" };
    let mut response = skeleton(request, chat, id, status);
    response["output"] = output(&choice["message"], id).into();
    response["incomplete_details"] = reason.map_or(Value::Null, |r| json!({ "reason": r }));
    response["usage"] = usage(&chat["usage"]);
    response
}

/// A response without output, with what the request said about it.
fn skeleton(request: &Value, chat: &Value, id: &str, status: &str) -> Value {
    let said = |name: &str, otherwise: Value| match &request[name] {
        Value::Null => otherwise,
        value => value.clone(),
    };
    json!({
        "id": format!("resp_{id}"),
        "object": "response",
        "created_at": chat["created"].as_u64().unwrap_or_default(),
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": request["instructions"],
        "metadata": said("metadata", json!({})),
        "model": chat["model"],
        "output": [],
        "parallel_tool_calls": said("parallel_tool_calls", json!(true)),
        "temperature": request["temperature"],
        "tool_choice": said("tool_choice", json!("auto")),
        "tools": said("tools", json!([])),
        "top_p": request["top_p"],
        "usage": null,
    })
}

fn output(message: &Value, id: &str) -> Vec<Value> {
    let mut output = Vec::new();
    if Said::ALL.iter().any(|said| said.of(message).is_some()) {
        output.push(message_item(message, id, "completed"));
    }
    for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        output.push(call_item(call, id, index, "completed"));
    }
    output
}

/// What a message consists of: its text, or why the model says none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Text,
    Refusal,
}

impl Said {
    const ALL: [Said; 2] = [Said::Text, Said::Refusal];

    /// What a message of a chat completion, or a piece of one, says of this kind.
    fn of(self, message: &Value) -> Option<&str> {
        let field = match self {
            Said::Text => "content",
            Said::Refusal => "refusal",
        };
        message[field].as_str().filter(|text| !text.is_empty())
    }

    /// The type of its part of a response's message, and what its events are named after.
    fn name(self) -> &'static str {
        match self {
            Said::Text => "output_text",
            Said::Refusal => "refusal",
        }
    }

    /// Where its part, and the event of its end, have the words.
    fn field(self) -> &'static str {
        match self {
            Said::Text => "text",
            Said::Refusal => "refusal",
        }
    }

    /// A part of a response's message.
    fn part(self, words: &str) -> Value {
        let mut part = json!({ "type": self.name() });
        part[self.field()] = json!(words);
        if self == Said::Text {
            part["annotations"] = json!([]);
        }
        part
    }
}

fn message_item(message: &Value, id: &str, status: &str) -> Value {
    let part = |said: &Said| Some(said.part(said.of(message)?));
    let content: Vec<Value> = Said::ALL.iter().filter_map(part).collect();
    json!({
        "id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": status,
        "content": content,
    })
}

fn call_item(call: &Value, id: &str, index: usize, status: &str) -> Value {
    json!({
        "id": format!("fc_{id}_{index}"), "type": "function_call", "status": status,
        "call_id": call["id"], "name": call["function"]["name"],
        "arguments": call["function"]["arguments"],
    })
}

fn usage(usage: &Value) -> Value {
    if usage.is_null() {
        return Value::Null;
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
    let reasoning = number(&usage["completion_tokens_details"]["reasoning_tokens"]);
    json!({
        "input_tokens": number(&usage["prompt_tokens"]),
        "input_tokens_details": { "cached_tokens": cached },
        "output_tokens": number(&usage["completion_tokens"]),
        "output_tokens_details": { "reasoning_tokens": reasoning },
        "total_tokens": number(&usage["total_tokens"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_messages() {
        let function = json!({ "name": "look", "arguments": "{}" });
        for (body, expected) in [
            (
                json!({ "model": "m", "input": "hi", "instructions": "be kind", "store": true }),
                json!({ "model": "m", "messages": [
                    { "role": "system", "content": "be kind" }, { "role": "user", "content": "hi" },
                ] }),
            ),
            (
                json!({ "input": [
                    { "role": "user", "content": [{ "type": "input_text", "text": "a" }] },
                    { "type": "function_call", "call_id": "c", "name": "look", "arguments": "{}" },
                    { "type": "function_call_output", "call_id": "c", "output": "7" },
                ], "max_output_tokens": 5, "seed": 3, "reasoning": { "effort": "low" } }),
                json!({ "max_tokens": 5, "seed": 3, "reasoning_effort": "low", "messages": [
                    { "role": "user", "content": "a" },
                    { "role": "assistant", "content": null, "tool_calls": [
                        { "id": "c", "type": "function", "function": function } ] },
                    { "role": "tool", "tool_call_id": "c", "content": "7" },
                ] }),
            ),
            (
                json!({ "input": "x", "tools": [{ "type": "function", "name": "f" }],
                    "tool_choice": { "type": "function", "name": "f" },
                    "text": { "format": { "type": "json_schema", "name": "n", "schema": {} } } }),
                json!({ "messages": [{ "role": "user", "content": "x" }],
                    "tools": [{ "type": "function", "function": { "name": "f" } }],
                    "tool_choice": { "type": "function", "function": { "name": "f" } },
                    "response_format": { "type": "json_schema",
                        "json_schema": { "name": "n", "schema": {} } } }),
            ),
        ] {
            assert_eq!(request(&body), Ok(expected), "{body}");
        }
    }

    #[test]
    fn a_refusal_of_an_earlier_turn_is_told_again() {
        let message = json!({ "refusal": "I will not." });
        let body = json!({ "input": [message_item(&message, "1", "completed")] });
        let content = json!([{ "type": "refusal", "refusal": "I will not." }]);
        let messages = json!([{ "role": "assistant", "content": content }]);
        assert_eq!(request(&body).unwrap()["messages"], messages);
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        for body in [
            json!({}),
            json!({ "input": 1 }),
            json!({ "input": "x", "previous_response_id": "resp_1" }),
            json!({ "input": "x", "tools": [{ "type": "web_search" }] }),
            json!({ "input": [{ "type": "computer_call" }] }),
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_file" }] }] }),
        ] {
            assert!(request(&body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_completion_becomes_a_response() {
        let call = json!({
            "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" },
        });
        let usage = json!({ "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3 });
        let chat = json!({
            "created": 9, "model": "m", "usage": usage, "choices": [{ "finish_reason": "length",
                "message": { "role": "assistant", "content": "hi", "tool_calls": [call] } }],
        });
        let response = response(&json!({ "metadata": { "a": "b" } }), &chat, "1");
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({ "reason": "max_output_tokens" }));
        assert_eq!(response["output"][0]["content"][0]["text"], "hi");
        assert_eq!(response["output"][1]["call_id"], "c");
        assert_eq!(response["usage"]["input_tokens"], 1);
        assert_eq!(response["usage"]["output_tokens"], 2);
        assert_eq!(response["metadata"], json!({ "a": "b" }));
    }
}
