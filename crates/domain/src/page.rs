//! Pages of lists: in which order a list is walked, and where a page begins.
//!
//! Invariant: every list has a key that no two of its items share, and is walked along it, upwards
//! or downwards. A page begins behind the key of an item, so whatever comes or goes meanwhile is
//! neither the reason that another item is missed nor that one is shown twice.
//! Absent: SQL and the text of a cursor. The store and the server make them of what is said here.

use crate::refusal::{FieldError, Refusal};
use crate::time::Timestamp;
use crate::validate::{MAX_NAME_BYTES, Result};
use uuid::Uuid;

/// In which direction a list is walked along its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// From the lowest key on: the oldest first, or by name from A to Z.
    Ascending,
    /// From the highest key on: the newest first, or by name from Z to A.
    Descending,
}

impl Order {
    /// Both.
    pub const ALL: &[Order] = &[Order::Ascending, Order::Descending];

    /// Its name, in the API and in cursors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Order::Ascending => "asc",
            Order::Descending => "desc",
        }
    }

    /// The order that somebody asked for, or the one that the list usually has. A list along time
    /// knows two more words, because nobody should have to think which end of time is low.
    pub fn asked(text: Option<&str>, kind: Kind, usual: Order) -> Result<Order> {
        let Some(text) = text else { return Ok(usual) };
        let words = kind.words();
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, order)| *order).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let detail = format!("must be one of {}", words.join(", "));
            let pointer = "/order".to_owned();
            Refusal::Invalid(vec![FieldError { pointer, code: "unknown_value", detail }])
        })
    }
}

/// What a list is walked along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// When its items came.
    Time,
    /// What its items are called.
    Name,
}

impl Kind {
    /// The words for an order.
    pub const fn words(self) -> &'static [(&'static str, Order)] {
        match self {
            Kind::Time => &[
                ("newest", Order::Descending),
                ("oldest", Order::Ascending),
                ("desc", Order::Descending),
                ("asc", Order::Ascending),
            ],
            Kind::Name => &[("asc", Order::Ascending), ("desc", Order::Descending)],
        }
    }
}

/// A key by which a database walks a list.
pub trait Key: Sized {
    /// A key before which no item comes in this order, and which no item has.
    fn edge(order: Order) -> Self;
}

impl Key for (Timestamp, Uuid) {
    fn edge(order: Order) -> Self {
        match order {
            Order::Ascending => (Timestamp::EPOCH, Uuid::nil()),
            Order::Descending => (Timestamp::MAX, Uuid::max()),
        }
    }
}

impl Key for i64 {
    fn edge(order: Order) -> Self {
        match order {
            Order::Ascending => i64::MIN,
            Order::Descending => i64::MAX,
        }
    }
}

impl Key for String {
    fn edge(order: Order) -> Self {
        match order {
            Order::Ascending => String::new(),
            // The last character, more often than a name has room for: both databases compare
            // names byte by byte, so every name is below.
            Order::Descending => "\u{10ffff}".repeat(MAX_NAME_BYTES / 4 + 1),
        }
    }
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<K> {
    /// In which order.
    pub order: Order,
    /// Behind which item; from the list's end if `None`.
    pub after: Option<K>,
    /// How many items at most.
    pub limit: usize,
}

impl<K> Part<K> {
    /// A part of a list.
    pub fn new(order: Order, after: Option<K>, limit: usize) -> Part<K> {
        Part { order, after, limit }
    }

    /// How many items are read: one more than is shown tells whether there is a next page.
    pub fn most(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// The page of what was read, and the key behind which the next one begins.
    pub fn cut<T>(&self, mut read: Vec<T>, key: impl Fn(&T) -> K) -> (Vec<T>, Option<K>) {
        let more = read.len() > self.limit;
        read.truncate(self.limit);
        let next = read.last().filter(|_| more).map(key);
        (read, next)
    }

    /// The page of a list that is all there, in whichever order.
    pub fn of_all<T>(&self, mut all: Vec<T>, key: impl Fn(&T) -> K) -> (Vec<T>, Option<K>)
    where
        K: Ord,
    {
        all.sort_by_cached_key(&key);
        if self.order == Order::Descending {
            all.reverse();
        }
        // What the page before ended with may be gone: what stands behind its place comes next.
        if let Some(after) = &self.after {
            all.retain(|item| match self.order {
                Order::Ascending => key(item) > *after,
                Order::Descending => key(item) < *after,
            });
        }
        self.cut(all, key)
    }
}

impl<K: Key + Clone> Part<K> {
    /// The key behind which it begins.
    pub fn begin(&self) -> K {
        self.after.clone().unwrap_or_else(|| K::edge(self.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_asked_for_by_name() {
        use Order::{Ascending, Descending};
        for (kind, text, order) in [
            (Kind::Time, "newest", Descending),
            (Kind::Time, "desc", Descending),
            (Kind::Time, "oldest", Ascending),
            (Kind::Time, "asc", Ascending),
            (Kind::Name, "asc", Ascending),
            (Kind::Name, "desc", Descending),
        ] {
            for usual in [Ascending, Descending] {
                assert_eq!(Order::asked(Some(text), kind, usual), Ok(order), "{text}");
                assert_eq!(Order::asked(None, kind, usual), Ok(usual));
            }
        }
    }

    #[test]
    fn an_unknown_order_is_refused_with_those_that_there_are() {
        for (kind, text, words) in [
            (Kind::Time, "up", "newest, oldest, desc, asc"),
            (Kind::Time, "", "newest, oldest, desc, asc"),
            // A name has no age.
            (Kind::Name, "newest", "asc, desc"),
            (Kind::Name, "ASC", "asc, desc"),
        ] {
            let refused = Order::asked(Some(text), kind, Order::Ascending).unwrap_err();
            let Refusal::Invalid(errors) = refused else { panic!("{refused:?}") };
            let [error] = errors.as_slice() else { panic!("{errors:?}") };
            assert_eq!((error.pointer.as_str(), error.code), ("/order", "unknown_value"));
            assert_eq!(error.detail, format!("must be one of {words}"));
        }
    }

    #[test]
    fn no_name_lies_beyond_the_edge() {
        let last = "\u{10ffff}".repeat(MAX_NAME_BYTES / 4);
        for name in ["a", "z", "é", last.as_str()] {
            assert!(name.as_bytes() > String::edge(Order::Ascending).as_bytes());
            assert!(name.as_bytes() < String::edge(Order::Descending).as_bytes());
        }
    }

    #[test]
    fn pages_of_what_is_all_there_show_everything_once() {
        for order in Order::ALL {
            let mut wanted: Vec<i64> = (1..=7).collect();
            if *order == Order::Descending {
                wanted.reverse();
            }
            for limit in 1..=8 {
                let (mut seen, mut after) = (Vec::new(), None);
                loop {
                    let part = Part::new(*order, after, limit);
                    let (page, next) = part.of_all(vec![3, 1, 2, 7, 5, 4, 6], |n| *n);
                    assert!(page.len() == limit || next.is_none());
                    seen.extend(page);
                    after = next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(seen, wanted, "{order:?} {limit}");
            }
        }
    }

    #[test]
    fn a_page_goes_on_although_its_last_item_is_gone() {
        let part = Part::new(Order::Descending, Some(5), 2);
        assert_eq!(part.of_all(vec![1, 3, 7, 9], |n| *n), (vec![3, 1], None));
    }
}
