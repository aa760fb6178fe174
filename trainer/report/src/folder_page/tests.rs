//! Reports of generated folders.

use std::{fs, path::Path};

use kith_corruption::{Bits, check_file, scratch};
use kith_partition::progress::Quiet;
use kith_run::seal::seal;
use serde_json::{Value, json};

use super::{steps::Steps, *};

/// Report of a run, with numbers that need all their digits.
fn made_report(key: u64) -> Value {
    let share = 0.1 + key as f64 / 97.0;
    json!({
        "dataset": "cora <&>", "model": "supergat-mx", "seed": key,
        "results": {
            "epochs": 3, "steps": 3, "stopped_early": false, "best_epoch": 1, "valid": share, "test": share / 3.0,
            "valid_last": share / 7.0, "test_last": share / 1.1, "valid_loss_last": 1.0 / 3.0, "seconds": 1.25,
            "seconds_evaluating": 0.5
        },
        "metric": "accuracy", "n_weights": 5610, "n_negatives_left_out": key, "n_ranks": 2,
        "phases": [
            { "sample": 1_000_001, "compute": 2_500_000, "exchange": 7, "update": 3, "start": 100 },
            { "sample": 2_000_001, "compute": 1_500_000, "exchange": 9, "update": 3 }
        ],
        "store_digest": "94f2", "instruction_set": "avx2", "device": "cpu", "kith": "0.1.0", "libtorch": "2.11.0",
        "run_file": "[model]\nkind = \"gat\" # <b>\n"
    })
}

fn made_steps(n: u64) -> String {
    let line = |step: u64| {
        json!({
            "step": step, "epoch": step, "loss": 2.0 / (step + 1) as f64, "node_loss": 1.0, "edge_losses": [0.5, 0.25],
            "n_seeds": 10, "n_edges": 60, "valid_loss": 0.5, "valid": 0.75, "test": 0.5, "micros": 1000,
            "phases": [{ "sample": 1, "compute": 900, "exchange": 0, "update": 2 }]
        })
    };
    (0..n).map(|step| line(step).to_string() + "\n").collect()
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn ask(dir: &Path) -> Result<(String, Written), ReportError> {
    let paper = |dataset: &str, model: &str| (dataset == "cora <&>" && model == "supergat-mx").then_some((84.3, 0.6));
    let question =
        Question { dir, out: None, events: EventsPlace::Beside, store: None, paper: &paper, progress: &Quiet };
    let written = report(&question)?;
    Ok((fs::read_to_string(&written.page).unwrap(), written))
}

/// Compares every number that has a source with its file, and counts them.
#[track_caller]
fn compared(html: &str, dir: &Path) -> usize {
    let mut n = 0;
    for tag in html.split('<').filter(|tag| tag.contains(" data-from=\"")) {
        let attribute = |name: &str| tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
        let (file, pointer) = attribute("data-from").split_once('#').unwrap();
        let json: Value = serde_json::from_str(&fs::read_to_string(dir.join(file)).unwrap()).unwrap();
        let expected = json.pointer(pointer).unwrap_or_else(|| panic!("{tag}"));
        assert_eq!(&serde_json::from_str::<Value>(attribute("data-value")).unwrap(), expected, "{tag}");
        n += 1;
    }
    n
}

#[test]
fn one_run_has_a_page() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().join("report.json"), serde_json::to_string_pretty(&made_report(42)).unwrap());
    write(&temp.path().join("steps.jsonl"), made_steps(3) + "{\"step\":3,");
    let (html, written) = ask(temp.path()).unwrap();
    assert_eq!(written.page, temp.path().join("report.html"));
    assert!(compared(&html, temp.path()) > 20);
    for text in
        ["cora &lt;&amp;&gt;, supergat-mx", "# &lt;b&gt;", "84.3", "94f2", "avx2", "edge loss, layer 1", "rank 1"]
    {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("cora <&>") && !html.contains("still at work"));
    let events = fs::read(&written.events[0]).unwrap();
    assert_eq!(events.windows(11).filter(|bytes| bytes == b"metric/test").count(), 3);
    assert_eq!(written.events[0].parent().unwrap(), temp.path().join("events"));

    // A second report is the same and adds no event file.
    let (again, _) = ask(temp.path()).unwrap();
    assert_eq!(again, html);
    assert_eq!(fs::read_dir(temp.path().join("events")).unwrap().count(), 1);
}

