//! `kith report`, from a generated graph to a page in a browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::kith::{finish_within, kith, run_kith};

#[test]
fn runs_become_a_page() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let (store, runs) = (path("graph"), path("runs"));
    let options = ["--nodes-per-class", "100", "--classes", "3", "--homophily", "0.8", "--seed", "7"];
    kith([&["data", "generate", "partition-graph", "--out", &store], &options[..]].concat());
    let train = ["train", "partition-graph/supergat-mx", "--graph", &store, "--out", &runs, "--seeds", "42..45"];
    kith([&train[..], &["--set", "train.epochs=8"]].concat());

    let written = kith(["report", &runs, "--graph", &store, "--json"]).json();
    let page = Path::new(written["page"].as_str().unwrap()).to_owned();
    assert_eq!(page, Path::new(&runs).join("report.html"));
    assert_eq!((&written["n_runs"], &written["n_at_work"]), (&Value::from(3), &Value::from(0)));
    let events = written["events"].as_array().unwrap();
    assert!(events.len() == 3 && events.iter().all(|file| fs::metadata(file.as_str().unwrap()).unwrap().len() > 1000));

    let text = fs::read_to_string(&page).unwrap();
    for outside in ["http://", "https://", " src=", "@import", "url("] {
        assert!(!text.contains(outside), "a page needs nothing else: {outside}");
    }
    assert!(text.contains("your graph") && text.contains("store digest"));
    let html = in_a_browser(&page, temp.path()).unwrap_or(text);
    let n_compared = compare(&html, Path::new(&runs));
    assert!(n_compared > 3 * 15, "only {n_compared} numbers say where they are from");

    // A single run's folder, with another output file and without events.
    let one = path("one.html");
    let said = kith(["report", &format!("{runs}/run-43"), "--out", &one, "--no-events"]).stdout;
    assert_eq!(said.trim_end(), one);
    assert!(!Path::new(&runs).join("run-43/events").exists());
    let html = fs::read_to_string(&one).unwrap();
    assert!(compare(&html, &Path::new(&runs).join("run-43")) > 15);

    let nothing = run_kith(["report", &store]);
    assert!(nothing.sentence().starts_with(&format!("{store}: holds neither a run")), "{}", nothing.sentence());
}

/// Compares every number that has a source with that file.
#[track_caller]
fn compare(html: &str, dir: &Path) -> usize {
    let mut n = 0;
    for tag in html.split('<').filter(|tag| tag.contains(" data-from=\"")) {
        let attribute = |name: &str| tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
        let (file, pointer) = attribute("data-from").split_once('#').unwrap();
        let json: Value = serde_json::from_str(&fs::read_to_string(dir.join(file)).unwrap()).unwrap();
        let expected = json.pointer(pointer).unwrap_or_else(|| panic!("nothing stands there: {tag}"));
        let value = attribute("data-value");
        assert_eq!(&serde_json::from_str::<Value>(value).unwrap(), expected, "{tag}");
        // Shown are the number itself, its percentage, or microseconds as seconds, rounded.
        let shown: f64 = tag.split('>').nth(1).unwrap().replace(',', "").parse().unwrap();
        let value: f64 = value.parse().unwrap();
        let is_near = |scaled: f64| (scaled - shown).abs() <= 0.050_001_f64.min(0.005_001_f64.max(scaled.abs() * 1e-3));
        assert!([1.0, 100.0, 1e-6].iter().any(|scale| is_near(scale * value)), "{tag}");
        n += 1;
    }
    n
}

/// The page in a browser, sorted by its address and by clicks; `None` without a browser.
#[allow(clippy::print_stderr)]
fn in_a_browser(page: &Path, temp: &Path) -> Option<String> {
    let Some(browser) = browser() else {
        eprintln!("no chromium here: the page is checked as a text");
        return None;
    };
    // Descending test results.
    let html = shown(&browser, &format!("file://{}#sort=runs,test-last,descending", page.display()), temp);
    let results = column(&html, "descending", "test-last", "/results/test_last");
    assert!(results.len() == 3 && results.is_sorted_by(|a, b| a >= b), "{results:?}");

    // Two clicks on another column's head: ascending, then descending; the address follows.
    let button = "document.querySelector('#runs th[data-column=\"seed\"] button')";
    let script = format!("<script>{button}.click(); {button}.click(); document.title = location.hash</script></body>");
    let clicked = temp.join("clicked.html");
    fs::write(&clicked, fs::read_to_string(page).unwrap().replace("</body>", &script)).unwrap();
    let html_clicked = shown(&browser, &format!("file://{}", clicked.display()), temp);
    assert_eq!(column(&html_clicked, "descending", "seed", "/seed"), [44.0, 43.0, 42.0]);
    assert!(html_clicked.contains("<title>#sort=runs,seed,descending</title>"));
    Some(html)
}

/// HTML of an address in a browser, without console errors.
fn shown(browser: &Path, address: &str, temp: &Path) -> String {
    let profile = format!("--user-data-dir={}", temp.join("profile").display());
    let options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"];
    let mut command = Command::new(browser);
    command.args(options).args(["--enable-logging=stderr", "--dump-dom", &profile, address]);
    let shown = finish_within(&mut command, Duration::from_secs(120));
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let complaints: Vec<&str> = shown.stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(complaints, Vec::<&str>::new());
    shown.stdout
}

/// Numbers of a column of the table of runs, which must be marked as sorted by it.
#[track_caller]
fn column(html: &str, direction: &str, name: &str, pointer: &str) -> Vec<f64> {
    let head = format!("data-column=\"{name}\" aria-sort=\"{direction}\"");
    assert!(html.contains(&head) && html.matches(" aria-sort=").count() == 1, "one head says how it is sorted");
    let table = html.split("<table id=\"runs\">").nth(1).unwrap();
    let body = table.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let number = |cell: &str| cell.split("data-value=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    body.split("<td").filter(|cell| cell.contains(&format!("{pointer}\""))).map(number).collect()
}

/// A browser on the path.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "google-chrome", "chromium-browser"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|program| program.is_file())
}
