//! Fetches from a small HTTP server in this process that can fail in every way a real one does.

mod server;

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use kith_partition::{
    dataset::catalog::Archive,
    progress::{Quiet, Unit},
};
use sha2::Digest as _;

use self::server::{After, Reply, Request, Server};
use super::*;

const FILE: &str = "graph.bin";

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 7)) as u8).collect()
}

fn sha256(body: &[u8]) -> Check {
    let hash: String = sha2::Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    Check { sha256: Some(hash.leak()), ..Check::default() }
}

fn downloads(check: Check, unpack: Option<Unpack>) -> Vec<Download> {
    let file = if unpack.is_some() { "data.zip" } else { FILE };
    vec![Download { url: "http://127.0.0.1:9/", file, check, unpack }]
}

fn options(server: &Server) -> FetchOptions {
    FetchOptions {
        mirror: Some(server.address()),
        use_proxy: false,
        connect: Duration::from_secs(5),
        stall: Duration::from_secs(5),
        n_retries: 3,
        backoff: Duration::from_millis(5),
        most_bytes: 4 << 20,
    }
}

/// One fetch into its own folder.
struct Case {
    server: Server,
    folder: tempfile::TempDir,
    options: FetchOptions,
    downloads: Vec<Download>,
}

impl Case {
    fn new(check: Check, handler: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Case {
        let server = Server::start(handler);
        let options = options(&server);
        let folder = tempfile::tempdir().expect("a folder");
        Case { server, folder, options, downloads: downloads(check, None) }
    }

    fn fetch(&self) -> Result<Fetched, FetchError> {
        fetch("toy", &self.downloads, self.folder.path(), &self.options, &Quiet)
    }

    fn error(&self) -> String {
        self.fetch().expect_err("it must not work").to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Every file and folder that is there now.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("it is a folder") {
                let path = entry.expect("it can be listed").path();
                let name = path.strip_prefix(self.folder.path()).expect("it is below");
                names.push(name.to_str().expect("it is text").to_owned());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }

    fn assert_whole(&self, body: &[u8]) {
        assert_eq!(self.names(), [FILE]);
        assert!(fs::read(self.path(FILE)).expect("it is there") == body, "the file has other bytes");
    }
}

#[test]
fn a_file_is_downloaded_whole_and_then_left_alone() {
    let data = body(300_000);
    let known = Check { n_bytes: Some(300_000), ..sha256(&data) };
    let case = Case::new(known, {
        let data = data.clone();
        move |_, request| Reply::file(request, &data, "\"v1\"")
    });
    let done = case.fetch().expect("it is served");
    assert_eq!(done, Fetched { new: vec![FILE], kept: vec![], n_bytes: 300_000 });
    case.assert_whole(&data);
    assert_eq!(case.server.requests()[0].path, format!("/{FILE}"));
    assert_eq!(case.fetch().expect("it is there"), Fetched { new: vec![], kept: vec![FILE], n_bytes: 0 });
    assert_eq!(case.server.requests().len(), 1);
}

#[test]
fn a_file_with_other_content_is_refused_and_kept() {
    let data = body(1000);
    let case = Case::new(sha256(&data), {
        let data = data.clone();
        move |_, request| Reply::file(request, &data, "\"v1\"")
    });
    fs::write(case.path(FILE), "my own").expect("it can be written");
    let error = case.error();
    assert!(error.contains("graph.bin: has the SHA-256") && error.contains("did not write it: move it"), "{error}");
    assert_eq!(fs::read(case.path(FILE)).expect("it is there"), b"my own");
    fs::remove_file(case.path(FILE)).expect("it is there");
    // The same for a file that is called like a part of it.
    fs::write(case.path("graph.bin.part"), "my own").expect("it can be written");
    let error = case.error();
    assert!(error.contains("graph.bin.part: has no graph.bin.part.tag"), "{error}");
    assert_eq!(fs::read(case.path("graph.bin.part")).expect("it is there"), b"my own");
    fs::remove_file(case.path("graph.bin.part")).expect("it is there");
    assert_eq!(case.fetch().expect("it is served").new, [FILE]);
    case.assert_whole(&data);
}

#[test]
fn progress_hears_every_byte_and_the_end() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);
    impl Heard {
        fn hear(&self, text: String) {
            self.0.lock().expect("no panic").push(text);
        }
    }
    impl Progress for Heard {
        fn begin(&self, what: &str, total: Option<u64>, unit: Unit) {
            self.hear(format!("{what} {total:?} {unit:?}"));
        }
        fn advance(&self, n: u64) {
            self.hear(n.to_string());
        }
        fn end(&self) {
            self.hear("end".to_owned());
        }
    }
    let case = Case::new(Check::default(), |_, request| Reply::file(request, &body(70_000), "\"v1\""));
    let heard = Heard::default();
    fetch("toy", &case.downloads, case.folder.path(), &case.options, &heard).expect("it is served");
    let heard = heard.0.into_inner().expect("no panic");
    assert_eq!(heard[0], "toy: graph.bin Some(70000) Bytes");
    assert_eq!(heard[heard.len() - 1], "end");
    let n_bytes: u64 = heard[1..heard.len() - 1].iter().map(|n| n.parse::<u64>().expect("only advances between")).sum();
    assert_eq!(n_bytes, 70_000);
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let data = body(200_000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, request| Reply::file(request, &data, "\"v1\"").cut(if n == 0 { 80_000 } else { usize::MAX })
    });
    let done = case.fetch().expect("the second try works");
    assert_eq!(done.n_bytes, 200_000);
    case.assert_whole(&data);
    let requests = case.server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].header("range"), Some("bytes=80000-"));
    assert_eq!(requests[1].header("if-range"), Some("\"v1\""));
}

