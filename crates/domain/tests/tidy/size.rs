//! Rules about length: of files, functions and lines.

use crate::source::Source;
use crate::tree::{Finding, Tree};

const MAX_FILE: usize = 600;
const MAX_FUNCTION: usize = 100;
const MAX_LINE: usize = 100;

pub fn files(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        if lines > MAX_FILE {
            let what = format!("{lines} lines, at most {MAX_FILE}: split it by what it is about");
            found.push(file.finding(lines, what));
        }
    }
    found
}

pub fn functions(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let source = Source::of(&file.text);
        for function in source.functions() {
            let first = source.line(function.start);
            let lines = source.line(function.end) - first + 1;
            if lines > MAX_FUNCTION {
                let name = function.name;
                let what = format!("`{name}` has {lines} lines, at most {MAX_FUNCTION}");
                found.push(file.finding(first, what));
            }
        }
    }
    found
}

pub fn lines(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_checked = |path: &str| path.ends_with(".rs") || path.ends_with(".sql");
    for file in tree.files.iter().filter(|file| is_checked(&file.path)) {
        for (i, line) in file.text.lines().enumerate() {
            let length = line.chars().count();
            if length > MAX_LINE {
                let what = format!("{length} characters, at most {MAX_LINE}");
                found.push(file.finding(i + 1, what));
            }
        }
    }
    found
}

#[test]
fn a_long_file_is_found() {
    let (most, more) = ("\n".repeat(600), "\n".repeat(601));
    let tree = Tree::of(&[("a.rs", &most), ("b.rs", &more), ("c.md", &more)]);
    assert_eq!(crate::tree::places(&files(&tree)), [("b.rs", 601)]);
}

#[test]
fn a_long_function_is_found() {
    let function = |lines: usize| format!("\nfn long() {{{}}}\n", "\n".repeat(lines - 1));
    let tree = Tree::of(&[("a.rs", &function(100)), ("b.rs", &function(101))]);
    assert_eq!(crate::tree::places(&functions(&tree)), [("b.rs", 2)]);
}

#[test]
fn a_long_line_is_found() {
    let (most, more) = ("ü".repeat(100), format!("\n{}", "x".repeat(101)));
    let tree = Tree::of(&[("a.rs", &most), ("b.sql", &more), ("c.rs", &more), ("d.md", &more)]);
    assert_eq!(crate::tree::places(&lines(&tree)), [("b.sql", 2), ("c.rs", 2)]);
}
