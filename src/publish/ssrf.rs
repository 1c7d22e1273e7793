//! Which addresses a publisher may be pointed at: public ones by `https`, written plainly.
//!
//! These checks read the address as written; they resolve no name. A Worker can neither see nor
//! pin the address that `fetch` connects to, so a name that answers with a private address (DNS
//! rebinding) is not caught here. What remains of that risk is small: URLs come from the operator's
//! configuration only, redirects are never followed, and Cloudflare's network has no route into
//! anybody's private one.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether plain `http` to this machine is let through: only in development.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// `http` and `https` to `localhost`, `127.0.0.0/8` and `[::1]` pass.
    Allowed,
    /// Nothing on this machine passes.
    Refused,
}

/// An address that passed: `scheme://host[:port][/path]`, without a trailing slash.
///
/// ```
/// use oncepress::publish::ssrf::{Endpoint, Loopback};
/// assert!(Endpoint::parse("https://hooks.example.com/in?x=1", Loopback::Refused).is_ok());
/// assert!(Endpoint::parse("https://2130706433/", Loopback::Refused).is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Reads an address, or says why it is refused.
    pub fn parse(url: &str, loopback: Loopback) -> Result<Self, &'static str> {
        if url.len() > URL_MAX_BYTES {
            return Err("is longer than 2,000 bytes");
        }
        if !url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte))
        {
            return Err("holds a character that a URL may not (percent-encode it)");
        }
        let (plain, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err("must start with https://"),
        };
        if url.contains('#') {
            return Err("must not have a fragment (#)");
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("must not hold a user name or password");
        }
        let host = host_of(authority)?;
        match (place(host)?, loopback, plain) {
            (Place::ThisMachine, Loopback::Allowed, _) | (Place::Public, _, false) => {}
            (Place::ThisMachine, Loopback::Refused, _) => {
                return Err("points at this machine, which only development may do");
            }
            (Place::Public, _, true) => return Err("must start with https://"),
        }
        Ok(Self(url.strip_suffix('/').unwrap_or(url).to_owned()))
    }

    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has a query, so that no path can be appended.
    pub(crate) fn has_query(&self) -> bool {
        self.0.contains('?')
    }
}

impl std::fmt::Debug for Endpoint {
    /// Shows the origin only: paths and queries of hooks are often secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin: Vec<&str> = self.0.split(['/', '?']).take(3).collect();
        write!(f, "Endpoint({}/…)", origin.join("/"))
    }
}

enum Place {
    Public,
    ThisMachine,
}

/// The host of `host[:port]`, with a v6 address still in its brackets.
fn host_of(authority: &str) -> Result<&str, &'static str> {
    let bracket_end = authority.rfind(']').map_or(0, |at| at.saturating_add(1));
    let (bracketed, tail) = authority
        .split_at_checked(bracket_end)
        .unwrap_or((authority, ""));
    let (host, port) = match tail.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (tail, None),
    };
    let port_ok = port.is_none_or(|port| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if !port_ok {
        return Err("has a port that is not a number from 1 to 65535");
    }
    match (bracketed.is_empty(), host.is_empty()) {
        (true, false) => Ok(host),
        (false, true) => Ok(bracketed),
        (true, true) | (false, false) => Err("has no valid host"),
    }
}

