//! The guard against requests to places that only this machine can reach (SSRF).
//!
//! Invariant: a name is resolved here, every address that comes back is asked about, and the
//! connection goes to these very addresses: nobody resolves again. One address that is not public
//! refuses the name as a whole.

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use windlass::domain::address;

/// Which hosts may be reached: public ones, and those that the settings allow by name.
#[derive(Clone, Debug)]
pub struct Guard {
    allowed: Arc<Vec<String>>,
}

impl Guard {
    /// A guard that lets the named hosts pass, whatever their addresses.
    pub fn new(allowed: &[String]) -> Guard {
        let allowed = allowed.iter().map(|host| plain(host)).collect();
        Guard { allowed: Arc::new(allowed) }
    }

    fn allows(&self, host: &str) -> bool {
        self.allowed.contains(&plain(host))
    }

    /// Refuses a URL that no request may go to, as far as its text tells.
    pub fn check_literal(&self, url: &Url) -> Result<(), String> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err("url_not_allowed: only http and https".into());
        }
        let host = url.host_str().ok_or("url_not_allowed: there is no host")?;
        match plain(host).parse::<IpAddr>() {
            Ok(address) if !self.allows(host) => judge(address),
            _ => Ok(()),
        }
    }

    async fn resolve(self, host: String) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host((host.as_str(), 0)).await;
        let found = found.map_err(|error| format!("the name cannot be resolved: {error}"))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err("the name has no address".into());
        }
        if !self.allows(&host) {
            found.iter().try_for_each(|address| judge(address.ip()))?;
        }
        Ok(found)
    }
}

/// A host as it is compared: without case, brackets and the dot of the root.
fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn judge(address: IpAddr) -> Result<(), String> {
    match address::refused(address) {
        Some(why) => Err(format!("blocked_address: {address} is {why}")),
        None => Ok(()),
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let resolving = Guard::resolve(self.clone(), name.as_str().to_owned());
        Box::pin(async move {
            let found = resolving.await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