#[test]
fn several_runs_have_means() {
    let temp = tempfile::tempdir().unwrap();
    let runs: Vec<Value> = (42..48).map(made_report).collect();
    let spread = |mean: f64| json!({ "mean": mean, "std": mean / 17.0 });
    let report = json!({ "runs": runs, "valid": spread(0.7), "test": spread(0.6), "test_last": spread(2.0 / 3.0) });
    write(&temp.path().join("report.json"), report.to_string());
    (42..48).for_each(|key| write(&temp.path().join(format!("run-{key}/steps.jsonl")), made_steps(key - 39)));
    let (html, written) = ask(temp.path()).unwrap();
    assert!(compared(&html, temp.path()) > 6 * 20);
    assert!(html.contains("data-from=\"report.json#/test_last/mean\">66.67</span> ± "), "{html}");
    assert!(html.contains("6 runs with seeds 42 to 47") && html.contains("Results of all runs"));
    assert_eq!((written.events.len(), written.n_runs, written.n_at_work), (6, 6, 0));
    assert!(written.events[1].starts_with(temp.path().join("events/run-43")));
}

/// One run shows the counts of its report; several show their sum.
#[test]
fn confusion_matrices_are_shown() {
    let temp = tempfile::tempdir().unwrap();
    let with = |key: u64, test: Value| {
        let mut report = made_report(key);
        report["confusion"] = json!({ "valid": [[0, 0], [0, 0]], "test": test });
        report
    };
    let (one, several) = (temp.path().join("one"), temp.path().join("several"));
    write(&one.join("report.json"), with(42, json!([[1234, 5], [6, 70]])).to_string());
    let (html, _) = ask(&one).unwrap();
    assert!(compared(&html, &one) > 24);
    assert!(html.contains("<h2 id=\"confusion-matrix\">") && html.contains("<caption>Test nodes</caption>"), "{html}");
    assert!(
        html.contains("data-from=\"report.json#/confusion/test/0/0\" title=\"100% of class 0 predicted as 0\">1,234")
    );
    assert!(!html.contains("Validation nodes"), "there are none");

    let runs = [with(1, json!([[1, 2], [3, 4]])), with(2, json!([[10, 20], [30, 40]]))];
    write(&several.join("report.json"), json!({ "runs": runs }).to_string());
    let (html, _) = ask(&several).unwrap();
    assert!(html.contains("<caption>Test nodes, 2 runs added up</caption>"), "{html}");
    for n in [11, 22, 33, 44] {
        assert!(html.contains(&format!(" data-value=\"{n}\" title=")), "{n}: {html}");
    }

    for damaged in [json!([[1, 2], [3]]), json!([[1, -2], [3, 4]]), json!(7)] {
        write(&one.join("report.json"), with(42, damaged).to_string());
        assert!(!ask(&one).unwrap().0.contains("confusion-matrix"));
    }
    write(&one.join("report.json"), made_report(42).to_string());
    assert!(!ask(&one).unwrap().0.contains("confusion-matrix"), "a report without one");
}

#[test]
fn runs_that_are_at_work_have_a_page_that_says_so() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().join("run/steps.jsonl"), made_steps(5));
    let (html, written) = ask(&temp.path().join("run")).unwrap();
    assert!(html.contains("This run is still at work, or was killed, at epoch 4"), "{html}");
    assert!(html.contains("5 so far") && html.contains("<h1>run</h1>") && written.n_at_work == 1);

    // In a long run, several steps share a point.
    let long = made_steps(3000).replace("\"epoch\":", "\"epoch\":1,\"was\":");
    write(&temp.path().join("run/steps.jsonl"), long);
    let (html, _) = ask(&temp.path().join("run")).unwrap();
    assert!(html.contains("Every point is the mean of 12 steps") && html.contains("class=\"band\""), "{html}");
    assert!(html.contains("50.00</span> %") && html.contains("test so far"));

    let both = temp.path().join("both");
    write(&both.join("run-1/report.json"), made_report(1).to_string());
    write(&both.join("run-1/steps.jsonl"), made_steps(3));
    write(&both.join("run-2/steps.jsonl"), "");
    let (html, written) = ask(&both).unwrap();
    assert!(html.contains("One of these runs is still at work, or was killed (run 2 before its first step)"), "{html}");
    assert!(compared(&html, &both) > 20 && html.contains("run-1/report.json#/results/test"));
    assert_eq!((written.n_runs, written.n_at_work, written.events.len()), (2, 1, 1));
}

