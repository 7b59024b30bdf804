//! The one place where an HTTP client is made.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::redirect::Policy;

/// Makes a client for `address`: HTTP/1, roots of trust built in, so that no certificate folder
/// is read, and no redirects, because a key must not follow one. The proxy variables of the
/// environment count, but never for a server on this machine.
///
/// # Errors
/// When the TLS library refuses its own configuration.
pub fn client(address: &Url, connect: Duration) -> Result<reqwest::Client, reqwest::Error> {
    match is_loopback(address) {
        // Nothing leads from there to a server with a certificate, so that none need be trusted.
        true if address.scheme() == "http" => builder(connect, Roots::None).no_proxy().build(),
        true => builder(connect, Roots::BuiltIn).no_proxy().build(),
        false => builder(connect, Roots::BuiltIn).build(),
    }
}

/// Makes a client that connects for `host` to these addresses and to nothing else: no name is
/// looked up again, and no proxy looks it up elsewhere.
///
/// # Errors
/// As [`client`].
pub fn client_to(
    host: &str,
    addresses: &[SocketAddr],
    connect: Duration,
) -> Result<reqwest::Client, reqwest::Error> {
    builder(connect, Roots::BuiltIn)
        .no_proxy()
        .resolve_to_addrs(host, addresses)
        .build()
}

/// Whose certificates are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roots {
    /// Nobody's.
    None,
    /// Those of the well-known authorities.
    BuiltIn,
}

fn builder(connect: Duration, roots: Roots) -> reqwest::ClientBuilder {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that the lint points everybody else to"
    )]
    let builder = reqwest::Client::builder();
    builder
        .tls_backend_preconfigured(tls(roots))
        .http1_only()
        .redirect(Policy::none())
        .referer(false)
        // A retry that we do not know of would make our count of requests wrong.
        .retry(reqwest::retry::never())
        .connect_timeout(connect)
        .tcp_keepalive(Duration::from_secs(30))
        .user_agent(concat!("muster-worker/", env!("CARGO_PKG_VERSION")))
}

/// The provider is named, because with two of them in one program rustls would choose neither
/// and panic.
fn tls(wanted: Roots) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    if wanted == Roots::BuiltIn {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the protocol versions that are default")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Whether the host of an address is this machine by name or number; nothing is looked up.
fn is_loopback(address: &Url) -> bool {
    let host = address.host_str().unwrap_or("");
    let number = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || number
            .parse::<std::net::IpAddr>()
            .is_ok_and(|number| number.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_recognised_without_asking_anyone() {
        for (address, wanted) in [
            ("http://localhost:11434/v1", true),
            ("http://LOCALHOST/v1", true),
            ("http://127.0.0.1:8080/v1", true),
            ("http://127.9.9.9/v1", true),
            ("http://[::1]:8080/v1", true),
            ("https://api.example.com/v1", false),
            ("http://10.0.0.1/v1", false),
            ("http://localhost.example.com/v1", false),
        ] {
            assert_eq!(
                is_loopback(&Url::parse(address).unwrap()),
                wanted,
                "{address}"
            );
        }
    }

    #[test]
    fn a_client_with_tls_can_be_made() {
        let address = Url::parse("https://api.example.com/v1").unwrap();
        assert!(client(&address, Duration::from_secs(1)).is_ok());
    }
}
