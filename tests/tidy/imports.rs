//! Imports between the files of a package, read from their text.
//!
//! An arrow points from a file to the file that defines an item it names: re-exports (`pub use`) are followed, and are
//! no arrows themselves. Tests are skipped.

use std::collections::{BTreeMap, BTreeSet};

/// A module, by its path within the package.
type Module = Vec<String>;

/// Arrows of a package: for each file, the files that it imports from.
pub(super) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// One file of a package.
struct Source {
    path: String,
    /// Its code without comments, strings and tests.
    code: String,
    /// Paths that it names, from the root of the package.
    named: Vec<Module>,
    /// Its re-exports: by the last part of a path, or whole modules.
    exports: BTreeMap<String, Module>,
    exported_modules: Vec<Module>,
}

/// Arrows of a package with sources in `folder`, given the paths and texts of all files.
pub(super) fn arrows(folder: &str, files: &[(String, String)]) -> Arrows {
    let mut sources: BTreeMap<Module, Source> = BTreeMap::new();
    for (path, text) in files {
        let Some(rest) = path.strip_prefix(folder).and_then(|rest| rest.strip_suffix(".rs")) else { continue };
        let mut module: Module = rest.split('/').map(str::to_owned).collect();
        if module.iter().any(|part| part == "tests") {
            continue;
        }
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let source = Source {
            path: path.clone(),
            code: code_of(text),
            named: Vec::new(),
            exports: BTreeMap::new(),
            exported_modules: Vec::new(),
        };
        sources.insert(module, source);
    }
    let modules: Vec<Module> = sources.keys().cloned().collect();
    for (module, source) in &mut sources {
        let children: Vec<&str> = modules
            .iter()
            .filter(|other| other.len() == module.len() + 1 && other.starts_with(module))
            .map(|other| other[module.len()].as_str())
            .collect();
        read(module, source, &children);
    }
    let mut arrows = Arrows::new();
    for (module, source) in &sources {
        for named in &source.named {
            let home = home_of(&sources, named, 0);
            if home != *module
                && let Some(other) = sources.get(&home)
            {
                arrows.entry(source.path.clone()).or_default().insert(other.path.clone());
            }
        }
    }
    arrows
}

/// Collects the names and re-exports of a file.
fn read(module: &Module, source: &mut Source, children: &[&str]) {
    let code = std::mem::take(&mut source.code);
    let mut others = String::new();
    let mut rest = code.as_str();
    while let Some(place) = find_use(rest) {
        let (before, statement) = rest.split_at(place);
        others.push_str(before);
        let is_export = is_public(before);
        let end = statement.find(';').unwrap_or(statement.len());
        for path in branches(statement[..end].trim_start_matches("use").trim()) {
            let Some(mut path) = absolute(module, &path, children) else { continue };
            if path.last().is_some_and(|part| part == "self") {
                path.pop();
            }
            match path.last().cloned() {
                Some(last) if is_export && last == "*" => {
                    path.pop();
                    source.exported_modules.push(path);
                }
                Some(last) if is_export => drop(source.exports.insert(last, path)),
                _ => source.named.push(path),
            }
        }
        rest = &statement[end..];
    }
    others.push_str(rest);
    for path in paths_in(&others) {
        source.named.extend(absolute(module, &path, children));
    }
    source.code = code;
}

/// Position of the next `use` statement.
fn find_use(code: &str) -> Option<usize> {
    let starts = code.match_indices("use ").map(|(place, _)| place);
    starts.into_iter().find(|place| {
        let before = &code[..*place];
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        line.is_empty() || is_public(before)
    })
}

/// True if the text before a `use` ends with `pub`.
fn is_public(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    line == "pub" || line.starts_with("pub(") && line.ends_with(')')
}

/// Flattens `a::{b, c::{d, e as f}}` to `a::b`, `a::c::d`, `a::c::e`.
fn branches(tree: &str) -> Vec<Module> {
    let tree = tree.trim();
    let Some((stem, inner)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()];
    };
    let stem: Module = stem.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("one at least").push(letter);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| branches(part)).map(|branch| [stem.clone(), branch].concat()).collect()
}

/// Paths in code: names with `::` between them.
fn paths_in(code: &str) -> Vec<Module> {
    let words = code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'));
    words.filter(|word| word.contains("::")).map(|word| word.split("::").map(str::to_owned).collect()).collect()
}

