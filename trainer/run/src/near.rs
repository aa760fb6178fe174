//! Suggestions for misspelled names.

/// The known name nearest to what was typed, if any is near.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A name is short. Longer text is not a slip of the hand, and the distance costs its length.
    if typed.len() > 64 {
        return None;
    }
    let typed = typed.to_ascii_lowercase();
    let cost = |name: &str| {
        if name.contains(&typed) { name.len() - typed.len() } else { 2 * strsim::osa_distance(name, &typed) }
    };
    let (cost, near) = known.into_iter().map(|name| (cost(name), name)).min()?;
    (cost <= 2 + typed.len() / 2).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_other_words_are_not() {
        let known = ["cora/gat", "cora/supergat-mx", "cora/supergat-sd", "pubmed/gcn"];
        for (typed, meant) in [
            ("cora/supergat-mxx", Some("cora/supergat-mx")),
            ("Cora/GAT", Some("cora/gat")),
            ("cora/supergat", Some("cora/supergat-mx")),
            ("pubmd/gcn", Some("pubmed/gcn")),
            ("reddit", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
