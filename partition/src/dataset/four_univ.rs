//! Four-Univ (WebKB): the pages of four universities and of some others, as five graphs of hyperlinks.
//!
//! Members are `webkb/CLASS/UNIVERSITY/FILE`, where FILE is the URL of the page with `^` for `/`. Nodes are ordered by
//! university, class and file name (bytes), in the orders below. A page that is not valid cp949 stays as a node with
//! neither text nor links: the published graph was made that way.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use encoding_rs::EUC_KR;
use flate2::read::MultiGzDecoder;
use rayon::prelude::*;

use crate::{
    PartitionError, Result,
    raw::{
        RawGraph, RawLabels, RawRows, RawSplit, SplitPart,
        html::{self, Page},
        tfidf,
    },
};

/// Names of the graphs, in order: the four universities, then all others together.
pub const UNIVERSITIES: [&str; 5] = ["cornell", "texas", "washington", "wisconsin", "misc"];

/// Names of the classes, in order.
pub const CLASSES: [&str; 6] = ["student", "faculty", "staff", "department", "course", "project"];

/// Reads the dataset from `webkb.tar.gz`, `webkb-data.gtar.gz` or the unpacked folder `webkb` in `dir`, whichever is
/// there first. No more than `limit_bytes` are unpacked.
pub fn read(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let archive = ARCHIVES.iter().map(|name| dir.join(name)).find(|path| path.is_file());
    let folder = dir.join(FOLDER);
    match archive {
        Some(path) => assemble(&path, read_archive(&path, limit_bytes)?),
        None if folder.is_dir() => assemble(&folder, read_folder(&folder, limit_bytes)?),
        None => {
            let problem = format!("holds none of {}, {} and {FOLDER}/", ARCHIVES[0], ARCHIVES[1]);
            Err(PartitionError::input(dir, "folder", problem))
        }
    }
}

const ARCHIVES: [&str; 2] = ["webkb.tar.gz", "webkb-data.gtar.gz"];
const FOLDER: &str = "webkb";
/// The class that is no node.
const OTHER: &str = "other";
const MAX_TERMS: u32 = 2000;
const PUBLISHED_NODES: usize = 4518;
/// The published archive has 8282 files.
const MAX_FILES: usize = 100_000;

/// Files by university, class and name: their order is the order of the nodes.
#[derive(Default)]
struct Files {
    pages: BTreeMap<(usize, usize, String), Vec<u8>>,
    /// Files that lie elsewhere in the archive.
    n_elsewhere: u64,
}

/// Meaning of a member's path.
enum MemberPlace {
    /// A page: university, class, file name.
    Page(usize, usize, String),
    /// A page of the class that is no node.
    Other,
    /// No page at all.
    Elsewhere,
}

/// An archive, for its errors.
struct Archive<'a> {
    path: &'a Path,
    limit_bytes: u64,
}

impl Archive<'_> {
    fn problem(&self, member: &str, problem: impl Into<String>) -> PartitionError {
        PartitionError::input(self.path, format!("member {}", one_line(member)), problem)
    }

    fn broken(&self, member: &str, error: &io::Error) -> PartitionError {
        match error.kind() {
            io::ErrorKind::FileTooLarge => self.problem(member, too_large(self.limit_bytes)),
            _ => self.problem(member, format!("cannot be unpacked: {}", one_line(&error.to_string()))),
        }
    }
}

fn read_archive(path: &Path, limit_bytes: u64) -> Result<Files> {
    let archive = Archive { path, limit_bytes };
    let file = File::open(path).map_err(PartitionError::io(path))?;
    let unpacked = Limited { inner: MultiGzDecoder::new(BufReader::new(file)), left: limit_bytes };
    let mut members = tar::Archive::new(unpacked);
    let mut files = Files::default();
    let mut n_members = 0;
    for member in members.entries().map_err(PartitionError::io(path))? {
        let number = n_members.to_string();
        let member = member.map_err(|error| archive.broken(&number, &error))?;
        let name = String::from_utf8(member.path_bytes().into_owned());
        let name = name.map_err(|_| archive.problem(&number, "its name is not utf-8"))?;
        if n_members == MAX_FILES {
            return Err(
                archive.problem(&name, format!("more than {MAX_FILES} members; the published archive has 8325"))
            );
        }
        files.add(&archive, &name, member)?;
        n_members += 1;
    }
    // Also reads the bytes after the last member: the checksum is at the very end.
    let after = io::copy(&mut members.into_inner(), &mut io::sink());
    after.map_err(|error| archive.broken(&n_members.to_string(), &error))?;
    Ok(files)
}

