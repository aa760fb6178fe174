//! `import kith` in a Python with PyTorch and PyG.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::kith::{Finished, finish_within, is_slow_asked_for, path_from, program, python_with_pyg, real_files, root};

const LIMIT: Duration = Duration::from_secs(600);

/// The package, as a wheel would install it: its Python files, and the library that `cargo build` made.
struct Package {
    _temp: tempfile::TempDir,
    folder: PathBuf,
}

impl Package {
    fn new() -> Package {
        let temp = tempfile::tempdir().unwrap();
        let package = temp.path().join("package/kith");
        fs::create_dir_all(&package).unwrap();
        for file in fs::read_dir(root().join("sampler/python/kith")).unwrap().map(Result::unwrap) {
            if file.path().is_file() {
                fs::copy(file.path(), package.join(file.file_name())).unwrap();
            }
        }
        fs::copy(program().with_file_name("lib_kith.so"), package.join("_kith.abi3.so"))
            .expect("`cargo build` made it");
        Package { folder: temp.path().join("package"), _temp: temp }
    }

    /// A script of sampler/python with the package, and what it printed.
    fn run(&self, python: &Path, script: &Path, arguments: &[&Path]) -> Finished {
        let mut command = Command::new(python);
        command.arg(script).args(arguments).env("PYTHONPATH", &self.folder).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("KITH_PROGRAM", program()).env("OMP_NUM_THREADS", "1").current_dir(self.folder.parent().unwrap());
        let ran = finish_within(&mut command, LIMIT);
        assert_eq!(ran.code, Some(0), "{}: {}\n{}", script.display(), ran.stdout, ran.stderr);
        ran
    }

    /// Tests of sampler/python/tests, which print `ok` and their name: `n_tests` of them.
    fn test(&self, python: &Path, script: &str, n_tests: usize) {
        let (kith, sampler) = (program().to_path_buf(), program().with_file_name("kith-sampler"));
        let ran = self.run(python, &root().join("sampler/python/tests").join(script), &[&kith, &sampler]);
        let n_ok = ran.stdout.lines().filter(|line| line.starts_with("ok ")).count();
        assert_eq!(n_ok, n_tests, "{}\n{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn python_loads_the_same_batches_from_anywhere() {
    let Some(python) = python_with_pyg() else { return };
    Package::new().test(&python, "loaders.py", 10);
}

#[test]
fn python_stands_in_for_pyg() {
    let Some(python) = python_with_pyg() else { return };
    Package::new().test(&python, "drop_in.py", 17);
}

#[test]
fn python_has_the_layers_of_the_program() {
    let Some(python) = python_with_pyg() else { return };
    Package::new().test(&python, "layers.py", 12);
}

#[test]
fn python_runs_the_program() {
    let Some(python) = python_with_pyg() else { return };
    Package::new().test(&python, "runs.py", 17);
}

#[test]
fn python_code_is_typed_and_tidy() {
    let (Some(python), Some(checks)) = (python_with_pyg(), path_from("python-checks.sh", &[])) else { return };
    let folder = root().join("sampler/python");
    let cache = tempfile::tempdir().unwrap();
    let tools: [&[&str]; 3] =
        [&["-m", "ruff", "check", "."], &["-m", "ruff", "format", "--check", "."], &["-m", "mypy", "kith"]];
    for tool in tools {
        let mut command = Command::new(&checks);
        command.args(tool).current_dir(&folder).env("RUFF_CACHE_DIR", cache.path()).env("MYPY_CACHE_DIR", cache.path());
        if tool.contains(&"mypy") {
            command.arg("--python-executable").arg(&python);
        }
        let ran = finish_within(&mut command, LIMIT);
        assert_eq!(ran.code, Some(0), "{tool:?}: {}\n{}", ran.stdout, ran.stderr);
    }
}

/// A PyG graph with 3 classes that are easy to tell apart, in a file of PyTorch.
const MAKE_DATA: &str = r"
import sys, numpy as np, torch
from torch_geometric.data import Data
random = np.random.default_rng(0)
y = random.integers(0, 3, 600)
ends = random.integers(0, 600, (2, 9000))
ends = ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] != ends[1])]
edges = torch.tensor(np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)).contiguous()
x = torch.tensor(np.eye(8)[y] + 0.5 * random.normal(size=(600, 8)), dtype=torch.float32)
part = torch.tensor(random.integers(0, 3, 600))
masks = dict(train_mask=part == 0, val_mask=part == 1, test_mask=part == 2)
torch.save(Data(x=x, edge_index=edges, y=torch.tensor(y), **masks), sys.argv[1])
";

