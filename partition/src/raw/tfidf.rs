//! Features from text: TF-IDF with the defaults of scikit-learn, English stop words, and a limit on the number of
//! terms.
//!
//! A token is a run of two or more word characters of the lower-cased text. Terms are the most frequent tokens over all
//! documents; where the limit cuts between equally frequent tokens, the first in code point order stay. (scikit-learn
//! leaves that choice to an unstable sort.) Columns are the terms in code point order. A value is count * (ln((1 +
//! documents) / (1 + documents with the term)) + 1), and each feature vector is divided by its Euclidean norm.

use std::collections::HashMap;

use rayon::prelude::*;

use super::RawRows;

/// The terms and what each document holds of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TfIdf {
    /// The term of each column, ascending.
    pub terms: Vec<String>,
    /// One sparse row per document; empty for a document without any term.
    pub rows: RawRows,
}

/// The rows of some documents over their `max_terms` most frequent terms, or over all where there are fewer.
pub fn tfidf(documents: &[impl AsRef<str> + Sync], max_terms: u32) -> TfIdf {
    let lowered: Vec<String> = documents.par_iter().map(|text| text.as_ref().to_lowercase()).collect();
    let counts: Vec<HashMap<&str, u64>> = lowered.par_iter().map(|text| count_tokens(text)).collect();
    let terms = choose_terms(&counts, max_terms);
    let columns: HashMap<&str, u32> = (0..).zip(&terms).map(|(column, term)| (*term, column)).collect();
    let counted: Vec<Vec<(u32, u64)>> = counts
        .par_iter()
        .map(|tokens| {
            let mut row: Vec<_> = tokens.iter().filter_map(|(t, n)| Some((*columns.get(t)?, *n))).collect();
            row.sort_unstable();
            row
        })
        .collect();
    let rows = weigh(&counted, terms.len());
    TfIdf { terms: terms.into_iter().map(str::to_owned).collect(), rows }
}

fn count_tokens(text: &str) -> HashMap<&str, u64> {
    let mut counts = HashMap::new();
    for token in text.split(|c| !is_word(c)) {
        // Two characters, not two bytes: a lone `é` is no token.
        if token.chars().nth(1).is_some() && STOP_WORDS.binary_search(&token).is_err() {
            *counts.entry(token).or_default() += 1;
        }
    }
    counts
}

/// A word character as Python's `\w` has it: Rust counts circled and squared letters as alphabetic, Python does not.
fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric() && !matches!(c, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f189}')
}

fn choose_terms<'a>(counts: &[HashMap<&'a str, u64>], max_terms: u32) -> Vec<&'a str> {
    let mut totals: HashMap<&str, u64> = HashMap::new();
    for (token, n) in counts.iter().flatten() {
        *totals.entry(token).or_default() += n;
    }
    let mut ranked: Vec<(&str, u64)> = totals.into_iter().collect();
    ranked.sort_unstable_by(|(a, n_a), (b, n_b)| n_b.cmp(n_a).then(a.cmp(b)));
    ranked.truncate(usize::try_from(max_terms).unwrap_or(usize::MAX));
    let mut terms: Vec<&str> = ranked.into_iter().map(|(term, _)| term).collect();
    terms.sort_unstable();
    terms
}

fn weigh(counted: &[Vec<(u32, u64)>], n_terms: usize) -> RawRows {
    let mut n_documents_with = vec![0u64; n_terms];
    for (column, _) in counted.iter().flatten() {
        n_documents_with[*column as usize] += 1;
    }
    let idf: Vec<f64> =
        n_documents_with.iter().map(|n| ln((1 + counted.len()) as f64 / (1 + n) as f64) + 1.0).collect();
    let mut indptr = vec![0];
    let mut indices = Vec::new();
    let mut values = Vec::new();
    for row in counted {
        let weights: Vec<f64> = row.iter().map(|(column, n)| *n as f64 * idf[*column as usize]).collect();
        let norm = weights.iter().fold(0.0, |sum, weight| sum + weight * weight).sqrt();
        indices.extend(row.iter().map(|(column, _)| *column));
        values.extend(weights.iter().map(|weight| (weight / norm) as f32));
        indptr.push(indices.len() as u64);
    }
    let dim = u32::try_from(n_terms).expect("no more terms than max_terms, a u32");
    RawRows::Sparse { dim, indptr, indices, values }
}

/// Natural logarithm of a number not below 1: ln(m * 2^e) = e * ln 2 + 2 * atanh((m - 1) / (m + 1)). Our own, because a
/// system's math library may give other bits on another machine.
fn ln(x: f64) -> f64 {
    let (mut mantissa, mut exponent) = (x, 0.0);
    while mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0); // |t| < 0.172: 11 terms reach 1e-17
    let series = (0..11).rev().fold(0.0, |sum, k| sum * t * t + 1.0 / f64::from(2 * k + 1));
    exponent * std::f64::consts::LN_2 + 2.0 * t * series
}

