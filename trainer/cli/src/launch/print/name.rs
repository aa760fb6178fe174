//! Names of Kubernetes objects.

/// Maximum length of a name: a pod's name, which is a host name, also has the rank's number.
const MAX_NAME: usize = 40;

/// Parses a name of Kubernetes objects.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_name = text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if is_name {
        return Ok(text.to_owned());
    }
    Err(format!("expected lowercase letters, digits and dashes, a letter first, at most {MAX_NAME} characters"))
}

/// A valid name, derived from the run's.
pub(super) fn name_of(run: &str) -> String {
    let plain: String = run.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain = plain.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let plain = plain[..plain.len().min(MAX_NAME)].trim_end_matches('-');
    if plain.is_empty() { "kith".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts() {
        for (run, expected) in
            [("cora/supergat-mx", "cora-supergat-mx"), ("My run_2", "my-run-2"), ("42", "kith"), ("2nd-é", "nd")]
        {
            assert_eq!(name_of(run), expected);
            assert_eq!(name(expected).as_deref(), Ok(expected));
        }
        assert_eq!(name_of(&"x".repeat(99)).len(), MAX_NAME);
        for wrong in ["", "A", "a-", "-a", "1a", "a.b", "ä", &"x".repeat(41)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
