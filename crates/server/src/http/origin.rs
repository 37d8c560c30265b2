//! Pages in a browser must not act or read here: a server without keys trusts whoever reaches it,
//! and every page that its user opens can reach the loopback.
//!
//! Invariant: what a page of another origin sends is refused, whether it says so (`Origin`) or has
//! its own name lead to this machine (`Host`, without keys).

use super::problem::{Problem, Result};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use std::net::IpAddr;

/// Refuses what a foreign page sends.
pub fn check(headers: &HeaderMap, uri: &Uri, has_keys: bool) -> Result<()> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = uri.authority().map(|authority| authority.as_str()).or(text(header::HOST));
    let host = host.unwrap_or_default();
    if !has_keys && !is_local(host) {
        let detail = "a server without keys answers to localhost and to addresses only; use one of \
                      these, or give the server keys";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", detail));
    }
    let origin = text(header::ORIGIN).map(|origin| origin.split_once("://").map(|(_, host)| host));
    match origin {
        Some(origin) if origin != Some(host) => {
            let detail = "pages of other origins may not call this server";
            Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", detail))
        }
        _ => Ok(()),
    }
}

/// A name that no foreign page can have lead here. Without a host at all it was no browser.
fn is_local(host: &str) -> bool {
    let has_port = |port: &str| port.chars().all(|c| c.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if has_port(port) && !name.ends_with(':') => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    name.is_empty()
        || name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(host: &str, origin: Option<&str>, has_keys: bool) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(&headers, &Uri::from_static("/v1/tasks"), has_keys).err().map(|problem| problem.code)
    }

    #[test]
    fn without_keys_only_local_names_and_addresses_are_answered_to() {
        for host in ["localhost", "LocalHost:7070", "127.0.0.1:7070", "[::1]:7070", "a.localhost:1"]
        {
            assert_eq!(code(host, None, false), None, "{host}");
        }
        for host in ["evil.example", "evil.example:7070", "localhost.evil.example", "127.0.0.1.x"] {
            assert_eq!(code(host, None, false), Some("host_not_allowed"), "{host}");
            assert_eq!(code(host, None, true), None, "{host}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused_and_our_own_is_not() {
        let host = "127.0.0.1:7070";
        for origin in ["http://evil.example", "null", "http://127.0.0.1:8080", "https://localhost"]
        {
            assert_eq!(code(host, Some(origin), false), Some("origin_not_allowed"), "{origin}");
        }
        assert_eq!(code(host, Some("http://127.0.0.1:7070"), false), None);
        assert_eq!(code("w.example", Some("https://w.example"), true), None);
    }
}