impl Files {
    fn add(&mut self, archive: &Archive<'_>, name: &str, mut member: tar::Entry<'_, impl Read>) -> Result<()> {
        let kind = member.header().entry_type();
        // Archives older than the type for folders tell them by the last character.
        if kind.is_dir() || kind.is_pax_global_extensions() || name.ends_with('/') && member.size() == 0 {
            return Ok(());
        }
        if !kind.is_file() && !kind.is_contiguous() {
            let kind = char::from(kind.as_byte());
            return Err(archive.problem(name, format!("neither a file nor a folder (tar type {kind:?})")));
        }
        let key = match place_of(name).map_err(|problem| archive.problem(name, problem))? {
            MemberPlace::Page(university, class, file) => (university, class, file),
            MemberPlace::Other => return Ok(()),
            MemberPlace::Elsewhere => {
                self.n_elsewhere += 1;
                return Ok(());
            }
        };
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).map_err(|error| archive.broken(name, &error))?;
        if bytes.len() as u64 != member.size() {
            let problem = format!("ends after {} of its {} bytes", bytes.len(), member.size());
            return Err(archive.problem(name, problem));
        }
        if self.pages.insert(key, bytes).is_some() {
            return Err(archive.problem(name, "occurs twice"));
        }
        Ok(())
    }
}

/// Fails, instead of ending, where there is more to read than allowed.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(n as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(n)
    }
}

fn too_large(limit_bytes: u64) -> String {
    format!("more than {limit_bytes} bytes when unpacked; raise the limit if you trust the source")
}

/// Text from a file, fit for one line of an error.
fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if line.len() < text.len() { line + "…" } else { line }
}

fn place_of(name: &str) -> Result<MemberPlace, String> {
    if name.starts_with('/') || name.split('/').any(|part| part == "..") {
        return Err("a name like this has no place in the archive".to_owned());
    }
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let [FOLDER, class_name, university_name, file] = parts[..] else { return Ok(MemberPlace::Elsewhere) };
    let university = UNIVERSITIES.iter().position(|known| *known == university_name);
    let class = CLASSES.iter().position(|known| *known == class_name);
    match (university, class) {
        (None, _) => Err(format!("{university_name:?} is none of {}", UNIVERSITIES.join(", "))),
        (Some(university), Some(class)) => Ok(MemberPlace::Page(university, class, file.to_owned())),
        (Some(_), None) if class_name == OTHER => Ok(MemberPlace::Other),
        (Some(_), None) => Err(format!("{class_name:?} is none of {}, {OTHER}", CLASSES.join(", "))),
    }
}

fn read_folder(folder: &Path, limit_bytes: u64) -> Result<Files> {
    let mut files = Files::default();
    let mut left = limit_bytes;
    for (class, class_name) in CLASSES.iter().enumerate() {
        for (university, university_name) in UNIVERSITIES.iter().enumerate() {
            let pages = folder.join(class_name).join(university_name);
            if !pages.is_dir() {
                continue;
            }
            for name in list_files(&pages)? {
                let path = pages.join(&name);
                let mut bytes = Vec::new();
                let file = File::open(&path).map_err(PartitionError::io(&path))?;
                file.take(left.saturating_add(1)).read_to_end(&mut bytes).map_err(PartitionError::io(&path))?;
                left = left
                    .checked_sub(bytes.len() as u64)
                    .ok_or_else(|| PartitionError::input(&path, "end", too_large(limit_bytes)))?;
                files.pages.insert((university, class, name), bytes);
                if files.pages.len() > MAX_FILES {
                    return Err(PartitionError::input(folder, "pages", format!("more than {MAX_FILES} files")));
                }
            }
        }
    }
    Ok(files)
}

/// The names in a folder of nothing but files, ascending.
fn list_files(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(PartitionError::io(folder))? {
        let entry = entry.map_err(PartitionError::io(folder))?;
        let path = entry.path();
        if !entry.file_type().map_err(PartitionError::io(&path))?.is_file() {
            return Err(PartitionError::input(folder, format!("entry {:?}", entry.file_name()), "not a plain file"));
        }
        let name = entry.file_name().into_string();
        names.push(name.map_err(|name| PartitionError::input(folder, format!("entry {name:?}"), "not utf-8"))?);
    }
    names.sort_unstable();
    Ok(names)
}

