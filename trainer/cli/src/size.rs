//! Sizes on the command line: `2GiB`, `512MiB`, `1000000`.

/// Maximum size: 1 PiB, so that sums do not overflow.
const MOST: u64 = 1 << 50;

/// Parses a size in bytes; units are decimal (GB) or binary (GiB).
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
        other => {
            return Err(format!("expected a size such as 2GiB, 512MiB or 1000000 (bytes), found the unit {other}"));
        }
    };
    let digits = digits.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("expected a size such as 2GiB, 512MiB or 1000000 (bytes), found {text:?}"));
    }
    let n_bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n_bytes| *n_bytes <= MOST);
    n_bytes.ok_or_else(|| format!("expected at most 1024TiB, found {text}"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_understood() {
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        assert_eq!(parse("1000000"), Ok(1_000_000));
        assert_eq!(parse("5MB"), Ok(5_000_000));
        assert_eq!(parse("1024TiB"), Ok(1 << 50));
        for wrong in
            ["", "GiB", "2Gib", "-1", "+1", "1.5GiB", "2é", "99999999999TiB", "1025TiB", "18446744073709551616"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
