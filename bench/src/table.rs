//! Markdown tables, and the words for figures.

use std::time::Duration;

pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn print(&self, title: &str) {
        println!("\n### {title}\n");
        println!("| {} |", self.head.join(" | "));
        println!("|{}", "---|".repeat(self.head.len()));
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

/// So many a second, with separators.
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// A whole number with separators.
pub fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The verdict on a target.
pub fn met(is_met: bool, target: &str) -> String {
    format!("{target}: {}", if is_met { "met" } else { "**not met**" })
}

/// A quantile of times, in microseconds.
pub fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}
