//! Held-out pairs from a file, in the form in which `kith predict --what links` writes them.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use kith_run::config::{LinkRanking, LinksConfig};
use sha2::{Digest, Sha256};

use crate::{data::opened::Opened, error::TrainError};

/// Pairs of validation and test that a file gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GivenPairs {
    /// Edges and other pairs of validation, then of test; the smaller position first.
    parts: [Vec<(u32, u32)>; 4],
    /// Line of each pair.
    lines: HashMap<(u32, u32), usize>,
    path: PathBuf,
    /// SHA-256 of the file.
    pub(crate) digest: String,
}

impl GivenPairs {
    /// Pairs of `links.pairs`; `None` if the key is not set.
    pub(crate) fn of(config: &LinksConfig, opened: &Opened) -> Result<Option<GivenPairs>, TrainError> {
        let Some(path) = config.pairs.as_deref().map(Path::new) else { return Ok(None) };
        let text = fs::read_to_string(path).map_err(TrainError::io(path))?;
        let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(expected) = config.pairs_digest.as_ref().filter(|expected| **expected != digest) {
            let problem = format!(
                "expected the file with SHA-256 {expected} (links.pairs_digest), found {digest}: restore the file, or start a new run \
                 without links.pairs_digest"
            );
            return Err(TrainError::Pairs { path: path.to_owned(), problem });
        }
        let mut given = GivenPairs { digest, path: path.to_owned(), ..GivenPairs::default() };
        for PairLine { line, ends: (a, b), rest } in read_pairs(path, &text, opened)? {
            let wrong = |problem: String| TrainError::pairs_line(path, line, &problem);
            let [part, is_edge, ..] = &rest[..] else {
                return Err(wrong(format!(
                    "expected source,destination,part,is_edge, found {} columns",
                    rest.len() + 2
                )));
            };
            let place = match (&**part, &**is_edge) {
                ("valid", "1") => 0,
                ("valid", "0") => 1,
                ("test", "1") => 2,
                ("test", "0") => 3,
                _ => {
                    return Err(wrong(format!(
                        "expected valid or test, and 1 or 0, found {part} and {is_edge}: training edges are not listed"
                    )));
                }
            };
            let pair = (a.min(b), a.max(b));
            if a == b {
                return Err(wrong(format!(
                    "expected two nodes, found {} twice: remove the line",
                    opened.id_of(a.into())?
                )));
            }
            if let Some(first) = given.lines.insert(pair, line) {
                let problem = "in this or the other direction: remove one of the two";
                return Err(wrong(format!("the same pair as in line {first}, {problem}")));
            }
            given.parts[place].push(pair);
        }
        for (part, place) in [("valid", 0), ("test", 2)] {
            let missing = match (given.parts[place].is_empty(), given.parts[place + 1].is_empty()) {
                (true, _) => "is_edge 1: add its edges",
                (_, true) if config.ranking == LinkRanking::Sampled => {
                    "is_edge 0: add pairs without an edge, or set links.ranking = \"exact\""
                }
                _ => continue,
            };
            let problem = format!("no line of {part} with {missing}");
            return Err(TrainError::Pairs { path: path.to_owned(), problem });
        }
        Ok(Some(given))
    }

    /// Checks that no other pair is one of a graph's edges, which ascend.
    pub(crate) fn check(&self, edges: &[(u32, u32)]) -> Result<(), TrainError> {
        let mut others = self.parts[1].iter().chain(&self.parts[3]);
        match others.find(|pair| edges.binary_search(pair).is_ok()) {
            None => Ok(()),
            Some(pair) => {
                let problem = "is_edge is 0, and the graph has this edge: set it to 1, or remove the line";
                Err(TrainError::pairs_line(&self.path, self.lines[pair], problem))
            }
        }
    }

    /// Edges and other pairs of validation, then of test.
    pub(crate) fn parts(&self) -> [Vec<(u32, u32)>; 4] {
        self.parts.clone()
    }

    /// Edges of both.
    pub(crate) fn held_out(&self) -> impl Iterator<Item = (u32, u32)> {
        self.parts[0].iter().chain(&self.parts[2]).copied()
    }
}

/// A line with two nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairLine {
    /// Its number, from 1.
    pub(crate) line: usize,
    /// The nodes.
    pub(crate) ends: (u32, u32),
    /// Further fields.
    pub(crate) rest: Vec<String>,
}

/// Reads pairs of nodes by the user's ids. The first line may be a header, which starts with `source`.
pub(crate) fn read_pairs(path: &Path, text: &str, opened: &Opened) -> Result<Vec<PairLine>, TrainError> {
    opened.check_for_links()?;
    let lines = (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty());
    let lines: Vec<(usize, Vec<String>)> = lines.map(|(line, text)| (line, fields_of(text))).collect();
    if let Some((line, _)) = lines.iter().find(|(_, fields)| fields.len() < 2) {
        return Err(TrainError::pairs_line(path, *line, "expected source,destination, found 1 column"));
    }
    let nodes = opened.find_nodes(lines.iter().flat_map(|(_, fields)| fields[..2].iter().map(String::as_str)))?;
    let mut pairs = Vec::new();
    for (line, mut fields) in lines.iter().cloned() {
        let rest = fields.split_off(2);
        match (nodes.get(&*fields[0]), nodes.get(&*fields[1])) {
            (Some(source), Some(destination)) => {
                pairs.push(PairLine { line, ends: (*source as u32, *destination as u32), rest })
            }
            (None, None) if line == 1 && fields[0] == "source" => {}
            (found, _) => {
                let id = &fields[usize::from(found.is_some())];
                return Err(TrainError::pairs_line(
                    path,
                    line,
                    &format!("the graph has no node {id}: use the ids of its import, or remove the line"),
                ));
            }
        }
    }
    Ok(pairs)
}

/// Fields of a line of csv; a field in quotes may hold commas, and quotes written twice.
fn fields_of(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let (mut is_quoted, mut was_quoted) = (false, false);
    let finish = |field: &mut String, was_quoted: bool| {
        if !was_quoted {
            *field = field.trim().to_owned();
        }
    };
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is a first one");
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' if is_quoted || field.trim().is_empty() => {
                field.truncate(if is_quoted { field.len() } else { 0 });
                (is_quoted, was_quoted) = (!is_quoted, true);
            }
            ',' if !is_quoted => {
                finish(field, was_quoted);
                fields.push(String::new());
                was_quoted = false;
            }
            ' ' if was_quoted && !is_quoted => {}
            other => field.push(other),
        }
    }
    finish(fields.last_mut().expect("there is a first one"), was_quoted);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_csv() {
        assert_eq!(fields_of(r#" a b ,"c, ""d""",,1"#), ["a b", r#"c, "d""#, "", "1"]);
        assert_eq!(fields_of(r#" " x" , a"b"#), [" x", "a\"b"]);
        assert_eq!(fields_of(""), [""]);
    }
}