#[test]
#[allow(clippy::print_stderr)]
fn python_scripts_for_pyg_need_another_import_only() {
    let Some(python) = python_with_pyg() else { return };
    let package = Package::new();
    let folder = package.folder.parent().unwrap().to_path_buf();
    let (maker, data) = (folder.join("make.py"), folder.join("data.pt"));
    fs::write(&maker, MAKE_DATA).unwrap();
    package.run(&python, &maker, &[&data]);
    for (script, best) in [("nodes.py", 0.9), ("links.py", 0.7)] {
        let original = root().join("sampler/python/examples").join(script);
        let text = fs::read_to_string(&original).unwrap();
        let changed = text.replace("from torch_geometric.loader import", "from kith import");
        assert_eq!(changed.lines().zip(text.lines()).filter(|(own, other)| own != other).count(), 1, "{script}");
        let copy = folder.join(script);
        fs::write(&copy, changed).unwrap();
        let score = |ran: &Finished| ran.stdout.split_whitespace().last().unwrap().parse::<f64>().unwrap();
        let epochs = Path::new("--epochs=8");
        let own = score(&package.run(&python, &copy, &[&data, epochs]));
        assert!(own > best, "{script}: {own}");
        // PyG's own loader needs pyg-lib, which is not on PyPI.
        match std::env::var_os("KITH_PYTHON_WITH_PYG_LIB") {
            Some(other) => {
                let peer = score(&package.run(Path::new(&other), &original, &[&data, epochs]));
                assert!((own - peer).abs() < 0.03, "{script}: {own} with kith, {peer} with PyG");
            }
            None => eprintln!("skipped: {script} with PyG's loader: KITH_PYTHON_WITH_PYG_LIB is not set"),
        }
    }
}

#[test]
fn notebooks_run_from_top_to_bottom() {
    let (Some(python), Some(checks)) = (python_with_pyg(), path_from("python-checks.sh", &[])) else { return };
    let package = Package::new();
    let library = checks.parent().unwrap().with_file_name("lib");
    let packages = fs::read_dir(library).unwrap().map(|entry| entry.unwrap().path().join("site-packages"));
    let mut path = vec![package.folder.clone()];
    path.extend(packages);
    let files = fs::read_dir(root().join("docs/notebooks")).unwrap().map(|entry| entry.unwrap().path());
    let mut notebooks: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "ipynb")).collect();
    notebooks.sort();
    assert_eq!(notebooks.len(), 4);
    for notebook in notebooks {
        let folder = package.folder.with_file_name(notebook.file_stem().unwrap());
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new(&python);
        command.args(["-c", RUN_NOTEBOOK]).arg(&notebook).env("PYTHONPATH", std::env::join_paths(&path).unwrap());
        command.env("KITH_PROGRAM", program()).env("PYTHONDONTWRITEBYTECODE", "1").env("OMP_NUM_THREADS", "1");
        // Nothing of the user's own Jupyter.
        for variable in ["IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"] {
            command.env(variable, &folder);
        }
        let kernel = folder.join("kernels/kith");
        fs::create_dir_all(&kernel).unwrap();
        let start = ["-m", "ipykernel_launcher", "-f", "{connection_file}"];
        let argv: Vec<&str> = [python.to_str().unwrap()].into_iter().chain(start).collect();
        let spec = serde_json::json!({ "argv": argv, "display_name": "kith", "language": "python" });
        fs::write(kernel.join("kernel.json"), spec.to_string()).unwrap();
        let ran = finish_within(command.current_dir(&folder), LIMIT);
        assert_eq!(ran.code, Some(0), "{}: {}\n{}", notebook.display(), ran.stdout, ran.stderr);
    }
}

