//! Pages of lists as callers ask for them: `limit`, `order`, and `cursor`, an opaque text that says
//! where the next page begins.
//!
//! Invariant: a cursor goes on in the order of its page. One of the order that the list usually has
//! is plain; one of the other order names it. Where another order is asked for it is refused,
//! because it would show once more what was seen and leave out the rest.

use super::body::List;
use super::problem::{Problem, Result};
use axum::http::StatusCode;
use uuid::Uuid;
use windlass::domain::limit::Scope;
use windlass::domain::page::{Kind, Order, Part};
use windlass::domain::time::Timestamp;
use windlass::domain::validate;

/// What a cursor says: the key of the last item.
pub trait Place: Sized {
    /// Which words there are for the order.
    const KIND: Kind;

    /// As a text that may stand in an address as it is.
    fn write(&self) -> String;

    /// What such a text says.
    fn read(text: &str) -> Option<Self>;
}

/// Items in the order of their time.
impl Place for (Timestamp, Uuid) {
    const KIND: Kind = Kind::Time;

    fn write(&self) -> String {
        format!("{:x}.{}", self.0.as_ms(), self.1.simple())
    }

    fn read(text: &str) -> Option<Self> {
        let (time, id) = text.split_once('.')?;
        let ms = i64::from_str_radix(time, 16).ok()?;
        Some((Timestamp::from_ms(ms), Uuid::parse_str(id).ok()?))
    }
}

/// Items that are numbered as they come.
impl Place for i64 {
    const KIND: Kind = Kind::Time;

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|n| *n >= 0)
    }
}

/// Items by name: hexadecimal, as a name may hold anything.
impl Place for String {
    const KIND: Kind = Kind::Name;

    fn write(&self) -> String {
        self.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn read(text: &str) -> Option<Self> {
        let byte = |at| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        let name = String::from_utf8(bytes?).ok()?;
        Some(name).filter(|name| !name.is_empty() && !name.contains('\0'))
    }
}

/// Items by what they are about; what is about everything has no name.
impl Place for (Scope, String) {
    const KIND: Kind = Kind::Name;

    fn write(&self) -> String {
        format!("{}:{}", self.0, self.1).write()
    }

    fn read(text: &str) -> Option<Self> {
        let text = String::read(text)?;
        let (scope, name) = text.split_once(':')?;
        Some((scope.parse().ok()?, name.to_owned()))
    }
}

/// The page that somebody asks for.
pub struct Paging<K> {
    part: Part<K>,
    /// The order that the list has unless another one is asked for.
    usual: Order,
}

impl<K: Place + Clone> Paging<K> {
    /// Reads what was asked for.
    pub fn new(
        usual: Order,
        limit: Option<i64>,
        cursor: Option<&str>,
        order: Option<&str>,
    ) -> Result<Paging<K>> {
        let limit = validate::list_limit(limit)? as usize;
        let order = Order::asked(order, K::KIND, usual)?;
        let after = cursor.map(|text| read(text, order, usual)).transpose()?;
        Ok(Paging { part: Part::new(order, after, limit), usual })
    }

    /// Which part of the list it is.
    pub fn part(&self) -> Part<K> {
        self.part.clone()
    }

    /// The cursor of the page behind this one.
    pub fn cursor(&self, next: Option<K>) -> Option<String> {
        let next = next?.write();
        match self.part.order {
            order if order == self.usual => Some(next),
            order => Some(format!("{}.{next}", order.as_str())),
        }
    }

    /// The answer.
    pub fn list<T, B: From<T>>(&self, (items, next): (Vec<T>, Option<K>)) -> List<B> {
        let items = items.into_iter().map(Into::into).collect();
        List { items, next_cursor: self.cursor(next) }
    }
}

fn read<K: Place>(text: &str, order: Order, usual: Order) -> Result<K> {
    let named = |order: &Order| {
        let rest = text.strip_prefix(order.as_str())?.strip_prefix('.')?;
        Some((*order, rest))
    };
    let (own, rest) = Order::ALL.iter().find_map(named).unwrap_or((usual, text));
    let place = K::read(rest).ok_or_else(|| {
        let detail = "use the `next_cursor` of the page before, or none for the first page";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_cursor", detail)
    })?;
    if own != order {
        let own = own.as_str();
        let detail = format!(
            "the cursor is of a page in the order `{own}`: ask with `order={own}`, or leave the \
             cursor out to begin anew in the other order"
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_cursor", detail));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn comes_back<K: Place + Clone + PartialEq + Debug>(place: K) {
        for usual in Order::ALL {
            for order in Order::ALL {
                let first = Paging::<K>::new(*usual, None, None, Some(order.as_str())).unwrap();
                let text = first.cursor(Some(place.clone())).unwrap();
                let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
                assert!(text.chars().all(is_plain), "{text} stands in an address as it is");
                for asked in Order::ALL {
                    let next = Paging::<K>::new(*usual, None, Some(&text), Some(asked.as_str()));
                    match next {
                        Ok(next) if asked == order => {
                            assert_eq!(next.part().after.as_ref(), Some(&place));
                            assert_eq!(next.part().order, *order);
                        }
                        Ok(_) => panic!("{text} was taken for {asked:?}"),
                        Err(problem) => {
                            assert_ne!(asked, order, "{text}: {problem:?}");
                            let told = format!("`order={}`", order.as_str());
                            assert!(problem.detail.contains(&told), "{}", problem.detail);
                        }
                    }
                }
                let bare = Paging::<K>::new(*usual, None, Some(&text), None);
                assert_eq!(bare.is_ok(), order == usual, "without a word the usual order counts");
            }
        }
    }

    #[test]
    fn a_cursor_says_what_it_was_made_of_and_in_which_order() {
        comes_back((Timestamp::from_ms(1_769_860_800_000), Uuid::now_v7()));
        comes_back(0_i64);
        comes_back(i64::MAX);
        for name in ["a", "asc.", "desc", "é:\u{10ffff}", " "] {
            comes_back(name.to_owned());
            comes_back((Scope::Queue, name.to_owned()));
        }
        comes_back((Scope::Global, String::new()));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        fn refused<K: Place + Clone>(text: &str) {
            let wrong = Paging::<K>::new(Order::Ascending, None, Some(text), None).err();
            let code = wrong.map(|problem| problem.code.to_string());
            assert_eq!(code.as_deref(), Some("invalid_cursor"), "{text}");
        }
        for wrong in ["", ".", "zz.1", "1", "19c\u{e9}", "asc.", "asc"] {
            refused::<(Timestamp, Uuid)>(wrong);
        }
        for wrong in ["", "-1", "1.5", "asc.-1", "asc.asc.1", "\u{e9}"] {
            refused::<i64>(wrong);
        }
        for wrong in ["", "6", "6g", "00", "ff", "asc.", "6\u{e9}"] {
            refused::<String>(wrong);
            refused::<(Scope, String)>(wrong);
        }
        refused::<(Scope, String)>("6161");
    }
}
