//! Rules of every error message in the source: each names the thing it is about and says what to do.

use std::fs;

use crate::{
    kith::root,
    tidy::{files, longest_fixed_part, quoted, stray_phrases},
};

/// Beginnings of code whose string literal is an error message.
const MACROS: [&str; 4] = ["#[error(", "anyhow!(", "bail!(", "ensure!("];

/// Parts of messages that say what would be right.
const EXPECTATIONS: [&str; 3] = ["expected ", "must ", "did you mean"];

/// Verbs that begin a clause of advice, as in `…: give --out`.
const VERBS: &str = "add ask check choose fix give import install leave list make move name partition pull push remove \
    restore run see set start train use wait";

const CAPITAL: &str = "begins with a capital letter";
const PERIOD: &str = "ends with a period";
const PHRASE: &str = "has a phrase that is not the field's";
const NAMELESS: &str = "names no value, option, variable or key";
const ADVICE: &str = "does not say what to do, and docs/trust/failures.md has no row for it";

#[test]
fn every_error_names_its_thing_and_says_what_to_do() {
    let guide = fs::read_to_string(root().join("docs/trust/failures.md")).unwrap();
    let (mut found, mut n_messages) = (Vec::new(), 0);
    for (path, text) in files(&["rs"]) {
        if path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") {
            continue;
        }
        for message in messages(&text) {
            n_messages += 1;
            found.extend(problems(&message, &guide).iter().map(|problem| format!("{path}: {message:?} {problem}")));
        }
    }
    assert!(n_messages > 150, "only {n_messages} messages were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Error messages in the code before the tests of a file, except those that only forward another error.
fn messages(source: &str) -> Vec<String> {
    let code = source.split("\nmod tests {").next().unwrap_or_default();
    let literals = MACROS.iter().flat_map(|name| {
        code.match_indices(name).filter_map(move |(place, _)| {
            let rest = code[place + name.len()..].trim_start();
            match *name {
                // The condition comes first.
                "ensure!(" => {
                    let statement = rest.split(";\n").next()?;
                    statement.match_indices(',').find_map(|(comma, _)| quoted(statement[comma + 1..].trim_start()))
                }
                _ => quoted(rest),
            }
        })
    });
    literals.filter(|message| has_words(message)).collect()
}

/// True if a message has words of its own, besides placeholders and options: `--out {path}: {error}` has none.
fn has_words(message: &str) -> bool {
    let fixed: String = message.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest)).collect();
    fixed.split_whitespace().any(|word| word.starts_with(char::is_alphabetic))
}

/// Rules that a message breaks.
fn problems(message: &str, guide: &str) -> Vec<&'static str> {
    let words: Vec<&str> = message.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let is_upper_case = |word: &str| word.len() > 1 && word == word.to_uppercase();
    let begins_well = message.starts_with(|c: char| c.is_lowercase() || c.is_ascii_digit() || "{`\"-".contains(c));
    let has_name = message.contains(['{', '`'])
        || message.contains("--")
        || words.iter().any(|word| word.contains('_') && is_upper_case(word));
    let fixed = longest_fixed_part(message);
    let rules = [
        (begins_well || is_upper_case(words[0]), CAPITAL),
        (!message.ends_with('.'), PERIOD),
        (stray_phrases(message).next().is_none(), PHRASE),
        (has_name, NAMELESS),
        (has_advice(message) || fixed.len() > 4 && guide.contains(&fixed), ADVICE),
    ];
    rules.into_iter().filter(|(is_kept, _)| !is_kept).map(|(_, problem)| problem).collect()
}

/// True if a message says what is expected, or has a clause that begins with a verb of advice.
fn has_advice(message: &str) -> bool {
    let is_advice = |clause: &str| {
        let mut words = clause.split_whitespace().skip_while(|word| ["and", "or", "so", "then"].contains(word));
        words.next().is_some_and(|word| VERBS.split(' ').any(|verb| verb == word))
    };
    EXPECTATIONS.iter().any(|part| message.contains(part)) || message.split([':', ';', ',']).any(is_advice)
}

#[test]
fn each_rule_finds_a_bad_message() {
    let guide = "| `rank <n> was lost: <why>` | start it again |";
    // Halves, so that no rule about the tree's own words finds it here.
    let phrase = ["{path}: expected a feature", "row"].join(" ");
    for (planted, problem) in [
        ("Cannot read {path}: check it", CAPITAL),
        ("{path}: cannot be read: check it.", PERIOD),
        (phrase.as_str(), PHRASE),
        ("the graph is empty: give another", NAMELESS),
        ("{path}: its runs cannot be read", ADVICE),
    ] {
        assert_eq!(problems(planted, guide), [problem], "{planted}");
    }
    for fine in [
        "rank {rank} was lost: {why}",
        "TLS is off: set KITH_TLS",
        "`model.heads` must be 1 or more",
        "--out is a file: move it, or choose another place",
    ] {
        assert_eq!(problems(fine, guide), Vec::<&str>::new(), "{fine}");
    }
}

#[test]
fn messages_are_found_in_every_form() {
    let source = r#"
#[error("one {0}")]
#[error(
    "two \"{0}\" \
     lines"
)]
#[error(transparent)]
#[error("{path}: {source}")]
fn f() -> anyhow::Result<()> {
    ensure!(a < b, "three");
    bail!(NOTHING);
    Err(anyhow::anyhow!("--device {}: {error}", name))
}
#[cfg(test)]
mod tests {
    bail!("four");
}
"#;
    assert_eq!(messages(source), ["one {0}", "two \"{0}\" lines", "three"]);
}