/// The English stop words of scikit-learn (the list of the Glasgow Information Retrieval Group), ascending.
#[rustfmt::skip]
const STOP_WORDS: [&str; 318] = [
    "a", "about", "above", "across", "after", "afterwards", "again", "against", "all", "almost", "alone", "along",
    "already", "also", "although", "always", "am", "among", "amongst", "amoungst", "amount", "an", "and", "another",
    "any", "anyhow", "anyone", "anything", "anyway", "anywhere", "are", "around", "as", "at", "back", "be", "became",
    "because", "become", "becomes", "becoming", "been", "before", "beforehand", "behind", "being", "below", "beside",
    "besides", "between", "beyond", "bill", "both", "bottom", "but", "by", "call", "can", "cannot", "cant", "co",
    "con", "could", "couldnt", "cry", "de", "describe", "detail", "do", "done", "down", "due", "during", "each", "eg",
    "eight", "either", "eleven", "else", "elsewhere", "empty", "enough", "etc", "even", "ever", "every", "everyone",
    "everything", "everywhere", "except", "few", "fifteen", "fifty", "fill", "find", "fire", "first", "five", "for",
    "former", "formerly", "forty", "found", "four", "from", "front", "full", "further", "get", "give", "go", "had",
    "has", "hasnt", "have", "he", "hence", "her", "here", "hereafter", "hereby", "herein", "hereupon", "hers",
    "herself", "him", "himself", "his", "how", "however", "hundred", "i", "ie", "if", "in", "inc", "indeed",
    "interest", "into", "is", "it", "its", "itself", "keep", "last", "latter", "latterly", "least", "less", "ltd",
    "made", "many", "may", "me", "meanwhile", "might", "mill", "mine", "more", "moreover", "most", "mostly", "move",
    "much", "must", "my", "myself", "name", "namely", "neither", "never", "nevertheless", "next", "nine", "no",
    "nobody", "none", "noone", "nor", "not", "nothing", "now", "nowhere", "of", "off", "often", "on", "once", "one",
    "only", "onto", "or", "other", "others", "otherwise", "our", "ours", "ourselves", "out", "over", "own", "part",
    "per", "perhaps", "please", "put", "rather", "re", "same", "see", "seem", "seemed", "seeming", "seems", "serious",
    "several", "she", "should", "show", "side", "since", "sincere", "six", "sixty", "so", "some", "somehow",
    "someone", "something", "sometime", "sometimes", "somewhere", "still", "such", "system", "take", "ten", "than",
    "that", "the", "their", "them", "themselves", "then", "thence", "there", "thereafter", "thereby", "therefore",
    "therein", "thereupon", "these", "they", "thick", "thin", "third", "this", "those", "though", "three", "through",
    "throughout", "thru", "thus", "to", "together", "too", "top", "toward", "towards", "twelve", "twenty", "two",
    "un", "under", "until", "up", "upon", "us", "very", "via", "was", "we", "well", "were", "what", "whatever",
    "when", "whence", "whenever", "where", "whereafter", "whereas", "whereby", "wherein", "whereupon", "wherever",
    "whether", "which", "while", "whither", "who", "whoever", "whole", "whom", "whose", "why", "will", "with",
    "within", "without", "would", "yet", "you", "your", "yours", "yourself", "yourselves",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: idf of apple and cherry is ln(4 / 2) + 1 = 1.693147, of banana ln(4 / 3) + 1 = 1.287682.
    #[test]
    fn three_documents() {
        let found = tfidf(&["Apple, apple: BANANA a b", "the banana-cherry", "of é"], 2000);
        assert_eq!(found.terms, ["apple", "banana", "cherry"]);
        let RawRows::Sparse { dim, indptr, indices, values } = found.rows else { panic!("rows are sparse") };
        assert_eq!((dim, indptr, indices), (3, vec![0, 2, 4, 4], vec![0, 1, 1, 2]));
        for (value, expected) in values.iter().zip([0.934702, 0.355432, 0.605349, 0.795961]) {
            assert!((value - expected).abs() < 1e-6, "{values:?}");
        }
    }

    #[test]
    fn the_most_frequent_terms_stay_and_ties_go_by_the_alphabet() {
        let documents = ["zeta zeta beta", "gamma alpha", "alpha beta gamma"];
        let terms = |max_terms| tfidf(&documents, max_terms).terms;
        assert_eq!(terms(2), ["alpha", "beta"]);
        assert_eq!(terms(3), ["alpha", "beta", "gamma"]);
        assert_eq!(tfidf(&["zeta zeta beta", "gamma alpha"], 2).terms, ["alpha", "zeta"]);
        assert_eq!(terms(0), [""; 0]);
    }

    #[test]
    fn tokens_are_words_of_two_characters_and_no_stop_words() {
        let tokens = |text: &str| {
            let mut tokens: Vec<String> = count_tokens(text).into_keys().map(str::to_owned).collect();
            tokens.sort_unstable();
            tokens
        };
        assert_eq!(tokens("x xy_1 é éé don't 학교 ⓐⓑ system systems"), ["don", "systems", "xy_1", "éé", "학교"]);
    }

    #[test]
    fn no_text_gives_no_columns() {
        let none = RawRows::Sparse { dim: 0, indptr: vec![0, 0], indices: vec![], values: vec![] };
        assert_eq!(tfidf(&[" . "], 5), TfIdf { terms: vec![], rows: none });
    }

    #[test]
    fn stop_words_are_ascending() {
        assert!(STOP_WORDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn logarithm_is_that_of_the_system() {
        for x in [1.0, 1.0002, 1.4, 1.5, 2.0, 3.7, 4519.0, 2259.5, 1e9] {
            assert!((ln(x) - f64::ln(x)).abs() <= 4e-16 * f64::ln(x).max(1.0), "{x}");
        }
    }
}
