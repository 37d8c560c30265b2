//! JSON whose fields keep the order in which they came.
//!
//! Why: models read a schema's fields in their order and answer in it, while `serde_json` and jsonb
//! sort them. Requests to models are kept as text and read here, so nothing on the way sorts them.
//! Invariant: pure; an order never changes what a value is equal to.
//! Absent: the text itself. Spaces and escapes are written anew.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};
use std::collections::HashMap;
use windlass::domain::json::digest;

/// A value with its order.
#[derive(Clone, Debug, PartialEq)]
pub enum Ordered {
    /// Anything that has no parts.
    Scalar(Value),
    /// A list.
    List(Vec<Ordered>),
    /// An object, its fields as they came.
    Fields(Vec<(String, Ordered)>),
}

impl From<&Value> for Ordered {
    fn from(value: &Value) -> Ordered {
        match value {
            Value::Array(items) => Ordered::List(items.iter().map(Ordered::from).collect()),
            Value::Object(fields) => {
                let own = |(name, value): (&String, &Value)| (name.clone(), Ordered::from(value));
                Ordered::Fields(fields.iter().map(own).collect())
            }
            scalar => Ordered::Scalar(scalar.clone()),
        }
    }
}

impl Ordered {
    /// The value without its order.
    pub fn value(&self) -> Value {
        match self {
            Ordered::Scalar(scalar) => scalar.clone(),
            Ordered::List(items) => items.iter().map(Ordered::value).collect(),
            Ordered::Fields(fields) => {
                let own = |(name, value): &(String, Ordered)| (name.clone(), value.value());
                Value::Object(fields.iter().map(own).collect())
            }
        }
    }

    /// A value that was made from this one, in its order: what stayed stands where it stood, what
    /// is new behind it.
    pub fn arrange(&self, made: &Value) -> Ordered {
        arranged(made, Some(self), &HashMap::new())
    }

    /// The same, and every object that was moved elsewhere is as it was here. That takes a digest
    /// of each: for what is translated only.
    pub fn arrange_moved(&self, made: &Value) -> Ordered {
        let mut known = HashMap::new();
        self.collect(&mut known);
        arranged(made, Some(self), &known)
    }

    /// Every object in it, by its digest.
    fn collect<'a>(&'a self, known: &mut Known<'a>) {
        match self {
            Ordered::Scalar(_) => {}
            Ordered::List(items) => items.iter().for_each(|item| item.collect(known)),
            Ordered::Fields(fields) => {
                known.entry(digest(&self.value())).or_insert(self);
                fields.iter().for_each(|(_, value)| value.collect(known));
            }
        }
    }
}

type Known<'a> = HashMap<String, &'a Ordered>;

fn arranged(made: &Value, at: Option<&Ordered>, known: &Known<'_>) -> Ordered {
    match made {
        Value::Object(fields) => {
            let same = (!known.is_empty()).then(|| known.get(&digest(made))).flatten();
            if let Some(same) = same {
                return (*same).clone();
            }
            let stood = match at {
                Some(Ordered::Fields(stood)) => stood.as_slice(),
                _ => &[],
            };
            let places = stood.iter().enumerate();
            let places: HashMap<&str, usize> =
                places.map(|(place, (name, _))| (name.as_str(), place)).collect();
            let mut names: Vec<&String> = fields.keys().collect();
            // Stable, so what is new stands behind the rest.
            names.sort_by_key(|name| places.get(name.as_str()).copied().unwrap_or(usize::MAX));
            let own = |name: &String| {
                let at = places.get(name.as_str()).map(|place| &stood[*place].1);
                (name.clone(), arranged(&fields[name], at, known))
            };
            Ordered::Fields(names.into_iter().map(own).collect())
        }
        Value::Array(items) => {
            let stood = match at {
                Some(Ordered::List(stood)) => stood.as_slice(),
                _ => &[],
            };
            let own = |(index, item): (usize, &Value)| arranged(item, stood.get(index), known);
            Ordered::List(items.iter().enumerate().map(own).collect())
        }
        scalar => Ordered::Scalar(scalar.clone()),
    }
}

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Ordered::Scalar(scalar) => scalar.serialize(serializer),
            Ordered::List(items) => serializer.collect_seq(items),
            Ordered::Fields(fields) => {
                serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ordered, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Ordered;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Ordered, E> {
        Ok(Ordered::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Ordered, E> {
        Ok(Ordered::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Ordered, E> {
        Ok(Ordered::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Ordered, E> {
        Ok(Ordered::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Ordered, E> {
        Ok(Ordered::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Ordered, E> {
        Ok(Ordered::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Ordered, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Ordered::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Ordered, A::Error> {
        let mut fields: Vec<(String, Ordered)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some((name, value)) = entries.next_entry::<String, Ordered>()? {
            // Of a name that comes twice the last one counts, as for `serde_json`.
            match places.get(&name) {
                Some(place) => fields[*place].1 = value,
                None => {
                    places.insert(name.clone(), fields.len());
                    fields.push((name, value));
                }
            }
        }
        Ok(Ordered::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Ordered {
        serde_json::from_str(text).unwrap()
    }

    fn written(ordered: &Ordered) -> String {
        serde_json::to_string(ordered).unwrap()
    }

    #[test]
    fn the_order_is_kept_and_the_value_is_the_same() {
        let text = r#"{"z":1,"a":[{"y":null,"b":-2.5,"c":"ü"},true],"m":{}}"#;
        assert_eq!(written(&read(text)), text);
        assert_eq!(read(text).value(), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(written(&read(r#"{"a":1,"b":2,"a":3}"#)), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn what_is_changed_keeps_its_place_and_what_is_new_comes_last() {
        let asked =
            read(r#"{"z":{"d":1,"c":2},"model":"x","background":true,"b":[{"q":1,"p":2}]}"#);
        let mut made = asked.value();
        made["model"] = json!("y");
        made["added"] = json!(1);
        made.as_object_mut().unwrap().remove("background");
        made["b"][0]["q"] = json!(7);
        let expected = r#"{"z":{"d":1,"c":2},"model":"y","b":[{"q":7,"p":2}],"added":1}"#;
        assert_eq!(written(&asked.arrange(&made)), expected);
    }

    #[test]
    fn what_was_moved_keeps_its_order() {
        let asked = read(r#"{"tools":[{"parameters":{"z":{"k":1,"a":2},"b":3}}],"u":1}"#);
        let schema = asked.value()["tools"][0]["parameters"].clone();
        let made = json!({ "tools": [{ "function": { "parameters": schema } }] });
        let written = written(&asked.arrange_moved(&made));
        let expected = r#"{"tools":[{"function":{"parameters":{"z":{"k":1,"a":2},"b":3}}}]}"#;
        assert_eq!(written, expected);
    }
}
