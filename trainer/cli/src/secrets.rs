//! `kith secrets`: certificates and tokens for servers, without an external CA.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions, Permissions},
    io::Write,
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow, bail};
use kith_store::WorkFolder;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::{answer::print_fields, token::draw_token};

const DAY: Duration = Duration::from_hours(24);

/// Create a new folder, readable only by you, with a TLS certificate for sampling servers, its CA certificate, and
/// tokens.
#[derive(clap::Args)]
#[command(after_help = "\
Servers:   kith-sampler … --tls-cert OUT/tls.crt --tls-key OUT/tls.key --token-file OUT/sampler-token
Trainers:  kith train … --tls-ca OUT/ca.crt --token-file OUT/sampler-token
Ranks:     KITH_TOKEN=$(cat OUT/token)")]
pub struct Args {
    /// The folder to create.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Host names and addresses of the servers, comma-separated, without ports. Use the names that trainers give in
    /// --graph grpc://…, or in --tls-name.
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true, value_parser = host)]
    names: Vec<String>,
    /// Validity of the certificate in days (default: 365). It is valid from one day in the past, because the clocks of
    /// hosts differ.
    #[arg(long, value_name = "DAYS", default_value_t = 365, hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
}

/// Parses a host name or an IP address.
fn host(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_plain)
    };
    match text.parse::<IpAddr>().is_ok() || text.len() <= 253 && text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err("expected a host name or an address, without a port".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { out, names, days } = args;
    if out.exists() {
        bail!("{} exists: choose another folder", out.display());
    }
    let Signed { authority, certificate, key } = sign(names, *days)?;
    // The folder appears with all of its files, or not at all.
    let mut draft = OsString::from(out);
    draft.push(".draft");
    let folder = WorkFolder::claim(Path::new(&draft))?;
    let dir = folder.path();
    let made = fs::set_permissions(dir, Permissions::from_mode(0o700));
    made.map_err(|error| anyhow!("{}: {error}", dir.display()))?;
    for (name, text) in [
        ("ca.crt", authority),
        ("tls.crt", certificate),
        ("tls.key", key),
        ("sampler-token", draw_token()? + "\n"),
        ("token", draw_token()?), // Without a newline: ranks use all of its bytes.
    ] {
        write(&dir.join(name), &text)?;
    }
    folder.publish(out)?;
    print_fields(&[
        ("secrets", out.display().to_string()),
        ("certificate", format!("for {}, {days} days", names.join(", "))),
    ])
}

/// Certificates and key, PEM.
struct Signed {
    authority: String,
    certificate: String,
    key: String,
}

/// Certificate for servers of these names. The CA's private key is discarded: it signs nothing else.
fn sign(names: &[String], days: u64) -> anyhow::Result<Signed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now = date_time_ymd(1970, 1, 1) + now;
    let params = |names: &[String], called: &str| -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, called);
        (params.not_before, params.not_after) = (now - DAY, now + DAY * u32::try_from(days)?);
        Ok(params)
    };
    let mut of_authority = params(&[], "kith secrets")?;
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    of_authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(of_authority, KeyPair::generate()?)?;
    let mut of_servers = params(names, "kith-sampler")?;
    of_servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = of_servers.signed_by(&key, &authority)?;
    Ok(Signed { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| anyhow!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_for_their_owner_and_never_overwritten() {
        let temp = tempfile::tempdir().unwrap();
        let args =
            Args { out: temp.path().join("made"), names: vec!["one".to_owned(), "10.0.0.1".to_owned()], days: 1 };
        run(&args).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&args.out), 0o700);
        let mut names: Vec<String> = fs::read_dir(&args.out)
            .unwrap()
            .map(|entry| entry.unwrap())
            .inspect(|entry| assert_eq!(mode(&entry.path()), 0o600, "{entry:?}"))
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["ca.crt", "sampler-token", "tls.crt", "tls.key", "token"]);
        let tokens = ["sampler-token", "token"].map(|name| fs::read_to_string(args.out.join(name)).unwrap());
        assert_ne!(tokens[0].trim(), tokens[1].trim());
        let error = run(&args).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        assert_eq!(fs::read_to_string(args.out.join("token")).unwrap(), tokens[1]);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn names_that_no_server_has_are_refused() {
        for right in ["localhost", "sampler-0", "a.b.example", "10.0.0.1", "::1", "kith_samplers"] {
            assert_eq!(host(right), Ok(right.to_owned()));
        }
        for wrong in ["", "one:7000", "https://one", "a..b", "a b", "é", "*.example", &"x".repeat(64)] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
