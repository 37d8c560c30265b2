//! From the chunks of a streamed chat completion to the body that it would have been.
//!
//! Invariant: pure, and it never invents: what no chunk said is absent or null in the body. Fields
//! that we do not know are kept, text joined and anything else as it came last.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What the chunks so far say.
#[derive(Debug, Default)]
pub struct Assembly {
    /// Fields of the answer itself: `id`, `created`, `model`, `usage` …
    fields: Map<String, Value>,
    choices: BTreeMap<u64, Choice>,
}

#[derive(Debug, Default)]
struct Choice {
    message: Map<String, Value>,
    calls: BTreeMap<u64, Map<String, Value>>,
    finish_reason: Value,
    /// `logprobs` and whatever else stands beside the delta.
    others: Map<String, Value>,
}

impl Assembly {
    /// Takes the next chunk.
    pub fn add(&mut self, chunk: &Value) {
        for (name, value) in chunk.as_object().into_iter().flatten() {
            if !["object", "choices"].contains(&name.as_str()) && !value.is_null() {
                self.fields.insert(name.clone(), value.clone());
            }
        }
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap_or(0);
            self.choices.entry(index).or_default().add(choice);
        }
    }

    /// Whether every choice has said why it ended.
    pub fn is_whole(&self) -> bool {
        !self.choices.is_empty() && self.choices.values().all(|c| !c.finish_reason.is_null())
    }

    /// The body.
    pub fn body(self) -> Value {
        let mut body = self.fields;
        body.insert("object".into(), json!("chat.completion"));
        let choices = self.choices.into_iter().map(|(index, choice)| choice.body(index));
        body.insert("choices".into(), choices.collect());
        Value::Object(body)
    }
}

impl Choice {
    fn add(&mut self, choice: &Value) {
        for (name, value) in choice.as_object().into_iter().flatten() {
            match name.as_str() {
                "index" | "delta" => {}
                "finish_reason" if !value.is_null() => self.finish_reason = value.clone(),
                "finish_reason" => {}
                _ => join(&mut self.others, name, value),
            }
        }
        for (name, value) in choice["delta"].as_object().into_iter().flatten() {
            match name.as_str() {
                "tool_calls" => value.as_array().into_iter().flatten().for_each(|c| self.call(c)),
                // Some servers repeat the role in every chunk.
                "role" => drop(self.message.insert(name.clone(), value.clone())),
                _ => join(&mut self.message, name, value),
            }
        }
    }

    fn call(&mut self, call: &Value) {
        let next = self.calls.len() as u64;
        let held = self.calls.entry(call["index"].as_u64().unwrap_or(next)).or_default();
        for (name, value) in call.as_object().into_iter().flatten() {
            match name.as_str() {
                "index" => {}
                "function" => {
                    let held = held.entry("function").or_insert_with(|| json!({}));
                    let Some(held) = held.as_object_mut() else { continue };
                    for (name, value) in value.as_object().into_iter().flatten() {
                        match name.as_str() {
                            "name" => first(held, name, value),
                            _ => join(held, name, value),
                        }
                    }
                }
                _ => first(held, name, value),
            }
        }
    }

    fn body(self, index: u64) -> Value {
        let mut message = self.message;
        message.entry("role").or_insert(json!("assistant"));
        message.entry("content").or_insert(Value::Null);
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.into_values().collect());
        }
        let mut body = self.others;
        body.insert("index".into(), json!(index));
        body.insert("message".into(), Value::Object(message));
        body.insert("finish_reason".into(), self.finish_reason);
        Value::Object(body)
    }
}

/// Keeps what came first: ids and names are sent once, or again and again.
fn first(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    let held = fields.entry(name).or_insert(Value::Null);
    if held.is_null() || held == "" {
        *held = value.clone();
    }
}