#[test]
fn a_later_fetch_goes_on_where_an_earlier_one_gave_up() {
    let data = body(200_000);
    let mut case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, request| Reply::file(request, &data, "\"v1\"").cut(if n == 0 { 150_000 } else { usize::MAX })
    });
    case.options.n_retries = 0;
    let error = case.error();
    assert!(error.contains("the connection was cut; get graph.bin yourself"), "{error}");
    assert_eq!(case.names(), ["graph.bin.part", "graph.bin.part.tag"]);
    assert_eq!(case.fetch().expect("now it works").n_bytes, 50_000);
    case.assert_whole(&data);
}

#[test]
fn without_a_version_or_a_hash_nothing_is_glued() {
    let data = body(100_000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, request| Reply::file(request, &data, "").cut(if n == 0 { 60_000 } else { usize::MAX })
    });
    case.fetch().expect("the second try works");
    case.assert_whole(&data);
    assert_eq!(case.server.requests()[1].header("range"), None);
}

#[test]
fn a_weak_version_is_not_gone_on_with() {
    let data = body(100_000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, request| Reply::file(request, &data, "W/\"v1\"").cut(if n == 0 { 60_000 } else { usize::MAX })
    });
    case.fetch().expect("the second try works");
    case.assert_whole(&data);
    assert_eq!(case.server.requests()[1].header("range"), None);
}

#[test]
fn a_server_that_ignores_ranges_is_read_from_the_start() {
    let data = body(200_000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, _| Reply::whole(&data).with("ETag: \"v1\"").cut(if n == 0 { 80_000 } else { usize::MAX })
    });
    case.fetch().expect("the second try works");
    case.assert_whole(&data);
    assert_eq!(case.server.requests()[1].header("range"), Some("bytes=80000-"));
}

#[test]
fn a_changed_file_is_read_from_the_start() {
    let (old, new) = (body(200_000), vec![7; 200_000]);
    let case = Case::new(Check::default(), {
        let new = new.clone();
        move |n, request| match n {
            0 => Reply::file(request, &old, "\"v1\"").cut(80_000),
            _ => Reply::file(request, &new, "\"v2\""),
        }
    });
    case.fetch().expect("the second try works");
    case.assert_whole(&new);
    assert_eq!(case.server.requests().len(), 2);
}

