//! Usage: how many tokens a model call took, as its result tells.
//!
//! Invariant: read from the result that is stored, never counted by us. Both spellings of OpenAI's
//! APIs are known; what is no whole number from 0 on is not believed.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The tokens of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of what was asked.
    pub prompt_tokens: u64,
    /// Of what was answered.
    pub completion_tokens: u64,
    /// Of both, as the provider says; else their sum.
    pub total_tokens: u64,
}

impl Usage {
    /// The usage that a result tells, if it does.
    pub fn of(result: &Json) -> Option<Usage> {
        let usage = result.get("usage")?;
        let tokens = |names: [&str; 2]| names.iter().find_map(|name| usage.get(name)?.as_u64());
        let prompt = tokens(["prompt_tokens", "input_tokens"]);
        let completion = tokens(["completion_tokens", "output_tokens"]);
        let total = tokens(["total_tokens", "total_tokens"]);
        // Embeddings answer nothing and tell no completion.
        if prompt.is_none() && completion.is_none() && total.is_none() {
            return None;
        }
        let (prompt_tokens, completion_tokens) =
            (prompt.unwrap_or_default(), completion.unwrap_or_default());
        let sum = prompt_tokens.saturating_add(completion_tokens);
        Some(Usage { prompt_tokens, completion_tokens, total_tokens: total.unwrap_or(sum) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(usage: Json) -> Option<(u64, u64, u64)> {
        let usage = Usage::of(&json!({ "usage": usage }))?;
        Some((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens))
    }

    #[test]
    fn both_spellings_are_known() {
        let chat = json!({ "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 });
        assert_eq!(of(chat), Some((3, 4, 7)));
        assert_eq!(of(json!({ "input_tokens": 3, "output_tokens": 4 })), Some((3, 4, 7)));
        assert_eq!(of(json!({ "prompt_tokens": 5, "total_tokens": 5 })), Some((5, 0, 5)));
    }

    #[test]
    fn what_is_no_usage_is_none() {
        for none in [json!(null), json!({}), json!({ "prompt_tokens": -1 }), json!("many")] {
            assert_eq!(of(none.clone()), None, "{none}");
        }
        assert_eq!(Usage::of(&json!("text")), None);
    }
}
