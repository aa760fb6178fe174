//! Speeds on the command line: `100Gb` (bits per second), `3GB/s` (bytes per second).

/// Bytes per second.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("expected a speed such as 100Gb (bits per second) or 3GB/s (bytes per second), found {text:?}");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let unit = text[number.len()..].trim_end_matches("/s").trim_end_matches("it");
    let per_unit = match unit {
        "Kb" | "kb" => 125.0,
        "Mb" => 125e3,
        "Gb" => 125e6,
        "Tb" => 125e9,
        "KB" | "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let speed = number * per_unit;
    if speed.is_finite() && (1.0..1e15).contains(&speed) { Ok(speed) } else { Err(wrong()) }
}

/// `12.5 GB/s`
pub(crate) fn readable(speed: f64) -> String {
    let (unit, name) = match speed {
        speed if speed >= 1e9 => (1e9, "GB/s"),
        speed if speed >= 1e6 => (1e6, "MB/s"),
        _ => (1e3, "kB/s"),
    };
    format!("{:.3} {name}", speed / unit).replace(".000 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_in_bits_or_bytes() {
        assert_eq!(parse("100Gb"), Ok(12.5e9));
        assert_eq!(parse("1Gbit"), Ok(125e6));
        assert_eq!(parse("100Mbit/s"), Ok(12.5e6));
        assert_eq!((parse("3GB/s"), parse("2.5 GB")), (Ok(3e9), Ok(2.5e9)));
        for wrong in ["", "Gb", "100", "100 G", "-1Gb", "0Gb", "infGb", "1e99GB", "NaNGb"] {
            assert!(parse(wrong).unwrap_err().contains("100Gb"), "{wrong}");
        }
        assert_eq!([12.5e9, 125e6, 2e3].map(readable), ["12.500 GB/s", "125 MB/s", "2 kB/s"]);
    }
}