#[test]
fn a_server_that_would_glue_two_versions_is_not_believed() {
    // It ignores If-Range: the rest it sends is of another version, or of another length, or from elsewhere.
    type Wrong = fn(&[u8]) -> Reply;
    let other_tag: Wrong = |new| Reply::part(&new[80_000..], "bytes 80000-199999/200000").with("ETag: \"v2\"");
    let other_total: Wrong = |new| Reply::part(&new[80_000..], "bytes 80000-199999/200001").with("ETag: \"v1\"");
    let other_start: Wrong = |new| Reply::part(&new[70_000..], "bytes 70000-199999/200000").with("ETag: \"v1\"");
    let no_range: Wrong = |new| Reply::part(&new[80_000..], "").with("ETag: \"v1\"");
    let other_unit: Wrong = |new| Reply::part(&new[80_000..], "rows 80000-199999/200000").with("ETag: \"v1\"");
    let too_short: Wrong = |_| Reply::status(416).with("Content-Range: bytes */70000").with("ETag: \"v1\"");
    for wrong in [other_tag, other_total, other_start, no_range, other_unit, too_short] {
        let (old, new) = (body(200_000), vec![7; 200_000]);
        let case = Case::new(Check::default(), {
            let new = new.clone();
            move |n, request| match n {
                0 => Reply::file(request, &old, "\"v1\"").cut(80_000),
                1 => wrong(&new),
                _ => Reply::file(request, &new, "\"v2\""),
            }
        });
        case.fetch().expect("the third try works");
        case.assert_whole(&new);
        let requests = case.server.requests();
        assert_eq!((requests.len(), requests[2].header("range")), (3, None));
    }
}

#[test]
fn a_wrong_beginning_is_found_by_the_hash_and_downloaded_again() {
    let data = body(100_000);
    let case = Case::new(sha256(&data), {
        let data = data.clone();
        move |_, request| Reply::file(request, &data, "")
    });
    fs::write(case.path("graph.bin.part.tag"), "").expect("it can be written");
    fs::write(case.path("graph.bin.part"), vec![9; 40_000]).expect("it can be written");
    case.fetch().expect("the second time works");
    case.assert_whole(&data);
    assert_eq!(case.server.requests()[0].header("range"), Some("bytes=40000-"));
    assert_eq!(case.server.requests()[1].header("range"), None);
}

#[test]
fn a_part_that_is_whole_already_is_not_downloaded_again() {
    let data = body(5000);
    let case = Case::new(sha256(&data), {
        let data = data.clone();
        move |_, request| Reply::file(request, &data, "\"v1\"")
    });
    fs::write(case.path("graph.bin.part.tag"), "").expect("it can be written");
    fs::write(case.path("graph.bin.part"), &data).expect("it can be written");
    assert_eq!(case.fetch().expect("the server says it is all").n_bytes, 0);
    case.assert_whole(&data);
}

#[test]
fn a_garbled_note_about_a_part_does_no_harm() {
    let data = body(50_000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |_, request| Reply::file(request, &data, "\"v1\"")
    });
    let url = format!("{}/{FILE}", case.server.address());
    for note in
        ["", "\n\n\n", "elsewhere\n\"v1\"\n50000\n", &format!("{url}\n\u{7}\n-1\n"), &format!("{url}\n\"v1\"\n7\n")]
    {
        fs::write(case.path("graph.bin.part"), vec![9; 20_000]).expect("it can be written");
        fs::write(case.path("graph.bin.part.tag"), note).expect("it can be written");
        case.fetch().expect("it is served");
        case.assert_whole(&data);
        fs::remove_file(case.path(FILE)).expect("it is there");
    }
    assert!(case.server.requests().iter().all(|request| request.header("range").is_none()));
}

#[test]
fn a_missing_file_is_said_at_once() {
    let case = Case::new(Check::default(), |_, _| Reply::status(404));
    let (url, dir) = (case.server.address(), case.folder.path().display());
    let expected = format!(
        "{url}/graph.bin: the server answered 404 Not Found; get graph.bin yourself, put it into {dir}, \
         then kith data import toy --from {dir}"
    );
    assert_eq!(case.error(), expected);
    assert_eq!(case.server.requests().len(), 1);
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_server_in_trouble_is_asked_again() {
    let data = body(1000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, request| match n {
            0 => Reply::status(500),
            1 => Reply::status(429),
            _ => Reply::file(request, &data, "\"v1\""),
        }
    });
    case.fetch().expect("the third try works");
    case.assert_whole(&data);

    let case = Case::new(Check::default(), |_, _| Reply::status(503));
    let error = case.error();
    assert!(error.contains("the server answered 503 Service Unavailable (tried 4 times); get graph.bin"), "{error}");
    assert_eq!(case.server.requests().len(), 4);
}

#[test]
fn a_garbled_answer_is_an_error() {
    for answer in ["", "HELLO\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n"] {
        let mut case = Case::new(Check::default(), move |_, _| Reply::raw(answer));
        case.options.n_retries = 1;
        case.error();
        assert_eq!(case.names(), [""; 0], "{answer:?}");
    }
}