fn assemble(source: &Path, files: Files) -> Result<RawGraph> {
    let (keys, contents): (Vec<_>, Vec<_>) = files.pages.into_iter().unzip();
    for (university, name) in UNIVERSITIES.iter().enumerate() {
        if !keys.iter().any(|key| key.0 == university) {
            let place = format!("university {name}");
            return Err(PartitionError::input(source, place, format!("no page {FOLDER}/CLASS/{name}/FILE")));
        }
    }
    let pages: Vec<Option<Page>> = contents.into_par_iter().map(|bytes| scan_page(&bytes)).collect();
    let n_undecoded = pages.iter().filter(|page| page.is_none()).count();
    let (texts, hrefs): (Vec<String>, Vec<Vec<String>>) =
        pages.into_iter().map(|page| page.map_or_else(Default::default, |page| (page.text, page.hrefs))).unzip();
    let rows = tfidf::tfidf(&texts, MAX_TERMS).rows;
    if matches!(rows, RawRows::Sparse { dim: 0, .. }) {
        return Err(PartitionError::input(source, "pages", "not one word in any of them"));
    }
    let universities: Vec<usize> = keys.iter().map(|key| key.0).collect();
    let parts = universities.iter().map(|university| PARTS[*university]).collect();
    Ok(RawGraph {
        n_nodes: keys.len() as u32, // not above MAX_FILES
        edges: find_edges(&keys, &hrefs),
        rows: Some(rows),
        labels: Some(RawLabels::Classes {
            n_classes: CLASSES.len() as u32,
            classes: keys.iter().map(|key| key.1 as u32).collect(),
        }),
        splits: vec![RawSplit { name: "official".to_owned(), parts }],
        graph_of_node: universities.iter().map(|university| *university as u32).collect(),
        graph_names: UNIVERSITIES.map(str::to_owned).to_vec(),
        ids: Vec::new(),
        notes: notes(n_undecoded, files.n_elsewhere, keys.len()),
    })
}

/// The part of the official split that the pages of each university make.
const PARTS: [SplitPart; 5] = [SplitPart::Valid, SplitPart::Test, SplitPart::Train, SplitPart::Train, SplitPart::Train];

/// Text and links of a page; nothing if it is not valid cp949, which the Encoding Standard calls EUC-KR.
fn scan_page(bytes: &[u8]) -> Option<Page> {
    let text = EUC_KR.decode_without_bom_handling_and_without_replacement(bytes)?;
    let mut page = html::scan(&text);
    page.hrefs.retain(|href| href.contains("http") || href.contains("ftp"));
    Some(page)
}

/// An edge for every absolute link to a page of the same university. Where a file name occurs in two classes, links from
/// either page and to either page are the later one's, as in the published graph.
fn find_edges(keys: &[(usize, usize, String)], hrefs: &[Vec<String>]) -> Vec<[u32; 2]> {
    let node_of: HashMap<(usize, &str), u32> =
        (0..).zip(keys).map(|(node, (university, _, file))| ((*university, file.as_str()), node)).collect();
    let mut edges = Vec::new();
    for ((university, _, file), hrefs) in keys.iter().zip(hrefs) {
        let node = node_of[&(*university, file.as_str())];
        for href in hrefs {
            let file = href.replace('/', "^");
            let destination = node_of.get(&(*university, file.trim_matches(html::is_space)));
            edges.extend(destination.map(|destination| [node, *destination]));
        }
    }
    edges
}

fn notes(n_undecoded: usize, n_elsewhere: u64, n_nodes: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if n_undecoded > 0 {
        notes.push(format!("pages that are not valid cp949, kept as nodes without text and links: {n_undecoded}"));
    }
    if n_elsewhere > 0 {
        notes.push(format!("files outside {FOLDER}/CLASS/UNIVERSITY/, left out: {n_elsewhere}"));
    }
    if n_nodes != PUBLISHED_NODES {
        notes.push(format!("pages: {n_nodes}, where the published archive has {PUBLISHED_NODES}"));
    }
    notes
}

