//! Which addresses a web page may be fetched from: public ones alone.
//!
//! A page that a model asks for is chosen by whatever it has read. Without this rule a page, or a
//! redirect, or a name that resolves to 127.0.0.1, would let it read services that trust whoever
//! is on the machine or in its network, and the key server of a cloud machine at 169.254.169.254.
//! The ranges are those of the IANA special-purpose registries (RFC 6890 and its updates).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is no public one; none for a public one. An IPv6 address that only carries an
/// IPv4 address (mapped, compatible, NAT64, 6to4) is judged by that one too.
pub(super) fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (0, ..) => "an address of this host",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "a private address",
        (100, 64..=127, _) => "a shared address of a provider's network",
        (127, ..) => "this machine itself",
        (169, 254, _) => "a link-local address, such as that of cloud metadata",
        (192, 0, 0) => "an address of a protocol",
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => "an address for documentation",
        (192, 88, 99) => "a relay address",
        (198, 18..=19, _) => "an address for benchmarks",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    })
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let v4_at = |at: usize| {
        let [a, b] = segments[at].to_be_bytes();
        let [c, d] = segments[at + 1].to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("this machine itself"),
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0, 0, _, _] => {
            refusal_v4(v4_at(6)).or(Some("an IPv4 address in IPv6 form"))
        }
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => refusal_v4(v4_at(6)),
        [0x64, 0xff9b, 1, ..] => Some("a translated private address"),
        [0x100, 0, 0, 0, ..] => Some("an address that is thrown away"),
        // Teredo hides the address that it leads to.
        [0x2001, 0, ..] => Some("a tunnel's address"),
        [0x2001, 2, 0, ..] => Some("an address for benchmarks"),
        [0x2001, 0xdb8, ..] | [0x3fff, ..] => Some("an address for documentation"),
        [0x2002, ..] => refusal_v4(v4_at(1)).or(Some("a tunnel's address")),
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        // Everything that the registry gives out for the public lies in 2000::/3.
        [0x2000..=0x3fff, ..] => None,
        _ => Some("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "64:ff9b::808:808",
        ] {
            assert_eq!(refusal(public.parse().unwrap()), None, "{public}");
        }
        for refused in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(refusal(refused.parse().unwrap()).is_some(), "{refused}");
        }
    }
}
