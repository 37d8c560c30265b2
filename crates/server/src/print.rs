//! What people see: tables, colours, notes, and text that cannot deceive a terminal.
//!
//! Invariant: text from tasks is never written as it came. Control characters and those that turn
//! the direction of writing are shown as escapes: an agent that writes a payload must not move the
//! operator's cursor, clear the screen or make a line read as another one.
//! Absent: the width of the terminal. A table is as wide as its cells, and cells are cut.

use serde_json::Value;
use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use windlass::domain::show::is_deceptive;

/// The longest cell of a table, in characters.
const MAX_CELL: usize = 60;

/// How a cell looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// As everything else.
    Plain,
    /// Headings.
    Bold,
    /// Of little interest.
    Dim,
    /// It went well.
    Green,
    /// It is under way.
    Blue,
    /// It waits or needs attention.
    Yellow,
    /// It went wrong.
    Red,
}

impl Paint {
    fn sequence(self) -> &'static str {
        match self {
            Paint::Plain => "",
            Paint::Bold => "\x1b[1m",
            Paint::Dim => "\x1b[2m",
            Paint::Green => "\x1b[32m",
            Paint::Blue => "\x1b[34m",
            Paint::Yellow => "\x1b[33m",
            Paint::Red => "\x1b[31m",
        }
    }

    /// The colour of a task's state.
    pub fn of_status(status: &str) -> Paint {
        match status {
            "completed" => Paint::Green,
            "claimed" | "running" => Paint::Blue,
            "waiting" | "waiting_for_approval" | "retry" => Paint::Yellow,
            "failed" | "poisoned" | "stuck" => Paint::Red,
            "cancelled" => Paint::Dim,
            _ => Paint::Plain,
        }
    }
}

/// Whether colours go to standard output: a terminal that knows them, and nobody who said no.
pub fn has_colour() -> bool {
    allows_colour(std::io::stdout().is_terminal())
}

/// Whether colours go to a stream that is, or is not, a terminal.
pub fn allows_colour(is_terminal: bool) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !refused && !is_dumb
}

/// Text in a colour, if standard output takes colours. The text must be safe already.
pub fn painted(text: &str, paint: Paint) -> String {
    if paint == Paint::Plain || text.is_empty() || !has_colour() {
        return text.to_owned();
    }
    format!("{}{text}\x1b[0m", paint.sequence())
}

/// One line of text, safe for a terminal: `\n` and the like become visible.
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_deceptive(c) => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Text of many lines: its line ends stay, everything else is as with [`safe`].
pub fn safe_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(|line| safe(line.trim_end_matches('\r'))).collect();
    lines.join("\n")
}

/// JSON on one line. Deceptive characters become `\u` escapes, so it stays the same value.
pub fn json(value: &Value) -> String {
    escaped_json(&value.to_string())
}

/// JSON for people: indented, and as safe as [`json`].
pub fn json_pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    let lines: Vec<_> = text.split('\n').map(escaped_json).collect();
    lines.join("\n")
}

fn escaped_json(text: &str) -> String {
    if !text.chars().any(is_deceptive) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_deceptive(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Writes a line to standard output. A reader that has gone away, such as `head`, ends the
/// program quietly: it has seen what it wanted.
pub fn line(text: &str) {
    part(&format!("{text}\n"));
}

/// Writes a part of a line, such as one that is drawn again and again.
pub fn part(text: &str) {
    if let Err(code) = try_part(text) {
        std::process::exit(code.into());
    }
}

/// The same, for those who must clear up before they end: what is left to do is to exit with this
/// code.
pub fn try_part(text: &str) -> Result<(), u8> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return 0;
        }
        note(&format!("windlass: standard output cannot be written: {error}"));
        74
    })
}

/// Writes one JSON value to standard output, on one line.
pub fn json_line(value: &Value) {
    line(&json(value));
}

