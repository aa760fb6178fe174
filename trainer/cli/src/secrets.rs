//! `kith secrets`: certificates and tokens for servers, without an authority at hand.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::{answer::print_fields, token::draw_token};

const DAY: Duration = Duration::from_hours(24);

/// Make a certificate for servers, the authority that signed it, and tokens: a new folder that only you can read.
#[derive(clap::Args)]
#[command(after_help = "\
servers:  kith-sampler … --tls-cert OUT/tls.crt --tls-key OUT/tls.key --token-file OUT/sampler-token
trainers: kith train … --tls-ca OUT/ca.crt --token-file OUT/sampler-token
ranks:    KITH_TOKEN=$(cat OUT/token)")]
pub(crate) struct Args {
    /// The folder to make.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Names and addresses of servers as trainers write them in --samplers (without ports) or --tls-name, with commas between them.
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true)]
    names: Vec<String>,
    /// Days for which the certificate is valid, from a day ago on.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { out, names, days } = args;
    let Signed { authority, certificate, key } = sign(names, *days)?;
    let made = DirBuilder::new().mode(0o700).create(out);
    made.map_err(|error| anyhow!("{} cannot be made: {error}", out.display()))?;
    for (name, text) in [
        ("ca.crt", authority),
        ("tls.crt", certificate),
        ("tls.key", key),
        ("sampler-token", draw_token()? + "\n"),
        ("token", draw_token()?), // Ranks take it as it is.
    ] {
        write(&out.join(name), &text)?;
    }
    print_fields(&[
        ("secrets", out.display().to_string()),
        ("certificate", format!("for {}, {days} days", names.join(", "))),
    ])
}

/// In PEM.
struct Signed {
    authority: String,
    certificate: String,
    key: String,
}

/// A certificate for servers of these names. The authority's own key is kept nowhere: it signs nothing else.
fn sign(names: &[String], days: u64) -> anyhow::Result<Signed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let now = date_time_ymd(1970, 1, 1) + now;
    let params = |names: &[String], called: &str| -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::new(names)
            .map_err(|error| anyhow!("no certificate can have the names {}: {error}", names.join(", ")))?;
        params.distinguished_name.push(DnType::CommonName, called);
        // Clocks of hosts differ.
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
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| anyhow!("{} cannot be written: {error}", path.display()))
}