#[cfg(test)]
#[allow(clippy::print_stderr)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};
    use tempfile::TempDir;

    use super::*;
    use crate::{dataset::real_files, raw::html::tests::garbled};

    #[test]
    fn the_published_archive() {
        let Some(dir) = real_files("four-univ") else { return };
        let graph = read(&dir, 1 << 28).expect("the published archive");
        let university_of = |node: u32| graph.graph_of_node[node as usize] as usize;
        let mut n_edges = [0; 5];
        for [source, destination] in &graph.edges {
            assert_eq!(university_of(*source), university_of(*destination));
            n_edges[university_of(*source)] += 1;
        }
        assert_eq!(n_edges, [273, 186, 305, 492, 2170]);
        assert_eq!(graph.edges.iter().filter(|[source, destination]| source == destination).count(), 164);
        let n_nodes: Vec<usize> = (0..5).map(|u| graph.graph_of_node.iter().filter(|of| **of == u).count()).collect();
        assert_eq!((graph.n_nodes, n_nodes), (4518, vec![248, 256, 266, 321, 3427]));
        let Some(RawLabels::Classes { n_classes: 6, classes }) = &graph.labels else { panic!("six classes") };
        let n_labels: Vec<usize> = (0..6).map(|c| classes.iter().filter(|class| **class == c).count()).collect();
        assert_eq!(n_labels, [1641, 1124, 137, 182, 930, 504]);
        assert_eq!(graph.graph_names, UNIVERSITIES);
        let n_part = |part| graph.splits[0].parts.iter().filter(|p| **p == part).count();
        assert_eq!([SplitPart::Train, SplitPart::Valid, SplitPart::Test].map(n_part), [4014, 248, 256]);
        let Some(RawRows::Sparse { dim, indptr, values, .. }) = &graph.rows else { panic!("rows are sparse") };
        assert_eq!((*dim, indptr.len()), (2000, 4519));
        assert!(values.iter().all(|value| *value > 0.0 && *value < 1.0001));
        assert_eq!(graph.notes, ["pages that are not valid cp949, kept as nodes without text and links: 43"]);
    }

    const PAGES: [(&str, &str); 10] = [
        ("webkb/student/cornell/http:^^c^b", "<p>zebra <a href='http://c/a'>"),
        ("webkb/student/cornell/http:^^c^a", "Date: x\n\n<p>apple <a href=http://c/b><a href=' http://c/b '>"),
        ("webkb/project/cornell/http:^^c^b", "<p>apple <a href=http://c/b><a href=http:^^t^a><a href=/c/a>"),
        ("webkb/staff/texas/http:^^t^a", "<p>apple <a href=http://c/a>"),
        ("webkb/other/texas/http:^^t^b", "<p>unseen"),
        ("webkb/course/washington/ftp:^^w^", "<p>apple <a href=ftp://w/>"),
        ("webkb/faculty/wisconsin/http:^^i^a", "<p>\u{ff}\u{ff}"),
        ("webkb/department/misc/http:^^m^a", ""),
        ("webkb/README", "no page"),
        ("./webkb/course/misc/http:^^m^b", "<title>no</title><p>apple"),
    ];

    fn tar_of(pages: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in pages {
            // Latin-1, so that a page can be bad cp949.
            let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).expect("a Latin-1 text")).collect();
            let mut header = header_of(name);
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            builder.append(&header, &bytes[..]).expect("writing to memory");
        }
        builder.into_inner().expect("writing to memory")
    }

    fn header_of(name: &str) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header
    }

    fn packed(tar: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(tar).expect("writing to memory");
        encoder.finish().expect("writing to memory")
    }

    fn read_bytes(gz: &[u8], limit_bytes: u64) -> Result<RawGraph> {
        let dir = TempDir::new().expect("a temporary folder");
        fs::write(dir.path().join(ARCHIVES[1]), gz).expect("a small file");
        read(dir.path(), limit_bytes)
    }

    fn refused(tar: &[u8]) -> String {
        read_bytes(&packed(tar), 1 << 20).expect_err("a bad archive").to_string()
    }

    #[test]
    fn a_small_archive_and_the_same_unpacked() {
        let graph = read_bytes(&packed(&tar_of(&PAGES)), 1 << 20).expect("a good archive");
        // Nodes: student a, student b, project b (the later of two), texas, washington, wisconsin, course, department.
        assert_eq!(graph.edges, [[0, 2], [0, 2], [2, 0], [2, 2], [4, 4]]);
        assert_eq!(graph.graph_of_node, [0, 0, 0, 1, 2, 3, 4, 4]);
        let classes = vec![0, 0, 5, 2, 4, 1, 3, 4];
        assert_eq!(graph.labels, Some(RawLabels::Classes { n_classes: 6, classes }));
        let rows = RawRows::Sparse {
            dim: 3, // apple; date, from a stored header; zebra
            indptr: vec![0, 2, 3, 4, 5, 6, 6, 6, 7],
            indices: vec![0, 1, 2, 0, 0, 0, 0],
            values: vec![0.48944664, 0.87203324, 1.0, 1.0, 1.0, 1.0, 1.0],
        };
        assert_eq!(graph.rows, Some(rows));
        use SplitPart::{Test, Train, Valid};
        assert_eq!(graph.splits[0].parts, [Valid, Valid, Valid, Test, Train, Train, Train, Train]);
        assert_eq!(graph.notes.len(), 3, "{:?}", graph.notes);

        let dir = TempDir::new().expect("a temporary folder");
        tar::Archive::new(&tar_of(&PAGES)[..]).unpack(dir.path()).expect("our own archive");
        let mut same = read(dir.path(), 1 << 20).expect("the same files");
        assert_eq!(graph.notes[1], "files outside webkb/CLASS/UNIVERSITY/, left out: 1");
        same.notes.insert(1, graph.notes[1].clone());
        assert_eq!(same, graph);
        let error = read(dir.path(), 100).expect_err("too much").to_string();
        assert!(error.contains("more than 100 bytes"), "{error}");
    }

    #[test]
    fn bad_members_are_named() {
        let with = |name| refused(&tar_of(&[&PAGES[..], &[(name, "")]].concat()));
        assert!(
            with("webkb/student/oxford/x").contains("webkb/student/oxford/x: \"oxford\" is none of cornell, texas")
        );
        assert!(with("webkb/alumni/texas/x").contains("\"alumni\" is none of student, faculty"));
        assert!(with("webkb/staff/texas/../x").contains("has no place in the archive"));
        assert!(with("/webkb/staff/texas/x").contains("has no place in the archive"));
        assert!(with(PAGES[0].0).contains("http:^^c^b: occurs twice"));
        assert!(refused(&tar_of(&PAGES[..3])).contains("university texas: no page webkb/CLASS/texas/FILE"));
        let no_words: Vec<_> = PAGES.iter().map(|(name, _)| (*name, "<p>a b")).collect();
        assert!(refused(&tar_of(&no_words)).contains("pages: not one word in any of them"));

        let mut tar = tar_of(&PAGES);
        let mut link = header_of("webkb/staff/texas/x");
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        link.set_cksum();
        tar.splice(0..0, link.as_bytes().iter().copied());
        assert!(refused(&tar).contains("webkb/staff/texas/x: neither a file nor a folder (tar type '2')"));
    }

    #[test]
    fn sizes_are_not_believed() {
        let mut header = header_of("webkb/staff/texas/x");
        header.set_size(1 << 40);
        header.set_cksum();
        let error = refused(header.as_bytes());
        assert!(error.contains("webkb/staff/texas/x: ends after 0 of its 1099511627776 bytes"), "{error}");

        let bomb = "0".repeat(1 << 22);
        let gz = packed(&tar_of(&[&PAGES[..], &[("webkb/staff/texas/x", &bomb)]].concat()));
        assert!(gz.len() < 1 << 16);
        let error = read_bytes(&gz, 1 << 20).expect_err("a bomb").to_string();
        assert!(error.contains("webkb/staff/texas/x: more than 1048576 bytes when unpacked; raise"), "{error}");

        let tar = tar_of(&PAGES);
        let n_bytes = tar.len() as u64;
        assert!(read_bytes(&packed(&tar), n_bytes).is_ok());
        assert!(read_bytes(&packed(&tar), n_bytes - 1).is_err());
    }

    #[test]
    fn garbled_archives_are_refused_or_read() {
        let tar = tar_of(&PAGES);
        let gz = packed(&tar);
        assert!(read_bytes(&gz[..gz.len() - 9], 1 << 20).is_err());
        assert!(read_bytes(&[], 1 << 20).is_err());
        let (mut n_read, mut n_refused) = (0, 0);
        for case in 0..300 {
            for gz in [garbled(&gz, case), packed(&garbled(&tar, case))] {
                match read_bytes(&gz, 1 << 16) {
                    Ok(graph) => {
                        n_read += 1;
                        assert!(graph.edges.iter().flatten().all(|node| *node < graph.n_nodes));
                    }
                    Err(error) => {
                        n_refused += 1;
                        assert!(!error.to_string().contains('\n'), "case {case}: {error}");
                    }
                }
            }
        }
        assert!(n_read > 20 && n_refused > 200, "{n_read} read, {n_refused} refused");
    }

    #[test]
    fn nothing_there() {
        let dir = TempDir::new().expect("a temporary folder");
        let error = read(dir.path(), 1 << 20).expect_err("an empty folder").to_string();
        assert!(error.ends_with("folder: holds none of webkb.tar.gz, webkb-data.gtar.gz and webkb/"), "{error}");
    }
}
