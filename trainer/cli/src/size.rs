//! Sizes as people type them: `2GiB`, `512MiB`, `1000000`.

/// Bytes of a size; a bare number counts bytes, GB and GiB differ as they should.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1u64,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        other => return Err(format!("unknown unit {other}: write 2GiB, 512MiB or a number of bytes")),
    };
    let n: u64 = digits.trim().parse().map_err(|_| "write 2GiB, 512MiB or a number of bytes".to_owned())?;
    n.checked_mul(unit).ok_or_else(|| "that is more than any machine has".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_understood() {
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        assert_eq!(parse("1000000"), Ok(1_000_000));
        assert_eq!(parse("5MB"), Ok(5_000_000));
        for wrong in ["", "GiB", "2Gib", "-1", "1.5GiB", "99999999999TiB"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