fn bench(svg: &str) -> Value {
    json!({
        "kind": "table",
        "tables": [{
            "title": "Test <accuracy>", "columns": ["dataset", "MX"],
            "rows": [["cora", { "text": "84.3 ± 0.6", "value": 0.842_999_999_999_999_9 }], ["ppi", "—"]]
        }],
        "figures": [{ "title": "A figure", "svg": svg }],
        "notes": ["one & only"],
        "machine": { "cores": 2, "cpu/model": "fast" }
    })
}

#[test]
fn a_bench_is_shown_as_it_is() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("bench.json");
    write(&path, bench("<svg viewBox=\"0 0 1 1\"><path d=\"M0 0\"/></svg>").to_string());
    let (html, written) = ask(temp.path()).unwrap();
    assert_eq!(compared(&html, temp.path()), 2);
    assert!(html.contains("data-from=\"bench.json#/tables/0/rows/0/1/value\">84.3 ± 0.6</td>"), "{html}");
    assert!(html.contains("Test &lt;accuracy&gt;") && html.contains("one &amp; only") && html.contains("<path d="));
    assert!(written.events.is_empty() && !temp.path().join("events").exists());

    let harmful =
        ["<svg onload=\"x()\"></svg>", "<svg><script>x()</script></svg>", "<b></b>", "<svg/onload=x()></svg>"];
    for svg in harmful {
        write(&path, bench(svg).to_string());
        let error = ask(temp.path()).unwrap_err().to_string();
        assert!(error.ends_with("bench.json: figure 0 is no plain SVG"), "{svg}: {error}");
    }
    let mut ragged = bench("<svg></svg>");
    ragged["tables"][0]["rows"][1] = json!(["ppi"]);
    write(&path, ragged.to_string());
    let error = ask(temp.path()).unwrap_err().to_string();
    assert!(error.ends_with("bench.json: table 0: row 1 has 1 cells, there are 2 columns"), "{error}");
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let error = ask(temp.path()).unwrap_err().to_string();
    assert!(error.contains("holds neither a run"), "{error}");
    let error = ask(&temp.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
    write(&temp.path().join("report.json"), "{\"runs\": [");
    let error = ask(temp.path()).unwrap_err().to_string();
    assert!(error.contains("report.json: no JSON: "), "{error}");
    assert!(!temp.path().join("report.html").exists());
}

/// A finished run and a run at work, with the checksums that runs write. The page has the same numbers, or there is an error that names the
/// file.
#[test]
fn every_damaged_byte_is_named() {
    let temp = scratch();
    let report = json!({ "seed": 42, "model": "gat", "results": { "test": 0.75, "steps": 2 }, "kith": "0.1.0" });
    let text = seal(&format!("{report:#}")) + "\n";
    let steps: String = made_steps(2).lines().map(|line| seal(line) + "\n").collect();
    write(&temp.path().join("report.json"), &text);
    write(&temp.path().join("steps.jsonl"), &steps);
    let page = || match Folder::read(temp.path()).map_err(|error| error.to_string())? {
        Folder::Runs(runs) => Ok(runs_page::page(temp.path(), &runs, None, &|_, _| None).html()),
        Folder::Bench(_) => unreachable!("there is no bench"),
    };
    assert!(page().unwrap().contains(">75.00"));
    let steps_path = temp.path().join("steps.jsonl");
    let found = check_file(&steps_path, Bits::Each, page);
    assert!(found.n_refused > 9 * (steps.len() - 2 * 12), "{:?}", found.harmless);
    let found = check_file(&temp.path().join("report.json"), Bits::Each, page);
    assert!(found.n_refused > 9 * (text.len() - 12 - 40), "{:?}", found.harmless);

    // Without a report, records that are cut off are those of a run that was killed. No record is read as another one.
    fs::remove_file(temp.path().join("report.json")).unwrap();
    let whole = Steps::read(temp.path()).unwrap().all;
    check_file(&steps_path, Bits::Each, || {
        let found = Steps::read(temp.path()).map_err(|error| error.to_string())?.all;
        Ok(if whole.starts_with(&found) { whole.clone() } else { found })
    });
}
