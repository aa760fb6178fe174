//! The documents as a book: every page has a chapter, every link leads to a page and a heading, every guide begins with its command.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    kith::{finish_within, is_slow_asked_for, root},
    tidy::files,
};

/// Pages that explain instead of guiding, and therefore need no command.
const WITHOUT_COMMAND: &[&str] = &["docs/start/faq.md"];

/// Chapters of the book: title and path from the root.
fn chapters() -> Vec<(String, String)> {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    links(&summary).into_iter().map(|(title, link)| (title, normal(&Path::new("docs").join(link)))).collect()
}

/// Markdown links outside code: text and target.
fn links(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let prose: Vec<&str> = prose(text).collect();
    let prose = prose.join("\n");
    let outside: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let mut rest = outside.as_str();
    while let Some(middle) = rest.find("](") {
        let (before, after) = (&rest[..middle], &rest[middle + 2..]);
        let label = before.rsplit('[').next().unwrap_or_default().replace('\n', " ");
        let Some(end) = after.find(')') else { break };
        found.push((label, after[..end].to_owned()));
        rest = &after[end..];
    }
    found
}

/// Lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Names of a page's headings in links: lower case, dashes for spaces, no punctuation.
fn anchors(text: &str) -> Vec<String> {
    let headings =
        prose(text).filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts.display().to_string()
}

/// Links of a page that lead nowhere.
fn dead_links(path: &str, text: &str, pages: &BTreeMap<String, String>) -> Vec<String> {
    let is_dead = |link: &str| {
        let (place, anchor) = link.split_once('#').unwrap_or((link, ""));
        let folder = Path::new(path).parent().expect("a file is in a folder");
        let target = if place.is_empty() { path.to_owned() } else { normal(&folder.join(place)) };
        match pages.get(&target) {
            Some(page) => !anchor.is_empty() && !anchors(page).iter().any(|name| name == anchor),
            None => !root().join(&target).exists(),
        }
    };
    let ours = links(text).into_iter().map(|(_, link)| link).filter(|link| !link.contains("://"));
    ours.filter(|link| is_dead(link)).map(|link| format!("{path}: {link}")).collect()
}

#[test]
fn every_page_is_a_chapter_under_its_title() {
    let chapters = chapters();
    for (title, path) in &chapters {
        let page =
            fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("docs/SUMMARY.md: {path}: {error}"));
        assert_eq!(
            page.lines().next(),
            Some(format!("# {title}").as_str()),
            "{path}: docs/SUMMARY.md has another title"
        );
    }
    for (path, _) in files(&["md"]) {
        let n_chapters = chapters.iter().filter(|(_, chapter)| *chapter == path).count();
        let is_page = path.starts_with("docs/") && path != "docs/SUMMARY.md" || !path.contains('/');
        assert_eq!(n_chapters, usize::from(is_page), "{path}: docs/SUMMARY.md should name it once, if it is a page");
    }
}

#[test]
fn links_lead_to_pages_and_headings() {
    let pages: BTreeMap<String, String> = files(&["md"]).into_iter().collect();
    let dead: Vec<String> = pages.iter().flat_map(|(path, text)| dead_links(path, text, &pages)).collect();
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn dead_links_are_found() {
    let one = "# One\n\n[a](two.md#a-part) [b](two.md#missing) [c](three.md) [d](#one) [e](#two)\n`[f](no.md)` [g](https://x)\n";
    let two = "# Two\n\n## A `part`!\n\n```sh\n# comment\n```\n[up](../README.md) [back\nhere](one.md) [h](#comment)\n";
    let pages =
        BTreeMap::from([("docs/one.md".to_owned(), one.to_owned()), ("docs/two.md".to_owned(), two.to_owned())]);
    let dead: Vec<String> = pages.iter().flat_map(|(path, text)| dead_links(path, text, &pages)).collect();
    assert_eq!(
        dead,
        ["docs/one.md: two.md#missing", "docs/one.md: three.md", "docs/one.md: #two", "docs/two.md: #comment"]
    );
}

/// The first block of a guide is shell, on its first screen.
#[test]
fn guides_begin_with_their_command() {
    for (path, text) in files(&["md"]) {
        let is_guide = ["start", "use", "grow", "trust"].iter().any(|part| path.starts_with(&format!("docs/{part}/")));
        if is_guide && !WITHOUT_COMMAND.contains(&path.as_str()) {
            let first = text.lines().enumerate().find(|(_, line)| line.starts_with("```"));
            assert!(
                first.is_some_and(|(number, line)| number < 20 && line == "```sh"),
                "{path}: a guide begins with the command that does it"
            );
        }
    }
}

/// `make docs` fails on a dead link in the built pages.
#[test]
fn slow_the_book_is_built() {
    if !is_slow_asked_for() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let mut make = Command::new("make");
    make.args(["-s", "docs"]).current_dir(root()).env("CARGO_TARGET_DIR", temp.path());
    let built = finish_within(&mut make, Duration::from_secs(1200));
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let pages = temp.path().join("book/html");
    let index = fs::read_to_string(pages.join("llms.txt")).unwrap();
    for (title, path) in chapters() {
        let page = Path::new(&path).with_file_name(match Path::new(&path).file_stem().unwrap().to_str().unwrap() {
            "README" => "index.html".to_owned(),
            name => format!("{name}.html"),
        });
        assert!(pages.join(&page).is_file(), "{}", page.display());
        assert!(index.contains(&format!("[{title}]({path}): ")), "{title}:\n{index}");
    }
    let has_search = fs::read_dir(&pages)
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("searchindex"));
    assert!(has_search, "the book can be searched");
}
