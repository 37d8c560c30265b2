//! Text as a person may be shown it: nothing that hides, moves or turns what stands beside it.
//!
//! Invariant: what is shown is one line, holds no deceptive character, and tells two different
//! texts apart. An agent under somebody's influence writes the arguments that a person approves;
//! what the person reads must be what will run.
//! Absent: letters that look like others. Whole alphabets would have to be refused.

/// Whether a character acts upon the text around it, or takes no visible place of its own:
/// controls, line ends, marks of direction, joiners and fillers, tags, blanks other than the
/// space, and what no font shows.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}')
        || matches!(c, '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
        || (c as u32) & 0xfffe == 0xfffe
}

/// Plain text on one line. A backslash is doubled, so that no text looks like another's escape.
pub fn text(text: &str) -> String {
    escaped(text, |c, out| match c {
        '\\' => out.push_str("\\\\"),
        c => unit(c, out),
    })
}

/// Canonical JSON: it stays the same value, because strings may hold any character as an escape.
pub fn json(canonical: &str) -> String {
    escaped(canonical, |c, out| match c {
        // Its escapes are those of the JSON itself.
        '\\' => out.push('\\'),
        c => unit(c, out),
    })
}

fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\\' || is_deceptive(c) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    out
}

fn unit(c: char, out: &mut String) {
    let mut units = [0; 2];
    for unit in c.encode_utf16(&mut units) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::canonical;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn nasty_text_is_shown_and_does_nothing() {
        for (given, shown) in [
            ("plain text, ä, 漢字, emoji 🚀", "plain text, ä, 漢字, emoji 🚀"),
            ("a\nb\r\tc\u{b}", "a\\u000ab\\u000d\\u0009c\\u000b"),
            ("\x1b[2J\x1b[31mred", "\\u001b[2J\\u001b[31mred"),
            ("\u{9b}31m", "\\u009b31m"),
            ("bell\x07 nul\0 del\x7f", "bell\\u0007 nul\\u0000 del\\u007f"),
            // Reads as "pay exe.fdp to eve" on a screen.
            ("pay \u{202e}pdf.exe\u{202c} to eve", "pay \\u202epdf.exe\\u202c to eve"),
            ("\u{2066}isolate\u{2069}", "\\u2066isolate\\u2069"),
            ("\u{200f}\u{200e}\u{61c}", "\\u200f\\u200e\\u061c"),
            ("zero\u{200b}width\u{200d}\u{2060}\u{feff}", "zero\\u200bwidth\\u200d\\u2060\\ufeff"),
            ("soft\u{ad}hyphen", "soft\\u00adhyphen"),
            ("no\u{a0}break \u{2003}wide\u{3000}", "no\\u00a0break \\u2003wide\\u3000"),
            ("line\u{2028}paragraph\u{2029}\u{85}", "line\\u2028paragraph\\u2029\\u0085"),
            ("filler\u{3164}\u{ffa0}\u{115f}\u{2800}", "filler\\u3164\\uffa0\\u115f\\u2800"),
            ("tag\u{e0041}\u{e007f}", "tag\\udb40\\udc41\\udb40\\udc7f"),
            ("select\u{fe0f}\u{e0100}", "select\\ufe0f\\udb40\\udd00"),
            ("private\u{e000}\u{10fffd}", "private\\ue000\\udbff\\udffd"),
            ("none\u{ffff}\u{1fffe}\u{fff9}", "none\\uffff\\ud83f\\udffe\\ufff9"),
            ("\\u202e is text", "\\\\u202e is text"),
        ] {
            assert_eq!(text(given), shown);
        }
    }

    #[test]
    fn json_is_shown_as_the_same_value() {
        let value = json!({ "to\u{202e}": "a\\\n\u{200b}\"ü\u{e0041}", "n": [1, 2.5, null] });
        let shown = json(&canonical(&value));
        assert_eq!(shown, r#"{"n":[1,2.5,null],"to\u202e":"a\\\n\u200b\"ü\udb40\udc41"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    proptest! {
        #[test]
        fn any_text_is_shown_without_deceptive_characters(given in any::<String>()) {
            let shown = text(&given);
            prop_assert!(!shown.chars().any(is_deceptive));
            let quoted = canonical(&serde_json::Value::String(given.clone()));
            let as_json = json(&quoted);
            prop_assert!(!as_json.chars().any(is_deceptive));
            prop_assert_eq!(serde_json::from_str::<String>(&as_json).unwrap(), given);
        }

        #[test]
        fn different_texts_are_shown_differently(a in any::<String>(), b in any::<String>()) {
            prop_assert_eq!(a == b, text(&a) == text(&b));
        }
    }
}
