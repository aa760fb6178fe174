//! Formatting of numbers.

/// A number in about three digits: `0.0125`, `1.5k`, `2.4M`, `3e-7`.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")] {
        if size >= unit * 0.9995 {
            let unit = if name == "k" { 1e3 } else { unit };
            return trimmed(value / unit, 3) + name;
        }
    }
    if size < 1e-3 { format!("{value:.1e}").replace(".0e", "e") } else { trimmed(value, 3) }
}

/// An integer with commas between thousands.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats with `digits` significant digits, without trailing zeros.
fn trimmed(value: f64, digits: i32) -> String {
    let decimals = (digits - 1 - value.abs().log10().floor() as i32).max(0) as usize;
    without_zeros(format!("{value:.decimals$}"))
}

/// Drops trailing zeros of a decimal fraction.
pub(crate) fn without_zeros(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A length in an SVG, to a tenth of a pixel.
pub(crate) fn px(value: f64) -> String {
    let text = without_zeros(format!("{value:.1}"));
    if text == "-0" { "0".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (12.5, "12.5"),
            (0.012_54, "0.0125"),
            (100.0, "100"),
            (1234.0, "1234"),
            (15_000.0, "15k"),
            (2_400_000.0, "2.4M"),
            (3e-7, "3e-7"),
            (-0.25, "-0.25"),
            (f64::NAN, "not a number"),
        ];
        for (value, shown) in cases {
            assert_eq!(short(value), shown);
        }
        assert_eq!((grouped(999), grouped(1_166_243)), ("999".to_owned(), "1,166,243".to_owned()));
        assert_eq!((px(12.04), px(-0.01), px(3.25)), ("12".to_owned(), "0".to_owned(), "3.2".to_owned()));
    }
}
