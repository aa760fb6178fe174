//! Random tokens.

use std::{fs::File, io::Read};

use anyhow::Context;

/// A new 128-bit secret, as text.
pub(crate) fn draw_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("no token can be drawn")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
