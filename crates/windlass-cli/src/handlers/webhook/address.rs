//! Which addresses a webhook may be sent to. Whoever submits tasks chooses the URL, and the worker may stand
//! where that person may not go: what is not on the public network is refused unless the operator allows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

/// Ports below this one belong to services that are no webhooks, but for those of the web itself.
const PORT_MIN: u16 = 1024;
const WEB_PORTS: [u16; 2] = [80, 443];

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// On the public network.
    Public,
    /// Of this machine or its own networks; a name may be allowed to lead there.
    Private(&'static str),
    /// Nothing that a name should ever lead to: only a CIDR allows it.
    Reserved(&'static str),
}

/// The targets that an operator allows besides the public ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Allow {
    networks: Vec<IpNet>,
    hosts: Vec<String>,
}

impl Allow {
    /// Reads addresses, CIDRs and names of hosts, with commas between them.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut allow = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let bare = entry.trim_start_matches('[').trim_end_matches(']');
            if let Ok(network) = bare.parse::<IpNet>() {
                allow.networks.push(network);
            } else if let Ok(address) = bare.parse::<IpAddr>() {
                allow.networks.push(address.into());
            } else {
                let is_name = matches!(url::Host::parse(entry), Ok(url::Host::Domain(_)))
                    && !entry.contains(['*', '/']);
                if !is_name {
                    return Err(format!("{entry:?} is no address, CIDR or name of a host"));
                }
                allow.hosts.push(plain_name(entry));
            }
        }
        Ok(allow)
    }

    /// Says why nothing may be sent to this address of this host.
    pub(super) fn check(&self, host: &str, address: SocketAddr) -> Result<(), String> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        if self.networks.iter().any(|network| network.contains(&ip)) {
            return Ok(());
        }
        let refused = |what| Err(format!("{ip} is {what}, which webhooks may not be sent to"));
        match standing(ip) {
            Standing::Public if port >= PORT_MIN || WEB_PORTS.contains(&port) => Ok(()),
            Standing::Public => Err(format!(
                "port {port} is none that webhooks may be sent to: 80, 443, 1024 and up"
            )),
            Standing::Private(_) if self.hosts.contains(&plain_name(host)) => Ok(()),
            Standing::Private(what) | Standing::Reserved(what) => refused(what),
        }
    }
}

/// A name as it is compared: without the dot at its end, in lower case.
fn plain_name(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn standing(address: IpAddr) -> Standing {
    match address {
        IpAddr::V4(address) => standing_v4(address),
        IpAddr::V6(address) => standing_v6(address),
    }
}

fn standing_v4(address: Ipv4Addr) -> Standing {
    use Standing::{Private, Public, Reserved};
    match address.octets() {
        // Where clouds tell a machine its secrets, besides the link-local address that most use.
        [168, 63, 129, 16] | [100, 100, 100, 200] => Reserved("a metadata service"),
        [0, ..] => Reserved("of no host"),
        [127, ..] => Private("a loopback address"),
        [10, ..] | [192, 168, ..] | [172, 16..=31, ..] => Private("a private address"),
        [100, 64..=127, ..] => Private("an address shared by a carrier"),
        [169, 254, ..] => Reserved("a link-local address"),
        [192, 0, 0, _] | [192, 88, 99, _] => Reserved("an address of a protocol"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Reserved("a sample address"),
        [198, 18..=19, ..] => Reserved("an address for measurements"),
        [224..=239, ..] => Reserved("a multicast address"),
        [240..=255, ..] => Reserved("a reserved address"),
        _ => Public,
    }
}

fn standing_v6(address: Ipv6Addr) -> Standing {
    use Standing::{Private, Public, Reserved};
    let [a, b, c, d, e, f, g, h] = address.segments();
    let inner = || {
        let ([w, x], [y, z]) = (g.to_be_bytes(), h.to_be_bytes());
        standing_v4(Ipv4Addr::new(w, x, y, z))
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0] if g == 0 && h == 0 => Reserved("of no host"),
        [0, 0, 0, 0, 0, 0] if g == 0 && h == 1 => Private("a loopback address"),
        // An IPv4 address in other clothes: written so, or by a network that has only IPv6.
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => inner(),
        [0xfd00, 0xec2, 0, 0, 0, 0] => Reserved("a metadata service"),
        [0xfc00..=0xfdff, ..] => Private("a private address"),
        [0xfe80..=0xfebf, ..] => Reserved("a link-local address"),
        [0xff00..=0xffff, ..] => Reserved("a multicast address"),
        // Tunnels and translations lead to IPv4 addresses that cannot be judged here.
        [0x2001, 0..=0x1ff, ..] | [0x2002, ..] => Reserved("an address of a tunnel or protocol"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Reserved("a sample address"),
        [0x2000..=0x3fff, ..] => Public,
        _ => Reserved("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(allowed: &str, host: &str, address: &str, is_fine: bool) {
        let allow = Allow::parse(allowed).unwrap();
        let checked = allow.check(host, address.parse().unwrap());
        assert_eq!(checked.is_ok(), is_fine, "{host} at {address} with {allowed:?}: {checked:?}");
    }

    #[test]
    fn only_public_addresses_are_targets() {
        for address in
            ["1.1.1.1", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "[64:ff9b::808:808]"]
        {
            check("", "example.com", &format!("{address}:443"), true);
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
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
            "[::]",
            "[::1]",
            "[::7f00:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[::ffff:0:127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::1]",
            "[100::1]",
            "[2001::1]",
            "[2001:2::1]",
            "[2001:db8::1]",
            "[2002:7f00:1::]",
            "[2002:a00:1::1]",
            "[3fff::1]",
            "[4000::1]",
            "[5f00::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[fdff::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
        ] {
            check("", "example.com", &format!("{address}:443"), false);
        }
    }

    #[test]
    fn an_allowed_network_is_a_target_in_every_spelling() {
        check("10.0.0.0/8", "x", "10.1.2.3:80", true);
        check("10.0.0.0/8", "x", "[::ffff:10.1.2.3]:80", true);
        check("10.0.0.0/8", "x", "11.1.2.3:80", true);
        check("10.0.0.0/8", "x", "192.168.0.1:80", false);
        check("127.0.0.1", "x", "127.0.0.1:22", true);
        check("127.0.0.1", "x", "127.0.0.2:80", false);
        check("[::1], fd00::/8", "x", "[fd12::1]:80", true);
        check("169.254.169.254", "x", "169.254.169.254:80", true);
    }

    #[test]
    fn an_allowed_name_may_be_private_but_never_reserved() {
        check("Build.Internal", "build.internal.", "10.0.0.1:80", true);
        check("build.internal", "build.internal", "127.0.0.1:80", true);
        check("build.internal", "build.internal", "169.254.169.254:80", false);
        check("build.internal", "build.internal", "224.0.0.1:80", false);
        check("build.internal", "other.internal", "10.0.0.1:80", false);
        check("build.internal", "x.build.internal", "10.0.0.1:80", false);
    }

    #[test]
    fn ports_of_other_services_are_no_targets() {
        for (port, is_fine) in [(80, true), (443, true), (22, false), (25, false), (8443, true)] {
            check("", "example.com", &format!("1.1.1.1:{port}"), is_fine);
        }
    }

    #[test]
    fn what_is_neither_address_nor_name_is_refused() {
        for text in ["10.0.0.0/33", "a b", "*", "http://x", "10.0.0.0/8,*.x"] {
            assert!(Allow::parse(text).is_err(), "{text}");
        }
        assert!(Allow::parse("").unwrap().hosts.is_empty());
    }
}