/// Joins text to text, lists to lists and objects field by field; anything else replaces.
fn join(fields: &mut Map<String, Value>, name: &str, value: &Value) {
    let held = fields.entry(name).or_insert(Value::Null);
    match (held, value) {
        (_, Value::Null) => {}
        (Value::String(held), Value::String(more)) => held.push_str(more),
        (Value::Array(held), Value::Array(more)) => held.extend(more.iter().cloned()),
        (Value::Object(held), Value::Object(more)) => {
            more.iter().for_each(|(name, value)| join(held, name, value));
        }
        (held, value) => *held = value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(chunks: &[Value]) -> Value {
        let mut assembly = Assembly::default();
        chunks.iter().for_each(|chunk| assembly.add(chunk));
        assembly.body()
    }

    fn chunk(delta: Value, finish_reason: Value) -> Value {
        json!({
            "id": "u", "object": "chat.completion.chunk", "created": 7, "model": "m",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        })
    }

    #[test]
    fn text_is_joined_and_the_end_is_kept() {
        let usage = json!({ "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3 });
        let body = assembled(&[
            chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
            chunk(json!({ "content": "Hel" }), Value::Null),
            chunk(json!({ "role": "assistant", "content": "lo" }), Value::Null),
            chunk(json!({}), json!("stop")),
            json!({ "id": "u", "choices": [], "usage": usage }),
        ]);
        let expected = json!({
            "id": "u", "object": "chat.completion", "created": 7, "model": "m", "usage": usage,
            "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "Hello" },
            }],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn tool_calls_are_joined_by_their_index() {
        let call = |index: u64, call: Value| {
            let mut call = call;
            call["index"] = json!(index);
            chunk(json!({ "tool_calls": [call] }), Value::Null)
        };
        let begin = |id: &str, name: &str| {
            let function = json!({ "name": name, "arguments": "" });
            json!({ "id": id, "type": "function", "function": function })
        };
        let more = |text: &str| json!({ "function": { "arguments": text } });
        let body = assembled(&[
            call(0, begin("a", "look")),
            call(1, begin("b", "find")),
            call(0, more("{\"x\":")),
            call(1, more("{}")),
            call(0, more("1}")),
            chunk(json!({}), json!("tool_calls")),
        ]);
        let message = &body["choices"][0]["message"];
        let function =
            |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
        assert_eq!(message["content"], Value::Null);
        assert_eq!(
            message["tool_calls"],
            json!([
                { "id": "a", "type": "function", "function": function("look", "{\"x\":1}") },
                { "id": "b", "type": "function", "function": function("find", "{}") },
            ])
        );
        assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    }

    #[test]
    fn what_we_do_not_know_is_kept() {
        let with = |delta: Value, logprobs: Value| {
            let mut chunk = chunk(delta, Value::Null);
            chunk["choices"][0]["logprobs"] = logprobs;
            chunk["system_fingerprint"] = json!("f");
            chunk
        };
        let body = assembled(&[
            with(json!({ "reasoning_content": "a" }), json!({ "content": [1] })),
            with(json!({ "reasoning_content": "b" }), json!({ "content": [2] })),
            with(json!({ "refusal": null }), Value::Null),
        ]);
        let choice = &body["choices"][0];
        assert_eq!(body["system_fingerprint"], "f");
        assert_eq!(choice["message"]["reasoning_content"], "ab");
        assert_eq!(choice["logprobs"], json!({ "content": [1, 2] }));
        assert_eq!(choice["finish_reason"], Value::Null);
    }

    #[test]
    fn choices_come_in_their_order_and_all_of_them_must_end() {
        let one = |index: u64, text: &str, end: Value| {
            let delta = json!({ "content": text });
            json!({ "choices": [{ "index": index, "delta": delta, "finish_reason": end }] })
        };
        let mut assembly = Assembly::default();
        assert!(!assembly.is_whole());
        for chunk in [one(1, "b", json!("stop")), one(0, "a", Value::Null)] {
            assembly.add(&chunk);
        }
        assert!(!assembly.is_whole());
        assembly.add(&one(0, "a", json!("length")));
        assert!(assembly.is_whole());
        let body = assembly.body();
        let texts = [0, 1].map(|i| body["choices"][i]["message"]["content"].clone());
        assert_eq!(texts, [json!("aa"), json!("b")]);
    }
}
