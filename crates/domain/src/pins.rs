//! Pins: what an inference must run on, where its submitter said so, and who has that.
//!
//! Invariant: what is pinned goes to nobody who did not name it. A provider that names no model may
//! have any, and so promises none.

use serde::Serialize;

/// What a task must run on. Stored at submit, so a later rename reroutes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs)] // Named like the fields of the request.
pub struct Pins {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

impl Pins {
    /// Each that is set, by its name.
    pub fn set(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("llm", &self.llm), ("model", &self.model), ("tier", &self.tier)]
            .into_iter()
            .filter_map(|(what, name)| Some((what, name.as_deref()?)))
    }
}

/// What a worker says that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the fields of the request.
pub struct Serves {
    pub llms: Vec<String>,
    pub models: Vec<String>,
    pub tiers: Vec<String>,
}

impl Serves {
    /// Whether it has all that is pinned.
    pub fn has(&self, pins: &Pins) -> bool {
        let has = |names: &[String], pin: &Option<String>| {
            pin.as_ref().is_none_or(|pin| names.contains(pin))
        };
        has(&self.llms, &pins.llm) && has(&self.models, &pins.model) && has(&self.tiers, &pins.tier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(llms: &[&str], models: &[&str], tiers: &[&str]) -> Serves {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Serves { llms: list(llms), models: list(models), tiers: list(tiers) }
    }

    #[test]
    fn who_has_what_is_pinned() {
        let pin = |name: &str| Some(name.to_owned());
        let model = Pins { model: pin("m"), ..Pins::default() };
        let all = Pins { llm: pin("l"), model: pin("m"), tier: pin("t") };
        for (who, pins, expected) in [
            (serves(&[], &[], &[]), Pins::default(), true),
            (serves(&["l"], &["m"], &["t"]), Pins::default(), true),
            (serves(&[], &["other", "m"], &[]), model.clone(), true),
            (serves(&["m"], &["other"], &["m"]), model.clone(), false),
            // Who names nothing promises nothing.
            (serves(&[], &[], &[]), model, false),
            (serves(&["l"], &["m"], &["t"]), all.clone(), true),
            (serves(&["l"], &["m"], &["other"]), all.clone(), false),
            (serves(&["l"], &["m"], &[]), all, false),
        ] {
            assert_eq!(who.has(&pins), expected, "{who:?} {pins:?}");
        }
    }
}