/// Runs all cells of a notebook, whose file has no outputs.
const RUN_NOTEBOOK: &str = r"
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == 'code'), 'outputs'
NotebookClient(notebook, timeout=300, kernel_name='kith').execute()
";

#[test]
fn slow_python_keeps_nothing_over_a_thousand_epochs() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(python) = python_with_pyg() else { return };
    Package::new().test(&python, "leaks.py", 3);
}

#[test]
fn slow_python_works_with_older_pytorch_and_dgl() {
    if !is_slow_asked_for() {
        return;
    }
    let package = Package::new();
    if let Some(python) = path_from("pyg.sh", &["pyg-torch24"]) {
        package.test(&python, "loaders.py", 10);
        package.test(&python, "drop_in.py", 17);
    }
    if let Some(python) = path_from("dgl.sh", &[]) {
        package.test(&python, "dgl_blocks.py", 3);
    }
}

#[test]
fn slow_a_wheel_replaces_the_build() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(python) = python_with_pyg() else { return };
    let Some(wheel) = path_from("wheel.sh", &[]) else { return };
    assert!(fs::metadata(&wheel).unwrap().len() < 40 << 20, "at most 40 MB");
    let temp = tempfile::tempdir().unwrap();
    let own = temp.path().join("venv/bin");
    let finish = |command: &mut Command| {
        let ran = finish_within(command.current_dir(temp.path()).env_remove("KITH_PROGRAM"), LIMIT);
        assert_eq!(ran.code, Some(0), "{command:?}: {}\n{}", ran.stdout, ran.stderr);
        ran
    };
    finish(Command::new(&python).args(["-m", "venv", "venv"]));
    // PyTorch is that of the other environment: it has gigabytes.
    let found = finish(Command::new(&python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]));
    let others = PathBuf::from(found.stdout.trim());
    finish(Command::new(own.join("python")).args(["-m", "pip", "install", "--no-deps", "--quiet"]).arg(&wheel));
    let found =
        finish(Command::new(own.join("python")).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]));
    let packages = PathBuf::from(found.stdout.trim());
    for name in fs::read_dir(&others).unwrap().map(|entry| entry.unwrap().file_name()) {
        if !packages.join(&name).exists() {
            std::os::unix::fs::symlink(others.join(&name), packages.join(&name)).unwrap();
        }
    }
    let kith = own.join("kith");
    let generate = ["data", "generate", "power-law", "--nodes", "500", "--degree", "6", "--classes", "3", "--dim", "8"];
    finish(Command::new(&kith).args(generate).args(["--out", "store"]));
    let ran = finish(Command::new(&kith).args(["train", "gat", "--graph", "store", "--epochs", "3", "--out", "run"]));
    assert!(ran.stdout.contains("best epoch"), "{}", ran.stdout);
    let from_python = "import kith; print(kith.predict(kith.train('gat', 'store', epochs=2)).shape)";
    let ran = finish(Command::new(own.join("python")).args(["-c", from_python]));
    assert_eq!(ran.stdout.trim(), "(500, 3)");
    assert!(finish(Command::new(own.join("kith-sampler")).arg("--version")).stdout.starts_with("kith"));
}

#[test]
fn slow_python_models_are_as_accurate_as_with_pyg() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(python) = python_with_pyg() else { return };
    let package = Package::new();
    for dataset in ["pubmed", "cs"] {
        let Some(raw) = real_files(dataset) else { continue };
        let other = std::env::var_os("KITH_PYTHON_WITH_PYG_LIB").map(PathBuf::from).unwrap_or_default();
        let script = root().join("sampler/python/tests/accuracy.py");
        package.run(&python, &script, &[program(), &raw, Path::new(dataset), &other]);
    }
}
