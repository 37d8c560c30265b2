//! The events of a streamed response, made of the chunks of a chat completion.
//!
//! Invariant: `sequence_number` counts from 0 without gaps; an item is added before its parts, and
//! done before the response is.

use super::{call_item, message_item, response, skeleton};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What was told so far.
pub struct Events {
    request: Value,
    id: String,
    told: u64,
    text: String,
    /// Where the message stands in the output, once it has begun.
    message: Option<usize>,
    /// Where each call stands, by its index in the chunks, with its name, id and arguments.
    calls: BTreeMap<u64, (usize, Value)>,
}

impl Events {
    /// Nothing was told yet about the response that this request asks for.
    pub fn new(request: &Value, id: &str) -> Events {
        Events {
            request: request.clone(),
            id: id.to_owned(),
            told: 0,
            text: String::new(),
            message: None,
            calls: BTreeMap::new(),
        }
    }

    /// What a chunk has to tell.
    pub fn add(&mut self, chunk: &Value) -> Vec<Value> {
        let mut events = Vec::new();
        if self.told == 0 {
            let begun = skeleton(&self.request, chunk, &self.id, "in_progress");
            for kind in ["response.created", "response.in_progress"] {
                events.push(self.event(kind, json!({ "response": begun })));
            }
        }
        let delta = &chunk["choices"][0]["delta"];
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            self.text(text, &mut events);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, &mut events);
        }
        events
    }

    fn text(&mut self, text: &str, events: &mut Vec<Value>) {
        let item_id = format!("msg_{}", self.id);
        let at = match self.message {
            Some(at) => at,
            None => {
                let at = self.calls.len();
                self.message = Some(at);
                let item = message_item(&Value::Null, &self.id, "in_progress");
                let added = json!({ "output_index": at, "item": item });
                events.push(self.event("response.output_item.added", added));
                let part = json!({ "type": "output_text", "text": "", "annotations": [] });
                let part = json!({
                    "item_id": item_id, "output_index": at, "content_index": 0, "part": part,
                });
                events.push(self.event("response.content_part.added", part));
                at
            }
        };
        self.text.push_str(text);
        let delta = json!({
            "item_id": item_id, "output_index": at, "content_index": 0, "delta": text,
            "logprobs": [],
        });
        events.push(self.event("response.output_text.delta", delta));
    }

    fn call(&mut self, call: &Value, events: &mut Vec<Value>) {
        let index = call["index"].as_u64().unwrap_or(0);
        if !self.calls.contains_key(&index) {
            let at = self.calls.len() + usize::from(self.message.is_some());
            let mut begun = call.clone();
            begun["function"]["arguments"] = json!("");
            let item = call_item(&begun, &self.id, self.calls.len(), "in_progress");
            self.calls.insert(index, (at, item.clone()));
            let added = json!({ "output_index": at, "item": item });
            events.push(self.event("response.output_item.added", added));
        }
        let more = call["function"]["arguments"].as_str().unwrap_or_default();
        let Some((at, item)) = self.calls.get_mut(&index).filter(|_| !more.is_empty()) else {
            return;
        };
        let so_far = item["arguments"].as_str().unwrap_or_default();
        item["arguments"] = json!(format!("{so_far}{more}"));
        let delta = json!({ "item_id": item["id"], "output_index": at, "delta": more });
        events.push(self.event("response.function_call_arguments.delta", delta));
    }

    /// What the end has to tell, and the response itself.
    pub fn end(mut self, chat: &Value) -> (Vec<Value>, Value) {
        let mut events = self.add(&json!({ "created": chat["created"], "model": chat["model"] }));
        // The items in the order in which they began.
        let mut items: BTreeMap<usize, Value> = self.calls.values().cloned().collect();
        if let Some(at) = self.message {
            let message = json!({ "content": self.text });
            items.insert(at, message_item(&message, &self.id, "completed"));
        }
        for (at, item) in &mut items {
            item["status"] = json!("completed");
            let place = json!({ "item_id": item["id"], "output_index": at });
            let mut tell = |kind: &str, more: Value| {
                let mut fields = place.clone();
                for (name, value) in more.as_object().into_iter().flatten() {
                    fields[name.as_str()] = value.clone();
                }
                events.push(self.event(kind, fields));
            };
            if item["type"] == "message" {
                let part = item["content"][0].clone();
                let text = json!({ "content_index": 0, "text": part["text"], "logprobs": [] });
                tell("response.output_text.done", text);
                tell("response.content_part.done", json!({ "content_index": 0, "part": part }));
            } else {
                let done = json!({ "arguments": item["arguments"], "name": item["name"] });
                tell("response.function_call_arguments.done", done);
            }
            let done = json!({ "output_index": at, "item": item });
            events.push(self.event("response.output_item.done", done));
        }
        let mut whole = response(&self.request, chat, &self.id);
        whole["output"] = items.into_values().collect();
        let kind = format!("response.{}", whole["status"].as_str().unwrap_or("completed"));
        events.push(self.event(&kind, json!({ "response": whole })));
        (events, whole)
    }

    fn event(&mut self, kind: &str, mut fields: Value) -> Value {
        fields["type"] = json!(kind);
        fields["sequence_number"] = json!(self.told);
        self.told += 1;
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(delta: Value) -> Value {
        json!({ "created": 1, "model": "m", "choices": [{ "index": 0, "delta": delta }] })
    }

    #[test]
    fn text_and_calls_are_told_in_the_order_of_the_output() {
        let mut events = Events::new(&json!({ "input": "x" }), "1");
        let begin = json!({ "index": 0, "id": "c", "function": { "name": "f", "arguments": "" } });
        let more = json!({ "index": 0, "function": { "arguments": "{}" } });
        let mut told = Vec::new();
        for delta in [
            json!({ "role": "assistant", "content": "" }),
            json!({ "content": "Hel" }),
            json!({ "content": "lo" }),
            json!({ "tool_calls": [begin] }),
            json!({ "tool_calls": [more] }),
        ] {
            told.extend(events.add(&chunk(delta)));
        }
        let chat = json!({ "created": 1, "model": "m", "choices": [{ "finish_reason": "stop" }] });
        let (rest, whole) = events.end(&chat);
        told.extend(rest);
        let kinds: Vec<&str> = told.iter().filter_map(|event| event["type"].as_str()).collect();
        let expected = "created in_progress output_item.added content_part.added \
            output_text.delta output_text.delta output_item.added function_call_arguments.delta \
            output_text.done content_part.done output_item.done function_call_arguments.done \
            output_item.done completed";
        let expected: Vec<String> =
            expected.split_whitespace().map(|kind| format!("response.{kind}")).collect();
        assert_eq!(kinds, expected);
        let numbers: Vec<u64> =
            told.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
        assert_eq!(numbers, (0..told.len() as u64).collect::<Vec<_>>());
        assert_eq!(whole["output"][0]["content"][0]["text"], "Hello");
        assert_eq!(whole["output"][1]["arguments"], "{}");
        assert_eq!(told.last().unwrap()["response"], whole);
    }

    #[test]
    fn a_completion_without_chunks_is_told_as_well() {
        let chat = json!({ "choices": [{ "finish_reason": "length" }] });
        let (events, whole) = Events::new(&json!({}), "1").end(&chat);
        assert_eq!(events[0]["type"], "response.created");
        assert_eq!(events.last().unwrap()["type"], "response.incomplete");
        assert_eq!(whole["status"], "incomplete");
    }
}
