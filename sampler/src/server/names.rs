//! Names in a certificate.

use rustls::pki_types::CertificateDer;

/// DNS names, URIs and common names of a certificate. The certificate must have been verified.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let dns = certificate.valid_dns_names().map(str::to_owned);
    let uris = certificate.valid_uri_names().map(str::to_owned);
    dns.chain(uris).chain(common_names(certificate.subject())).collect()
}

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The common names of a subject: a sequence of sets of sequences of an identifier and a value.
fn common_names(subject: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    // With or without the tag of the sequence itself.
    let inside = match element(subject) {
        Some((SEQUENCE, inside, [])) => inside,
        _ => subject,
    };
    let mut sets = inside;
    while let Some((SET, set, rest)) = element(sets) {
        sets = rest;
        let mut attributes = set;
        while let Some((SEQUENCE, attribute, rest)) = element(attributes) {
            attributes = rest;
            if let Some((OBJECT_IDENTIFIER, COMMON_NAME, value)) = element(attribute)
                && let Some((UTF8_STRING | PRINTABLE_STRING | IA5_STRING, text, _)) = element(value)
                && let Ok(name) = std::str::from_utf8(text)
            {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// The tag and the content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (n_bytes, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), rest.get(2..)?),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(n_bytes)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn all_names_of_a_certificate_are_found() {
        let mut params = CertificateParams::new(["trainer.example".to_owned()]).unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI("spiffe://kith/trainer".try_into().unwrap()));
        params.distinguished_name.push(DnType::OrganizationName, "Kith");
        params.distinguished_name.push(DnType::CommonName, "the trainer");
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let names = names_of(certificate.der());
        assert_eq!(names, ["trainer.example", "spiffe://kith/trainer", "the trainer"]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut state = 1u32;
        for n_bytes in 0..2000 {
            let bytes: Vec<u8> = (0..n_bytes % 60)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    [0x30, 0x31, 0x06, 0x55, 0x82, 0x0c, (state >> 24) as u8, 3][(state >> 20) as usize % 8]
                })
                .collect();
            let _ = common_names(&bytes);
        }
        assert!(common_names(&[0x31, 0x82, 0xff]).is_empty());
    }
}