/// A path from the root of the package; `None` for one to another package, or to a local item.
fn absolute(module: &Module, path: &[String], children: &[&str]) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module.clone(), rest.to_vec()].concat()),
        "super" => {
            let n_up = path.iter().take_while(|part| *part == "super").count();
            Some([&module[..module.len().checked_sub(n_up)?], &path[n_up..]].concat())
        }
        child if children.contains(&child) => Some([module.as_slice(), path].concat()),
        _ => None,
    }
}

/// The module that defines the item of a path.
fn home_of(sources: &BTreeMap<Module, Source>, path: &[String], depth: usize) -> Module {
    let n_parts = (0..=path.len()).rev().find(|n| sources.contains_key(&path[..*n])).unwrap_or(0);
    let (module, rest) = path.split_at(n_parts);
    let (Some(source), Some((first, rest))) = (sources.get(module), rest.split_first()) else { return module.to_vec() };
    if depth < 8 {
        if let Some(target) = source.exports.get(first).filter(|target| **target != path[..=n_parts]) {
            return home_of(sources, &[target.as_slice(), rest].concat(), depth + 1);
        }
        for exported in &source.exported_modules {
            if sources.get(exported).is_some_and(|other| defines(&other.code, first)) {
                return home_of(sources, &[exported.as_slice(), std::slice::from_ref(first), rest].concat(), depth + 1);
            }
        }
    }
    module.to_vec()
}

fn defines(code: &str, name: &str) -> bool {
    let kinds = ["struct ", "enum ", "fn ", "trait ", "const ", "static ", "type ", "mod "];
    kinds.iter().any(|kind| {
        code.match_indices(&format!("{kind}{name}"))
            .any(|(place, found)| !code[place + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// A file without comments, strings, paths in visibilities, and tests at its end.
fn code_of(text: &str) -> String {
    let mut code = without_texts(text);
    while let Some(place) = code.find("pub(in ") {
        let end = code[place..].find(')').map_or(code.len(), |end| place + end + 1);
        code.replace_range(place..end, "pub");
    }
    let tests = code.match_indices("#[cfg(test)]\n").map(|(place, _)| place).find(|place| {
        let line = code[*place..].lines().nth(1).unwrap_or_default();
        line.contains("mod ") && line.ends_with('{')
    });
    code.truncate(tests.unwrap_or(code.len()));
    code
}

/// Code without comments, and with empty strings.
fn without_texts(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let at = |place: usize| letters.get(place).copied().unwrap_or('\0');
    let find = |from: usize, end: &[char]| {
        let place = letters[from.min(letters.len())..].windows(end.len()).position(|window| window == end);
        place.map_or(letters.len(), |place| from + place)
    };
    let (mut code, mut place) = (String::new(), 0);
    while place < letters.len() {
        let is_word = place > 0 && (at(place - 1).is_alphanumeric() || at(place - 1) == '_');
        match (at(place), at(place + 1)) {
            ('/', '/') => place = find(place, &['\n']),
            ('/', '*') => place = find(place, &['*', '/']) + 2,
            ('"', _) => {
                place += 1;
                while place < letters.len() && at(place) != '"' {
                    place += if at(place) == '\\' { 2 } else { 1 };
                }
                place += 1;
            }
            ('r', '"' | '#') if !is_word => {
                let n_hashes = letters[place + 1..].iter().take_while(|letter| **letter == '#').count();
                match at(place + 1 + n_hashes) {
                    '"' => {
                        let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', n_hashes)).collect();
                        place = find(place + 2 + n_hashes, &end) + end.len();
                    }
                    _ => {
                        code.push('r');
                        place += 1;
                    }
                }
            }
            ('\'', '\\') => place = find(place + 3, &['\'']) + 1,
            ('\'', _) if at(place + 2) == '\'' => place += 3,
            (letter, _) => {
                code.push(letter);
                place += 1;
            }
        }
    }
    code
}

/// A cycle of imports, if there is one: each file imports from the next, and the last from the first.
pub(super) fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    for start in arrows.keys() {
        let mut way = Vec::new();
        if let Some(circle) = walk(arrows, start, &mut way, &mut done) {
            return Some(circle);
        }
    }
    None
}

fn walk(arrows: &Arrows, at: &str, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
    if let Some(place) = way.iter().position(|file| file == at) {
        return Some(way[place..].to_vec());
    }
    if !done.insert(at.to_owned()) {
        return None;
    }
    way.push(at.to_owned());
    let found = arrows.get(at).into_iter().flatten().find_map(|next| walk(arrows, next, way, done));
    way.pop();
    found
}