fn place(host: &str) -> Result<Place, &'static str> {
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        let address: Ipv6Addr = inner.parse().map_err(|_| "has no valid IPv6 address")?;
        return match address {
            Ipv6Addr::LOCALHOST => Ok(Place::ThisMachine),
            _ if is_public_v6(address) => Ok(Place::Public),
            _ => Err(NOT_PUBLIC),
        };
    }
    let host = host.to_ascii_lowercase();
    if host.ends_with('.') {
        return Err("must not end its host with a dot");
    }
    let name_ok = host.split('.').all(|label| {
        let plain = label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        (1..=63).contains(&label.len()) && plain
    });
    if !name_ok || host.len() > 253 {
        return Err("has no valid host (write a name of other letters in its xn-- form)");
    }
    // What browsers and `fetch` read as an IPv4 address is decided by the last label alone.
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) {
        return place_v4(&host);
    }
    if host == "localhost" {
        return Ok(Place::ThisMachine);
    }
    let inward = INWARD_NAMES.iter().any(|name| {
        host.strip_suffix(name)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    if inward || !host.contains('.') {
        Err(NOT_PUBLIC)
    } else {
        Ok(Place::Public)
    }
}

/// Only four plain decimal numbers will do: octal, hexadecimal and short forms hide where they go.
fn place_v4(host: &str) -> Result<Place, &'static str> {
    let address: Ipv4Addr = host
        .parse()
        .map_err(|_| "has an IPv4 address in a disguised form")?;
    if address.is_loopback() {
        return Ok(Place::ThisMachine);
    }
    if is_public_v4(address) {
        Ok(Place::Public)
    } else {
        Err(NOT_PUBLIC)
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let value = u32::from(address);
    let reserved = RESERVED_V4.iter().any(|(network, bits)| {
        let shift = 32_u32.saturating_sub(*bits);
        value.checked_shr(shift) == u32::from(Ipv4Addr::from(*network)).checked_shr(shift)
    });
    !reserved
}

/// Global unicast (`2000::/3`) without the parts that carry another address or none at all.
/// Mapped, translated (`64:ff9b::/96`), link-local and unique local addresses lie outside of it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    match (first, second) {
        // Protocol assignments with Teredo and ORCHID; documentation; 6to4; documentation.
        (0x2001, 0x0000..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, 0x0000..=0x0fff) => false,
        (0x2000..=0x3fff, _) => true,
        _ => false,
    }
}

