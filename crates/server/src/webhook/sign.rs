//! The signature of a webhook: who called, and when.

use crate::config::Secret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// `t=SECONDS,v1=HEX`: the HMAC-SHA256 of `SECONDS.BODY`. With two secrets, while receivers change
/// over from one to the other, there are two `v1`.
pub fn signature(secrets: &[Secret], seconds: i64, body: &[u8]) -> String {
    let mut text = format!("t={seconds}");
    for secret in secrets {
        // HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()) else {
            continue;
        };
        mac.update(format!("{seconds}.").as_bytes());
        mac.update(body);
        let digest = mac.finalize().into_bytes();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!(",v1={hex}"));
    }
    text
}