#[test]
fn a_stalled_server_is_given_up() {
    let silent: fn() -> Reply = || Reply::raw("").then(After::Stall);
    let stops: fn() -> Reply = || Reply::whole(&body(100_000)).with("ETag: \"v1\"").cut(500).then(After::Stall);
    let trickles: fn() -> Reply = || Reply::whole(&body(100_000)).with("ETag: \"v1\"").cut(500).then(After::Trickle);
    for reply in [silent, stops, trickles] {
        let mut case = Case::new(Check::default(), move |_, _| reply());
        case.options.stall = Duration::from_millis(150);
        case.options.n_retries = 1;
        let start = Instant::now();
        let error = case.error();
        assert!(error.contains("nothing arrived for 150ms (tried 2 times)"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
        assert_eq!(case.server.requests().len(), 2);
    }
}

#[test]
fn a_wrong_hash_leaves_nothing_behind() {
    let blob = Check { git_blob: Some("0000000000000000000000000000000000000000"), ..Check::default() };
    for (check, kind) in [(sha256(b"something else"), "SHA-256"), (blob, "git id")] {
        let case = Case::new(check, |_, request| Reply::file(request, &body(1000), "\"v1\""));
        let error = case.error();
        assert!(error.contains(&format!("the file there has the {kind} ")), "{error}");
        assert_eq!(case.server.requests().len(), 1);
        assert_eq!(case.names(), [""; 0]);
    }
}

#[test]
fn a_server_that_always_sends_too_little_is_given_up() {
    let case = Case::new(Check::default(), |_, _| Reply::whole(&body(1000)).cut(900));
    let error = case.error();
    assert!(error.contains("the connection was cut (tried 4 times)"), "{error}");
    // No length is announced, so only the catalog knows that something is missing.
    let known = Check { n_bytes: Some(1000), ..Check::default() };
    let case = Case::new(known, |_, _| Reply::endless(&body(900)));
    let error = case.error();
    assert!(error.contains("the connection ended after 900 of 1000 bytes (tried 4 times)"), "{error}");
}

#[test]
fn a_file_of_the_wrong_length_is_refused_before_it_is_read() {
    let known = Check { n_bytes: Some(1000), ..Check::default() };
    let case = Case::new(known, |_, request| Reply::file(request, &body(1001), "\"v1\""));
    let error = case.error();
    assert!(error.contains("the file there is 1001 bytes long instead of 1000: it was changed"), "{error}");
    assert_eq!((case.server.requests().len(), case.names().len()), (1, 0));
}

#[test]
fn a_file_without_end_is_refused() {
    let announced: fn() -> Reply = || Reply::whole(&body(2001));
    let hidden: fn() -> Reply = || Reply::endless(&body(2001));
    for reply in [announced, hidden] {
        let mut case = Case::new(Check::default(), move |_, _| reply());
        case.options.most_bytes = 2000;
        let error = case.error();
        assert!(error.contains("the file there is longer than the 2000 bytes expected at most"), "{error}");
        assert_eq!((case.server.requests().len(), case.names().len()), (1, 0));
    }
}

#[test]
fn redirects_are_followed_also_when_going_on() {
    let data = body(200_000);
    let case = Case::new(Check::default(), {
        let data = data.clone();
        move |n, request| match &*request.path {
            "/graph.bin" => Reply::status(302).with("Location: /elsewhere/1"),
            _ => Reply::file(request, &data, "\"v1\"").cut(if n == 1 { 80_000 } else { usize::MAX }),
        }
    });
    case.fetch().expect("the second try works");
    case.assert_whole(&data);
    assert_eq!(case.server.requests()[3].header("range"), Some("bytes=80000-"));

    let case = Case::new(Check::default(), |_, _| Reply::status(301).with("Location: /graph.bin"));
    let error = case.error();
    assert!(error.contains("too many redirects"), "{error}");
}

#[test]
fn a_web_page_is_not_the_file() {
    let case =
        Case::new(Check::default(), |_, _| Reply::whole(b"<html>").with("Content-Type: Text/HTML; charset=utf-8"));
    let error = case.error();
    assert!(error.contains("sent a web page instead of the file"), "{error}");
    assert_eq!((case.server.requests().len(), case.names().len()), (1, 0));
}

#[test]
fn no_server_is_one_sentence_with_the_remedy() {
    let mut case = Case::new(Check::default(), |_, _| Reply::status(200));
    case.options.mirror = Some(Server::nowhere());
    let error = case.error();
    assert!(error.starts_with(&format!("{}/graph.bin: Connection refused", Server::nowhere())), "{error}");
    assert!(error.contains("(tried 4 times); get graph.bin yourself, put it into "), "{error}");
}

#[test]
fn a_safe_address_that_does_not_talk_safely_is_an_error() {
    let mut case = Case::new(Check::default(), |_, _| Reply::status(200));
    case.options.mirror = Some(case.server.address().replace("http:", "https:"));
    case.options.n_retries = 0;
    let error = case.error();
    assert!(error.starts_with("https://127.0.0.1:"), "{error}");
    assert_eq!(case.names(), [""; 0]);
}

#[test]
fn a_mirror_must_be_an_address() {
    let mut case = Case::new(Check::default(), |_, _| Reply::status(200));
    case.options.mirror = Some("files/here".to_owned());
    assert_eq!(case.error(), "mirror \"files/here\" is no address: it must begin with http:// or https://");
    case.options.mirror = Some("http://".to_owned());
    case.error();
}

#[test]
fn two_fetches_into_one_folder_do_not_meet() {
    let case = Case::new(Check::default(), |_, request| Reply::file(request, &body(10), "\"v1\""));
    let other = File::open(case.folder.path()).expect("the folder is there");
    other.lock().expect("nobody else has it");
    assert!(matches!(case.fetch(), Err(FetchError::Busy { .. })));
    drop(other);
    case.fetch().expect("the folder is free");
}

#[test]
fn troubles_of_this_machine_are_named_with_the_file() {
    let full = here(Path::new("a.part"))(io::ErrorKind::StorageFull.into()).to_string();
    assert_eq!(full, "a.part: the disk is full; make room and fetch again: what has arrived is kept");
    let case = Case::new(Check::default(), |_, request| Reply::file(request, &body(10), "\"v1\""));
    fs::write(case.path("graph.bin.part.tag"), "").expect("it can be written");
    fs::create_dir(case.path("graph.bin.part")).expect("a folder where the part should be");
    assert!(case.error().contains("graph.bin.part: "), "{}", case.error());
}

mod archives {
    use std::io::Write as _;

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    static MEMBERS: &[Member] = &[
        Member { inside: "data/raw/edges.csv", file: "raw/edges.csv", check: NOTHING_KNOWN },
        Member { inside: "data/labels.csv", file: "labels.csv", check: NOTHING_KNOWN },
    ];
    const NOTHING_KNOWN: Check = Check { n_bytes: None, sha256: None, git_blob: None };
    const EDGES: &[u8] = b"0,1\n1,2\n";
    const LABELS: &[u8] = b"4\n5\n6\n";
    const GOOD: [(&str, &[u8]); 3] =
        [("data/raw/edges.csv", EDGES), ("data/README", b"!"), ("data/labels.csv", LABELS)];

    fn zip_of(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, content) in members {
            zip.start_file(*name, SimpleFileOptions::default()).expect("a member can be added");
            zip.write_all(content).expect("memory takes it");
        }
        zip.finish().expect("memory takes it").into_inner()
    }

    /// A tar.gz; content that begins with `->` makes a link.
    fn tar_of(members: &[(&str, &[u8])]) -> Vec<u8> {
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (name, content) in members {
            let mut header = tar::Header::new_gnu();
            // Written by hand, as `set_path` refuses the names that are wanted here.
            header.as_gnu_mut().expect("it is one").name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            if let Some(target) = content.strip_prefix(b"->") {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_link_name(std::str::from_utf8(target).expect("text")).expect("it fits");
                header.set_size(0);
                header.set_cksum();
                tar.append(&header, io::empty()).expect("memory takes it");
            } else {
                header.set_size(content.len() as u64);
                header.set_cksum();
                tar.append(&header, *content).expect("memory takes it");
            }
        }
        tar.into_inner().and_then(|gzip| gzip.finish()).expect("memory takes it")
    }

    fn case(archive: Archive, content: Vec<u8>) -> Case {
        let mut case = Case::new(Check::default(), move |_, request| Reply::file(request, &content, "\"v1\""));
        let unpack = Unpack { archive, most_bytes: 1 << 20, members: MEMBERS };
        case.downloads = downloads(Check::default(), Some(unpack));
        case
    }

    #[test]
    fn members_are_taken_out_and_the_archive_is_gone() {
        for (archive, content) in [(Archive::Zip, zip_of(&GOOD)), (Archive::TarGz, tar_of(&GOOD))] {
            let case = case(archive, content);
            let done = case.fetch().expect("it is a good archive");
            assert_eq!(done.new, ["raw/edges.csv", "labels.csv"]);
            assert_eq!(case.names(), ["labels.csv", "raw", "raw/edges.csv"]);
            assert_eq!(fs::read(case.path("raw/edges.csv")).expect("it is there"), EDGES);
            assert_eq!(fs::read(case.path("labels.csv")).expect("it is there"), LABELS);
            assert_eq!(case.fetch().expect("all is there").kept, ["raw/edges.csv", "labels.csv"]);
            assert_eq!(case.server.requests().len(), 1);
            fs::remove_file(case.path("labels.csv")).expect("it is there");
            assert_eq!(case.fetch().expect("one is missing").new, ["labels.csv"]);
        }
    }

    #[test]
    fn an_archive_put_there_by_hand_needs_no_network() {
        let case = case(Archive::Zip, Vec::new());
        fs::write(case.path("data.zip"), zip_of(&GOOD)).expect("it can be written");
        assert_eq!(case.fetch().expect("it is a good archive").n_bytes, 0);
        assert_eq!(case.names(), ["data.zip", "labels.csv", "raw", "raw/edges.csv"]);
        assert_eq!(case.server.requests().len(), 0);

        fs::remove_file(case.path("labels.csv")).expect("it is there");
        fs::write(case.path("data.zip"), "not a zip").expect("it can be written");
        let error = case.error();
        assert!(error.contains("data.zip: is not a whole zip archive: "), "{error}");
        assert!(error.ends_with("; delete this file and fetch again"), "{error}");
        assert_eq!(case.names(), ["data.zip", "raw", "raw/edges.csv"]);
    }

    #[test]
    fn what_a_killed_fetch_left_is_taken_up() {
        let content = zip_of(&GOOD);
        let case = case(Archive::Zip, content.clone());
        fs::write(case.path("data.zip.part"), &content).expect("it can be written");
        let note = format!("{}/data.zip\n\"v1\"\n{}\n", case.server.address(), content.len());
        fs::write(case.path("data.zip.part.tag"), note).expect("it can be written");
        fs::create_dir_all(case.path("data.zip.unpack/raw")).expect("it can be made");
        fs::write(case.path("data.zip.unpack/raw/edges.csv"), "0,").expect("it can be written");
        // Without its marker the folder may be anybody's.
        assert!(case.error().contains("data.zip.unpack: holds files and was not made by this command"));
        assert_eq!(fs::read(case.path("data.zip.unpack/raw/edges.csv")).expect("it is there"), b"0,");
        fs::write(case.path("data.zip.unpack/kith.draft"), "data.zip.unpack").expect("it can be written");
        assert_eq!(case.fetch().expect("it is a good archive").n_bytes, 0);
        assert_eq!(case.names(), ["labels.csv", "raw", "raw/edges.csv"]);
        assert_eq!(fs::read(case.path("raw/edges.csv")).expect("it is there"), EDGES);
    }

    /// Asserts that a bad archive gives an error with `said` and leaves nothing behind.
    fn assert_refused(archive: Archive, content: Vec<u8>, said: &str) {
        let case = case(archive, content);
        let error = case.error();
        assert!(error.contains(said), "{error}");
        assert!(
            error.contains("get data.zip yourself") && error.ends_with("fetch toy again, which unpacks it"),
            "{error}"
        );
        assert_eq!(case.names(), [""; 0]);
        assert!(!case.folder.path().with_file_name("evil").exists());
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in ["../evil", "/evil", "data/../../evil", "..\\evil", "C:\\evil", "data/.."] {
            let members = [GOOD[0], GOOD[2], (name, b"gotcha")];
            assert_refused(Archive::Zip, zip_of(&members), "a member whose name leads outside its folder");
            assert_refused(Archive::TarGz, tar_of(&members), "a member whose name leads outside its folder");
        }
    }

    #[test]
    fn links_are_refused() {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.add_symlink("data/raw/edges.csv", "/etc/passwd", SimpleFileOptions::default()).expect("it can be added");
        zip.start_file("data/labels.csv", SimpleFileOptions::default()).expect("a member can be added");
        let zip = zip.finish().expect("memory takes it").into_inner();
        assert_refused(Archive::Zip, zip, "member data/raw/edges.csv is not a plain file");
        let tar = tar_of(&[GOOD[2], ("data/raw/edges.csv", b"->/etc/passwd")]);
        assert_refused(Archive::TarGz, tar, "member data/raw/edges.csv is not a plain file");
    }

    #[test]
    fn bombs_are_refused() {
        let zeros = vec![0; 2 << 20];
        let said = "unpacks to more than the 1048576 bytes expected at most";
        let bomb = [("data/raw/edges.csv", &*zeros), GOOD[2]];
        assert_refused(Archive::Zip, zip_of(&bomb), said);
        assert_refused(Archive::TarGz, tar_of(&bomb), said);
        // Many members that are each small enough, and a tar that hides the bomb in a member nobody wants.
        let half = &zeros[..600_000];
        assert_refused(Archive::Zip, zip_of(&[("data/raw/edges.csv", half), ("data/labels.csv", half)]), said);
        assert_refused(Archive::TarGz, tar_of(&[GOOD[0], ("data/other", &zeros), GOOD[2]]), said);
    }

    #[test]
    fn a_bomb_that_lies_about_its_size_is_refused() {
        let mut zip = zip_of(&[("data/raw/edges.csv", &vec![0; 2 << 20]), GOOD[2]]);
        let size = u32::try_from(2 << 20).expect("it fits").to_le_bytes();
        for at in 0..zip.len() - 4 {
            if zip[at..at + 4] == size {
                zip[at..at + 4].copy_from_slice(&8_u32.to_le_bytes());
            }
        }
        assert_refused(Archive::Zip, zip, "member data/raw/edges.csv: ");
    }

    #[test]
    fn spoiled_archives_are_refused() {
        for archive in [Archive::Zip, Archive::TarGz] {
            let pack = if archive == Archive::Zip { zip_of } else { tar_of };
            let whole = pack(&GOOD);
            assert_refused(archive, Vec::new(), "is not a whole ");
            assert_refused(archive, whole[..whole.len() / 2].to_vec(), "");
            assert_refused(archive, b"<html>".repeat(100), "is not a whole ");
            assert_refused(archive, pack(&GOOD[..2]), "has no member data/labels.csv; it holds ");
            assert_refused(archive, pack(&[]), "has no member data/raw/edges.csv; it holds ");
        }
        let mut flipped = zip_of(&GOOD);
        let start = 30 + "data/raw/edges.csv".len();
        flipped[start + 2] ^= 1;
        assert_refused(Archive::Zip, flipped, "member data/raw/edges.csv: ");
    }

    #[test]
    fn an_archive_is_kept_when_its_members_cannot_be_written() {
        let case = case(Archive::Zip, zip_of(&GOOD));
        fs::create_dir(case.path("labels.csv")).expect("a folder where a file should be");
        assert!(case.error().contains("labels.csv: is not a plain file"), "{}", case.error());
        assert_eq!(case.server.requests().len(), 0);
        fs::remove_dir(case.path("labels.csv")).expect("it is there");
        // An obstacle that appears after the download does not cause another one.
        fs::create_dir(case.path("data.zip.unpack")).expect("a folder of the user's");
        fs::write(case.path("data.zip.unpack/mine"), "mine").expect("it can be written");
        assert!(case.error().contains("data.zip.unpack: holds files"), "{}", case.error());
        fs::remove_dir_all(case.path("data.zip.unpack")).expect("it is there");
        assert_eq!(case.fetch().expect("now it can").n_bytes, 0);
        assert_eq!(case.names(), ["labels.csv", "raw", "raw/edges.csv"]);
    }

    #[test]
    fn a_member_is_checked_before_any_is_seen() {
        let mut case = case(Archive::Zip, zip_of(&GOOD));
        let labels = Member { check: sha256(b"other labels"), ..MEMBERS[1] };
        let members = vec![MEMBERS[0], labels].leak();
        let unpack = Unpack { archive: Archive::Zip, most_bytes: 1 << 20, members };
        case.downloads = downloads(Check::default(), Some(unpack));
        let error = case.error();
        assert!(error.contains("member data/labels.csv: has the SHA-256 "), "{error}");
        assert_eq!(case.names(), [""; 0]);
    }
}
