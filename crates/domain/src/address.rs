//! Which addresses the service may connect to on behalf of somebody: public ones, nothing else.
//!
//! Invariant: what is not known to be public is refused, so that a new kind of private address is
//! refused until somebody says otherwise.
//! Absent: names. Whoever connects resolves the name, asks here about every address, and connects
//! to the very address that was asked about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address must not be connected to; `None` if it is public.
pub fn refused(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => refused_v4(v4),
        IpAddr::V6(v6) => refused_v6(v6),
    }
}

fn refused_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("an address of this host"),
        (127, ..) => Some("a loopback address"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("a private address"),
        (100, 64..=127, _) => Some("a private address (shared by a carrier)"),
        (169, 254, _) => Some("a link-local address (cloud metadata)"),
        // Azure's host answers there, to every guest.
        (168, 63, 129) if address.octets()[3] == 16 => Some("a cloud's metadata address"),
        (192, 0, 0) | (192, 88, 99) => Some("a reserved address"),
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => Some("an address for documentation"),
        (198, 18..=19, _) => Some("an address for benchmarks"),
        (224..=239, ..) => Some("a multicast address"),
        (240..=255, ..) => Some("a reserved address"),
        _ => None,
    }
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, ..] = address.segments();
    if address.is_unspecified() {
        return Some("an address of this host");
    }
    if address.is_loopback() {
        return Some("a loopback address");
    }
    match (a, b) {
        (0xff00..=0xffff, _) => Some("a multicast address"),
        (0xfe80..=0xfebf, _) => Some("a link-local address"),
        (0xfc00..=0xfdff, _) => Some("a private address"),
        // Public IPv6 is 2000::/3. Outside are, for instance, IPv4 addresses in disguise.
        (0..=0x1fff | 0x4000.., _) => Some("not a public address"),
        // Teredo, benchmarks, Orchid, documentation: all in 2001::/23 or beside it.
        (0x2001, 0..=0x01ff) | (0x2001, 0x0db8) | (0x3fff, 0..=0x0fff) => {
            Some("a reserved address")
        }
        // 6to4: an IPv4 address in disguise.
        (0x2002, _) => Some("a reserved address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        for inside in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::7f00:1",
            "64:ff9b::a00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(refused(inside.parse().unwrap()).is_some(), "{inside}");
        }
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "168.63.129.17",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(refused(public.parse().unwrap()), None, "{public}");
        }
    }
}
