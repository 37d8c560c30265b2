//! Tokens: an approver's right to one decision, for people who have no key.
//!
//! Invariant: only a digest is kept, and it is compared in constant time. A token is found by its
//! id, which is no secret; the rest of it is 256 random bits.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// What tokens begin with, so that scanners of secrets find them.
const PREFIX: &str = "wla_";

/// A token. It is shown once, to whom it is issued.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: Uuid,
    secret: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl Token {
    /// A token of this id, out of three random uuids.
    pub fn new(id: Uuid, chance: [Uuid; 3]) -> Token {
        let mut hash = Sha256::new();
        chance.iter().for_each(|part| hash.update(part.as_bytes()));
        Token { id, secret: hash.finalize().into() }
    }

    /// Reads a text that somebody sent; `None` if it is no token of ours.
    pub fn parse(text: &str) -> Option<Token> {
        let hex = text.trim().strip_prefix(PREFIX)?;
        if hex.len() != 96 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let (id, rest) = hex.split_at(32);
        let mut secret = [0; 32];
        for (i, byte) in secret.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&rest[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Token { id: Uuid::parse_str(id).ok()?, secret })
    }

    /// By which it is found.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The text for its owner; safe in a URL.
    pub fn reveal(&self) -> String {
        let mut text = format!("{PREFIX}{}", self.id.simple());
        self.secret.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        text
    }

    /// What is kept of it.
    pub fn digest(&self) -> String {
        let hash = Sha256::digest(self.reveal().as_bytes());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this is the token that `digest` was made of. All bytes are compared.
    pub fn is(&self, digest: &str) -> bool {
        let mine = self.digest();
        let differs = mine.bytes().zip(digest.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        (mine.len() == digest.len()) & (differs == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u128) -> Token {
        Token::new(Uuid::from_u128(n), [1, 2, n].map(Uuid::from_u128))
    }

    #[test]
    fn a_token_reads_back_and_is_itself_only() {
        let one = token(1);
        let text = one.reveal();
        assert_eq!(text.len(), 100);
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "safe in a URL");
        assert_eq!(Token::parse(&text), Some(one.clone()));
        assert!(one.is(&one.digest()));
        assert!(!one.is(&token(2).digest()) && !one.is("") && !one.is(&one.digest()[1..]));
        assert!(!one.digest().contains(&text[36..60]), "the digest does not hold the secret");
        assert!(!format!("{one:?}").contains(&text[36..60]), "a log does not hold it");
    }

    #[test]
    fn what_is_no_token_is_not_read() {
        let good = token(1).reveal();
        for wrong in ["", "wla_", &good[1..], &good[..99], "wla_ä", &good.replace("wla_", "wlb_")]
        {
            assert_eq!(Token::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Token::parse(&format!("wla_{}", "é".repeat(48))), None);
        assert!(Token::parse(&format!(" {good}\n")).is_some(), "white space around it is dropped");
    }
}
