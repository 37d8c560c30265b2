//! Usage: how many tokens an attempt took, as whoever ran it tells.
//!
//! Invariant: told, never counted by us: with the end of an attempt, or else by the result itself.
//! What all attempts told is added up, because failed ones are paid for, too. Both spellings of
//! OpenAI's APIs are known and one is kept; numbers are whole, from 0 to [`MAX_TOKENS`].
//! Absent: prices. Who wants money multiplies.

use crate::validate::{Errors, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The largest number: every JSON parser reads it without loss.
pub const MAX_TOKENS: u64 = (1 << 53) - 1;
/// The most numbers that a usage may have beside the three that everybody knows.
pub const MAX_OTHERS: usize = 16;
/// The longest name of such a number, in bytes.
pub const MAX_USAGE_NAME_BYTES: usize = 64;

const PROMPT: [&str; 2] = ["prompt_tokens", "input_tokens"];
const COMPLETION: [&str; 2] = ["completion_tokens", "output_tokens"];
const TOTAL: [&str; 2] = ["total_tokens", "total_tokens"];

/// What an attempt took, or all attempts of a task together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of what was asked.
    pub prompt_tokens: u64,
    /// Of what was answered.
    pub completion_tokens: u64,
    /// Of both, as the provider says; else their sum.
    pub total_tokens: u64,
    /// Whatever else was counted, such as `cached_tokens` or `images`.
    #[serde(flatten)]
    pub others: BTreeMap<String, u64>,
}

impl Usage {
    /// A usage that was told: an object of whole numbers. Refused with every misfit.
    pub fn told(pointer: &str, usage: &Json) -> Result<Usage> {
        let mut errors = Errors::default();
        let Some(fields) = usage.as_object() else {
            errors.add(pointer, "wrong_type", "must be an object of whole numbers");
            return errors.into_result().map(|()| Usage::default());
        };
        let known = |name: &str| [PROMPT, COMPLETION, TOTAL].iter().any(|n| n.contains(&name));
        let mut others = BTreeMap::new();
        for (name, value) in fields {
            let at = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            errors.name(&at, name, MAX_USAGE_NAME_BYTES);
            match value.as_u64().filter(|&tokens| tokens <= MAX_TOKENS) {
                None => {
                    let detail = format!("must be a whole number from 0 to {MAX_TOKENS}");
                    errors.add(&at, "out_of_range", detail);
                }
                Some(_) if known(name) => {}
                Some(tokens) => drop(others.insert(name.clone(), tokens)),
            }
        }
        for [name, alias] in [PROMPT, COMPLETION] {
            if fields.contains_key(name) && fields.contains_key(alias) {
                let detail = format!("means the same as `{name}`; send one of them");
                errors.add(&format!("{pointer}/{alias}"), "conflict", detail);
            }
        }
        if others.len() > MAX_OTHERS {
            let detail = format!("has more than {MAX_OTHERS} numbers of other names");
            errors.add(pointer, "too_long", detail);
        }
        errors.into_result()?;
        Ok(Usage { others, ..Usage::common(usage).unwrap_or_default() })
    }

    /// The usage that a result tells, if it does. What is no whole number is not believed.
    pub fn of(result: &Json) -> Option<Usage> {
        Usage::common(result.get("usage")?)
    }

    /// A usage as it was stored; `None` if somebody wrote nonsense there by hand.
    pub fn stored(usage: &Json) -> Option<Usage> {
        serde_json::from_value(usage.clone()).ok()
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, more: &Usage) -> Usage {
        let add = |a: u64, b: u64| a.saturating_add(b).min(MAX_TOKENS);
        let mut others = self.others.clone();
        for (name, &tokens) in &more.others {
            let sum = add(others.get(name).copied().unwrap_or_default(), tokens);
            // A sum of many attempts keeps the bound that each of them had.
            if others.len() < MAX_OTHERS || others.contains_key(name) {
                others.insert(name.clone(), sum);
            }
        }
        Usage {
            prompt_tokens: add(self.prompt_tokens, more.prompt_tokens),
            completion_tokens: add(self.completion_tokens, more.completion_tokens),
            total_tokens: add(self.total_tokens, more.total_tokens),
            others,
        }
    }

    /// The three numbers, by either spelling. Embeddings answer nothing and tell no completion.
    fn common(usage: &Json) -> Option<Usage> {
        let tokens = |names: [&str; 2]| {
            let of = |name: &&str| usage.get(name)?.as_u64().filter(|&n| n <= MAX_TOKENS);
            names.iter().find_map(of)
        };
        let (prompt, completion, total) = (tokens(PROMPT), tokens(COMPLETION), tokens(TOTAL));
        if prompt.is_none() && completion.is_none() && total.is_none() {
            return None;
        }
        let (prompt_tokens, completion_tokens) =
            (prompt.unwrap_or_default(), completion.unwrap_or_default());
        let sum = (prompt_tokens + completion_tokens).min(MAX_TOKENS);
        let total_tokens = total.unwrap_or(sum);
        Some(Usage { prompt_tokens, completion_tokens, total_tokens, others: BTreeMap::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::findings;
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

    #[test]
    fn what_is_told_is_kept_under_one_spelling_and_read_back() {
        let told = json!({ "input_tokens": 3, "output_tokens": 4, "cached_tokens": 2 });
        let usage = Usage::told("/usage", &told).unwrap();
        let kept = serde_json::to_value(&usage).unwrap();
        let shown = json!({ "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
            "cached_tokens": 2 });
        assert_eq!(kept, shown);
        assert_eq!(Usage::stored(&kept), Some(usage));
        assert_eq!(Usage::told("", &json!({})).unwrap(), Usage::default());
    }

    #[test]
    fn a_refusal_names_every_number_that_is_wrong() {
        let many: BTreeMap<_, _> = (0..=MAX_OTHERS).map(|i| (format!("n{i}"), 1)).collect();
        let range = "out_of_range";
        for (told, expected) in [
            (json!([1]), vec![("/usage", "wrong_type")]),
            (
                json!({ "a": -1, "b": 1.5, "c": "1" }),
                vec![("/usage/a", range), ("/usage/b", range), ("/usage/c", range)],
            ),
            (json!({ "total_tokens": MAX_TOKENS + 1 }), vec![("/usage/total_tokens", range)]),
            (
                json!({ "input_tokens": 1, "prompt_tokens": 1 }),
                vec![("/usage/input_tokens", "conflict")],
            ),
            (json!({ "": 1 }), vec![("/usage/", "required")]),
            (json!(many), vec![("/usage", "too_long")]),
        ] {
            assert_eq!(findings(Usage::told("/usage", &told)), expected, "{told}");
        }
        assert!(Usage::told("", &json!({ "total_tokens": MAX_TOKENS })).is_ok());
    }

    #[test]
    fn sums_stay_within_the_bounds_of_one() {
        let one = Usage::told("", &json!({ "total_tokens": MAX_TOKENS, "images": 1 })).unwrap();
        let two = one.plus(&one);
        assert_eq!((two.total_tokens, two.others["images"]), (MAX_TOKENS, 2));
        let others =
            |from: usize| (from..from + MAX_OTHERS).map(|i| (format!("n{i}"), 1)).collect();
        let (few, more) = (others(0), others(MAX_OTHERS));
        let sum = Usage { others: few, ..one.clone() }.plus(&Usage { others: more, ..one });
        assert_eq!(sum.others.len(), MAX_OTHERS);
    }
}
