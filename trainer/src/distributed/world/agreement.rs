//! Values that must be equal on all ranks, and the error message if they differ.

/// Names and values of a rank that must be equal on all ranks.
pub(super) type Agreed = Vec<(String, String)>;

/// Sentence about the first difference between two ranks.
pub(super) fn disagreement((name, theirs): (&str, &Agreed), (own_name, own): (&str, &Agreed)) -> Option<String> {
    for place in 0..own.len().max(theirs.len()) {
        let (own, theirs) = (own.get(place), theirs.get(place));
        if own == theirs {
            continue;
        }
        let what = own.or(theirs).map_or("", |(what, _)| what);
        let text = |fact: Option<&(String, String)>| match fact {
            Some((same, value)) if same == what => value.clone(),
            _ => "nothing".to_owned(),
        };
        let (theirs, own, line) = first_difference(&text(theirs), &text(own));
        return Some(format!(
            "{name} and {own_name} differ in the {what}{line}: {theirs:?} and {own:?}; all ranks need the same"
        ));
    }
    None
}

/// Parts of two texts to show: all of short ones, else the first lines that differ, and their place.
fn first_difference(one: &str, other: &str) -> (String, String, String) {
    const SHORT: usize = 120;
    let cut = |text: &str| match text.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    if !one.contains('\n') && !other.contains('\n') {
        return (cut(one), cut(other), String::new());
    }
    let (mut one, mut other) = (one.lines(), other.lines());
    let mut number = 1;
    loop {
        match (one.next(), other.next()) {
            (Some(a), Some(b)) if a == b => number += 1,
            (a, b) => {
                let show = |line: Option<&str>| line.map_or_else(|| "(end)".to_owned(), |line| cut(line.trim()));
                return (show(a), show(b), format!(", line {number}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_with_both_values() {
        let agreed = |list: &[(&str, &str)]| -> Agreed {
            list.iter().map(|(what, value)| ((*what).to_owned(), (*value).to_owned())).collect()
        };
        let own = agreed(&[("graph", "aa"), ("run file", "epochs = 1\nlr = 2\n")]);
        let against = |list: &[(&str, &str)]| {
            disagreement(("rank 1 on host-b", &agreed(list)), ("rank 0 on host-a", &own)).unwrap_or_default()
        };
        assert_eq!(against(&[("graph", "aa"), ("run file", "epochs = 1\nlr = 2\n")]), "");
        assert_eq!(
            against(&[("graph", "bb"), ("run file", "epochs = 1\nlr = 2\n")]),
            "rank 1 on host-b and rank 0 on host-a differ in the graph: \"bb\" and \"aa\"; all ranks need the same"
        );
        let line = against(&[("graph", "aa"), ("run file", "epochs = 1\nlr = 3\n")]);
        assert!(line.contains("differ in the run file, line 2: \"lr = 3\" and \"lr = 2\""), "{line}");
        let end = against(&[("graph", "aa"), ("run file", "epochs = 1\n")]);
        assert!(end.contains("line 2: \"(end)\" and \"lr = 2\""), "{end}");
        assert!(against(&[("graph", "aa")]).contains("differ in the run file"));
    }
}