/// Says something beside the answer, on standard error.
pub fn note(text: &str) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A cell of a table.
pub struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    /// A cell with text from anywhere; it is made safe and cut.
    pub fn new(text: &str) -> Cell {
        Cell::painted(text, Paint::Plain)
    }

    /// A cell in a colour.
    pub fn painted(text: &str, paint: Paint) -> Cell {
        Cell { text: cut(&safe(text), MAX_CELL), paint }
    }

    /// A cell with text from anywhere that is short enough, or too important to be cut.
    pub fn whole(text: &str) -> Cell {
        Cell { text: safe(text).into_owned(), paint: Paint::Plain }
    }

    /// What it shows.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A cell with the state of a task.
    pub fn status(status: &str) -> Cell {
        Cell::painted(status, Paint::of_status(status))
    }
}

/// The text, at most `max` characters long; the last one tells that it was cut.
pub fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    // Half an escape would look like something else.
    if let Some((before, escape)) = short.rsplit_once("\\u") {
        let is_whole = match escape.starts_with('{') {
            true => escape.contains('}'),
            false => escape.len() >= 4,
        };
        if !is_whole {
            short.truncate(before.len());
        }
    }
    short.push('…');
    short
}

/// A table with headings, columns aligned to the left, two spaces between them.
pub fn table(headings: &[&str], rows: &[Vec<Cell>]) {
    let mut widths: Vec<usize> = headings.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let last = widths.len().saturating_sub(1);
    let print = |cells: &mut dyn Iterator<Item = (&str, Paint)>| {
        let mut out = String::new();
        for (i, (text, paint)) in cells.enumerate() {
            out.push_str(&painted(text, paint));
            if i < last {
                let missing = widths[i].saturating_sub(text.chars().count());
                out.push_str(&" ".repeat(missing + 2));
            }
        }
        line(out.trim_end());
    };
    print(&mut headings.iter().map(|heading| (*heading, Paint::Bold)));
    for row in rows {
        print(&mut row.iter().map(|cell| (cell.text.as_str(), cell.paint)));
    }
}

/// A span of time in words, such as `3.2 s` or `2 h 5 min`.
pub fn span(ms: i64) -> String {
    let seconds = ms / 1_000;
    match ms {
        ..0 => format!("-{}", span(-ms)),
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600_000..86_400_000 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_act_on_the_terminal_or_turn_its_direction() {
        for (given, shown) in [
            ("plain ü 漢", "plain ü 漢"),
            ("\x1b[2Jgone", "\\u{1b}[2Jgone"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("abc\u{202e}fdp.exe", "abc\\u{202e}fdp.exe"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
        ] {
            assert_eq!(safe(given), shown);
        }
        assert_eq!(safe_lines("a\r\nb\x07"), "a\nb\\u{7}");
    }

    #[test]
    fn json_is_safe_and_stays_the_same_value() {
        let value = serde_json::json!({ "a\u{202e}": "\u{9b}31m \u{7f} \u{e0041} ü \n" });
        for text in [json(&value), json_pretty(&value)] {
            assert!(!text.replace('\n', "").chars().any(is_deceptive), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn no_escape_is_cut_in_half() {
        for (text, max, shown) in [
            ("plain text", 6, "plain…"),
            (r"pay \u206ebob", 9, "pay …"),
            (r"pay \u206ebob", 11, r"pay \u206e…"),
            (r"pay \u{202e}bob", 12, "pay …"),
            (r"pay \u{202e}bob", 13, r"pay \u{202e}…"),
        ] {
            assert_eq!(cut(text, max), shown);
        }
    }

    #[test]
    fn spans_of_time_are_short() {
        for (ms, words) in [
            (7, "7 ms"),
            (3_250, "3.2 s"),
            (125_000, "2 min 5 s"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
            (-5, "-5 ms"),
        ] {
            assert_eq!(span(ms), words);
        }
    }

    #[test]
    fn a_long_cell_is_cut() {
        assert_eq!(cut("äbcd", 4), "äbcd");
        assert_eq!(cut("äbcde", 4), "äbc…");
    }
}
