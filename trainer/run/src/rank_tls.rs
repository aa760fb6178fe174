//! Encryption of connections between ranks.

use std::net::IpAddr;

/// Connections between ranks that are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankTls {
    /// Those that leave loopback.
    #[default]
    Auto,
    /// All.
    On,
    /// None.
    Off,
}

impl RankTls {
    /// The choice of this name.
    pub fn from_name(name: &str) -> Option<RankTls> {
        match name {
            "auto" => Some(RankTls::Auto),
            "on" => Some(RankTls::On),
            "off" => Some(RankTls::Off),
            _ => None,
        }
    }

    /// True if a connection to this address must be encrypted.
    pub fn requires(self, other: IpAddr) -> bool {
        match self {
            RankTls::Auto => !other.to_canonical().is_loopback(),
            RankTls::On => true,
            RankTls::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_leave_loopback_are_encrypted_by_default() {
        let requires = |choice: RankTls, address: &str| choice.requires(address.parse().unwrap());
        for (address, leaves) in [
            ("127.0.0.1", false),
            ("127.0.1.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("10.0.0.7", true),
            ("::ffff:10.0.0.7", true),
            ("2001:db8::1", true),
        ] {
            assert_eq!(requires(RankTls::default(), address), leaves, "{address}");
            assert!(requires(RankTls::On, address) && !requires(RankTls::Off, address));
        }
        assert_eq!(["auto", "on", "off"].map(RankTls::from_name), [RankTls::Auto, RankTls::On, RankTls::Off].map(Some));
        assert_eq!(RankTls::from_name("yes"), None);
    }
}
