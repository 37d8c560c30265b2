//! The events of a streamed response, made of the chunks of a chat completion.
//!
//! Invariant: `sequence_number` counts from 0 without gaps; an item is added before its parts, and
//! done before the response is.

use super::{Said, call_item, message_item, response, skeleton};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What was told so far.
pub struct Events {
    request: Value,
    id: String,
    told: u64,
    /// What the message says, part by part in the order in which they began.
    parts: Vec<(Said, String)>,
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
            parts: Vec::new(),
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
        for said in Said::ALL {
            if let Some(words) = said.of(delta) {
                self.say(said, words, &mut events);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, &mut events);
        }
        events
    }

    fn say(&mut self, said: Said, words: &str, events: &mut Vec<Value>) {
        let at = self.message(events);
        let known = self.parts.iter().position(|(kind, _)| *kind == said);
        let index = known.unwrap_or(self.parts.len());
        if known.is_none() {
            self.parts.push((said, String::new()));
            let mut added = self.place(at, index);
            added["part"] = said.part("");
            events.push(self.event("response.content_part.added", added));
        }
        self.parts[index].1.push_str(words);
        let mut told = self.place(at, index);
        told["delta"] = json!(words);
        events.push(self.event_of(said, "delta", told));
    }

    /// Where the message stands in the output; it begins if it has not begun.
    fn message(&mut self, events: &mut Vec<Value>) -> usize {
        if let Some(at) = self.message {
            return at;
        }
        let at = self.calls.len();
        self.message = Some(at);
        let item = message_item(&Value::Null, &self.id, "in_progress");
        let added = json!({ "output_index": at, "item": item });
        events.push(self.event("response.output_item.added", added));
        at
    }

    /// A part of the message.
    fn place(&self, at: usize, part: usize) -> Value {
        let item_id = format!("msg_{}", self.id);
        json!({ "item_id": item_id, "output_index": at, "content_index": part })
    }

    fn event_of(&mut self, said: Said, kind: &str, mut fields: Value) -> Value {
        if said == Said::Text {
            fields["logprobs"] = json!([]);
        }
        self.event(&format!("response.{}.{kind}", said.name()), fields)
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
        let parts = std::mem::take(&mut self.parts);
        if let Some(at) = self.message {
            let mut item = message_item(&Value::Null, &self.id, "completed");
            item["content"] = parts.iter().map(|(said, words)| said.part(words)).collect();
            items.insert(at, item);
        }
        for (at, item) in &mut items {
            item["status"] = json!("completed");
            if item["type"] == "message" {
                for (index, (said, words)) in parts.iter().enumerate() {
                    let mut done = self.place(*at, index);
                    done[said.field()] = json!(words);
                    events.push(self.event_of(*said, "done", done));
                    let mut done = self.place(*at, index);
                    done["part"] = said.part(words);
                    events.push(self.event("response.content_part.done", done));
                }
            } else {
                let done = json!({
                    "item_id": item["id"], "output_index": at, "arguments": item["arguments"],
                    "name": item["name"],
                });
                events.push(self.event("response.function_call_arguments.done", done));
            }
            let done = json!({ "item_id": item["id"], "output_index": at, "item": item });
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

    /// It was told as a response without any output.
    #[test]
    fn a_refusal_is_told_while_it_comes_and_at_the_end() {
        let mut events = Events::new(&json!({ "input": "x" }), "1");
        let mut told = Vec::new();
        for delta in [json!({ "refusal": "I will " }), json!({ "refusal": "not." })] {
            told.extend(events.add(&chunk(delta)));
        }
        let chat = json!({ "created": 1, "model": "m", "choices": [{ "finish_reason": "stop" }] });
        let (rest, whole) = events.end(&chat);
        told.extend(rest);
        let kinds: Vec<&str> = told.iter().filter_map(|event| event["type"].as_str()).collect();
        let expected = "created in_progress output_item.added content_part.added \
            refusal.delta refusal.delta refusal.done content_part.done output_item.done completed";
        let expected: Vec<String> =
            expected.split_whitespace().map(|kind| format!("response.{kind}")).collect();
        assert_eq!(kinds, expected);
        assert_eq!(told[3]["part"], json!({ "type": "refusal", "refusal": "" }));
        assert_eq!(
            (&told[4]["delta"], &told[6]["refusal"]),
            (&json!("I will "), &json!("I will not."))
        );
        let content = json!([{ "type": "refusal", "refusal": "I will not." }]);
        assert_eq!(whole["output"][0]["content"], content);
        assert_eq!(told[8]["item"]["content"], content);
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