const NOT_PUBLIC: &str = "does not point at a public address";
const URL_MAX_BYTES: usize = 2_000;
/// Networks that are not on the public internet (IANA's special-purpose registry).
const RESERVED_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
/// Names that lead inward by convention, a cloud's name for its metadata, and public services that
/// answer with any address asked.
const INWARD_NAMES: [&str; 24] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "lan",
    "corp",
    "home.arpa",
    "home",
    "private",
    "svc",
    "consul",
    "metadata.tencentyun.com",
    "rbndr.us",
    "1u.ms",
    "localtest.me",
    "lvh.me",
    "vcap.me",
    "lacolhost.com",
    "nip.io",
    "sslip.io",
    "xip.io",
    "traefik.me",
    "local.gd",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn production(url: &str) -> Result<Endpoint, &'static str> {
        Endpoint::parse(url, Loopback::Refused)
    }

    #[test]
    fn public_addresses_pass() {
        for url in [
            "https://example.com",
            "https://hooks.example.com:8443/a/b?c=d%20e&f=",
            "https://xn--wgv71a.jp/hook",
            "https://1.1.1.1/",
            "https://8.8.8.8:443/x",
            "https://[2606:4700:4700::1111]/",
            "https://EXAMPLE.com/",
            "https://mylocal.example",
            "https://notnip.io/",
            "https://100.63.255.255/",
            "https://172.32.0.1/",
        ] {
            assert!(production(url).is_ok(), "{url}: {:?}", production(url));
        }
    }

    #[test]
    fn private_disguised_and_malformed_addresses_are_refused() {
        for url in [
            "http://example.com/",
            "ftp://example.com/",
            "HTTPS://example.com/",
            "https:/example.com",
            "//example.com",
            "https://",
            "https:///x",
            "https://user@example.com/",
            "https://ok@169.254.169.254/",
            "https://user:pw@example.com/",
            "https://2130706433/",
            "https://0177.0.0.1/",
            "https://0x7f.0.0.1/",
            "https://0x7f000001/",
            "https://127.1/",
            "https://1.1/",
            "https://127.0.0.1/",
            "https://127.0.0.1./",
            "https://10.0.0.1/",
            "https://10.1.2.3:8443/",
            "https://172.16.0.1/",
            "https://172.31.255.255/",
            "https://192.168.1.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://0.0.0.0/",
            "https://0/",
            "https://100.64.0.1/",
            "https://100.127.255.255/",
            "https://198.18.0.1/",
            "https://224.0.0.1/",
            "https://255.255.255.255/",
            "https://[::1]/",
            "https://[::]/",
            "https://[::ffff:7f00:1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[fd00:ec2::254]/",
            "https://[fe80::1]/",
            "https://[fe80::1%25eth0]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://[2001:0:1::1]/",
            "https://[2001:db8::1]/",
            "https://[ff02::1]/",
            "https://[::1",
            "https://::1/",
            "https://[1.1.1.1]/",
            "https://localhost/",
            "https://LOCALHOST:3000/",
            "https://a.localhost/",
            "https://example.com./",
            "https://metadata.google.internal/",
            "https://kubernetes.default.svc/",
            "https://vault.service.consul/",
            "https://metadata.tencentyun.com/",
            "https://7f000001.08080808.rbndr.us/",
            "https://[::127.0.0.1]/",
            "https://[::ffff:a9fe:a9fe]/",
            "https://[64:ff9b:1::7f00:1]/",
            "https://2852039166/",
            "https://0251.0376.0251.0376/",
            "https://printer.local/",
            "https://127.0.0.1.nip.io/",
            "https://localtest.me/",
            "https://a.b.sslip.io/",
            "https://intranet/",
            "https://example.com:0/",
            "https://example.com:65536/",
            "https://example.com:/",
            "https://example.com:+1/",
            "https://exa mple.com/",
            "https://example.com\\@127.0.0.1/",
            "https://example.com/\u{0}",
            "https://ex\tample.com/",
            "https://１２７.0.0.1/",
            "https://ｌocalhost/",
            "https://example。com/",
            "https://%6c%6fcalhost/",
            "https://1.2.3.0x4/",
            "https://example.com/#f",
            "https://a..example.com/",
            "https://1.2.3.4.5/",
            "https://0300.0250.0.1/",
            "https://01.1.1.1/",
        ] {
            assert!(production(url).is_err(), "{url} passed");
        }
    }

    #[test]
    fn this_machine_passes_in_development_only() {
        for url in [
            "http://localhost:8787/x",
            "http://127.0.0.1:9/",
            "https://[::1]:8443/",
        ] {
            assert!(Endpoint::parse(url, Loopback::Allowed).is_ok(), "{url}");
            assert!(production(url).is_err(), "{url}");
        }
        for url in [
            "http://example.com/",
            "http://10.0.0.1/",
            "http://2130706433/",
        ] {
            assert!(Endpoint::parse(url, Loopback::Allowed).is_err(), "{url}");
        }
    }

    #[test]
    fn debugging_shows_no_path() {
        let endpoint = production("https://hooks.example.com/services/T0/s3cret?k=s3cret").unwrap();
        assert_eq!(
            format!("{endpoint:?}"),
            "Endpoint(https://hooks.example.com/…)"
        );
    }

    proptest! {
        #[test]
        fn no_spelling_of_a_private_address_passes(
            a in prop_oneof![Just(10_u32), Just(127), Just(0)], rest in 0_u32..0x100_0000,
            form in 0_usize..6,
        ) {
            let value = a << 24 | rest;
            let [a, b, c, d] = value.to_be_bytes();
            let host = match form {
                0 => format!("{a}.{b}.{c}.{d}"),
                1 => format!("{value}"),
                2 => format!("{value:#x}"),
                3 => format!("0{value:o}"),
                4 => format!("{a}.{rest}"),
                _ => format!("[::ffff:{a}.{b}.{c}.{d}]"),
            };
            let url = format!("https://{host}/");
            prop_assert!(production(&url).is_err(), "{url}");
        }
    }
}
