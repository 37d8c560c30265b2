//! Rust text taken apart as far as the rules need it: code, strings and comments.
//!
//! Absent: a grammar. Counting braces outside strings and comments is enough.

/// A string literal and the byte where it begins.
pub struct Literal {
    pub at: usize,
    pub text: String,
}

/// The text with strings and comments blanked out, byte for byte, and the strings themselves.
pub struct Source {
    pub code: String,
    pub strings: Vec<Literal>,
}

/// A function: where it begins, and the bytes from there to its closing brace.
pub struct Function {
    pub name: String,
    pub start: usize,
    pub end: usize,
}

impl Source {
    pub fn of(text: &str) -> Source {
        let bytes = text.as_bytes();
        let mut code = bytes.to_vec();
        let mut strings = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = match bytes[at] {
                b'/' if bytes[at + 1..].starts_with(b"/") => line_end(bytes, at),
                b'/' if bytes[at + 1..].starts_with(b"*") => comment_end(bytes, at),
                b'"' => {
                    let (end, text) = literal(text, at);
                    strings.push(Literal { at, text });
                    end
                }
                b'\'' => char_end(text, at),
                _ => {
                    at += 1;
                    continue;
                }
            };
            for byte in &mut code[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        }
        Source { code: String::from_utf8(code).unwrap(), strings }
    }

    /// The line of a byte, counted from 1.
    pub fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }

    /// Every function that has a body.
    pub fn functions(&self) -> Vec<Function> {
        let starts = self.code.match_indices("fn ").map(|(start, _)| start);
        starts.filter_map(|start| self.function(start)).collect()
    }

    fn function(&self, start: usize) -> Option<Function> {
        let before = self.code[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let rest = &self.code[start + 3..];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
        if name.is_empty() {
            return None;
        }
        let mut brackets = 0;
        let mut braces = 0;
        for (i, c) in self.code[start..].char_indices() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                // A declaration without a body; the `;` of an array type stands in brackets.
                ';' if brackets == 0 && braces == 0 => return None,
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces == 0 {
                        let end = start + i;
                        return Some(Function { name, start, end });
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The name of the call in whose parentheses this byte stands.
    pub fn call_around(&self, at: usize) -> &str {
        let mut open = 0;
        for (i, c) in self.code[..at].char_indices().rev() {
            match c {
                ')' | '}' | ']' => open += 1,
                '(' if open == 0 => {
                    let before = &self.code[..i];
                    let is_word = |c: char| c.is_alphanumeric() || c == '_';
                    let name = before.trim_end_matches(is_word).len();
                    return &before[name..];
                }
                '(' | '{' | '[' if open == 0 => return "",
                '(' | '{' | '[' => open -= 1,
                _ => {}
            }
        }
        ""
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes[at..].iter().position(|&b| b == b'\n');
    rest.map_or(bytes.len(), |length| at + length)
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < bytes.len() {
        match &bytes[i..] {
            [b'/', b'*', ..] => {
                depth += 1;
                i += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    bytes.len()
}

/// The end of the literal whose opening quote stands at `at`, and its text as it is written.
fn literal(text: &str, at: usize) -> (usize, String) {
    let before = &text[..at];
    let hashes = before.len() - before.trim_end_matches('#').len();
    let prefix = before.trim_end_matches('#');
    let is_raw = prefix.ends_with('r') && !prefix.ends_with("for");
    let bytes = text.as_bytes();
    let mut i = at + 1;
    if is_raw {
        let close = format!("\"{}", "#".repeat(hashes));
        let length = text[i..].find(&close).unwrap_or(text.len() - i);
        let end = (i + length + close.len()).min(text.len());
        return (end, text[i..i + length].to_owned());
    }
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    let end = i.min(text.len());
    ((end + 1).min(text.len()), text[at + 1..end].to_owned())
}

/// The end of a character such as `'{'`, or just past the quote of a lifetime.
fn char_end(text: &str, at: usize) -> usize {
    let mut chars = text[at + 1..].char_indices();
    match chars.next() {
        Some((_, '\\')) => {
            let quote = text[at + 3..].find('\'');
            quote.map_or(text.len(), |i| at + 3 + i + 1)
        }
        Some(_) => match chars.next() {
            Some((i, '\'')) => at + 1 + i + 1,
            _ => at + 1,
        },
        None => at + 1,
    }
}

#[test]
fn strings_characters_and_comments_are_no_code() {
    let text =
        "let a = \"{ \\\" }\"; // {\n/* { /* { */ */ let b = '{'; let c: &'a str = r#\"\"{\"#;";
    let source = Source::of(text);
    assert!(!source.code.contains(['{', '}']), "{}", source.code);
    assert_eq!(source.code.len(), text.len());
    let strings: Vec<_> = source.strings.iter().map(|s| s.text.as_str()).collect();
    assert_eq!(strings, ["{ \\\" }", "\"{"]);
    assert!(source.code.contains("let c: &"));
}

#[test]
fn functions_are_found_with_their_end() {
    let text = "trait T {\n    fn a(x: [u8; 2]);\n    fn b() {\n        if x { y }\n    }\n}\n";
    let source = Source::of(text);
    let found: Vec<_> = source
        .functions()
        .iter()
        .map(|f| (f.name.clone(), source.line(f.start), source.line(f.end)))
        .collect();
    assert_eq!(found, [("b".to_owned(), 3, 5)]);
}

#[test]
fn the_call_around_a_string_is_known() {
    let source = Source::of("errors.add(&at(1), \"code\", f(2)); other(\"x\");");
    let calls: Vec<_> = source.strings.iter().map(|s| source.call_around(s.at)).collect();
    assert_eq!(calls, ["add", "other"]);
}
