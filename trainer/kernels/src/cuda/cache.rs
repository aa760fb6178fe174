//! Cache of compiled kernels. A file's name is a digest of its source, constants, architecture and compiler; its last 32 bytes are the
//! SHA-256 of the kernels before them. A damaged file is compiled again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use super::{
    compile::Constants,
    error::GpuError,
    nvrtc::{check_architecture, compile, compiler_version},
};

/// Variable with a folder that is used before the user's own, such as one in a container image.
const FOLDER_VARIABLE: &str = "KITH_KERNEL_CACHE";

/// Kernels in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// True if they were compiled now, false if they were there.
    pub is_new: bool,
    /// Time it took.
    pub took: Duration,
    /// Their folder.
    pub folder: PathBuf,
}

/// Compiles kernels into the cache, if they are not there. Needs the compiler, but no GPU.
pub fn warm(architecture: &str, constants: &Constants) -> Result<Warmed, GpuError> {
    let start = Instant::now();
    let version = compiler_version()?;
    check_architecture(architecture)?;
    let sources = constants.sources();
    let images: Vec<Result<Image, GpuError>> = thread::scope(|scope| {
        let one = |source: &String| cached(&folders(), architecture, constants, source, &version);
        let started: Vec<_> = sources.iter().map(|source| scope.spawn(move || one(source))).collect();
        started.into_iter().map(|thread| thread.join().expect("compiling does not panic")).collect()
    });
    let mut warmed = Warmed { is_new: false, took: Duration::ZERO, folder: PathBuf::new() };
    for image in images {
        let Image { is_new, kept, .. } = image?;
        warmed.is_new |= is_new;
        warmed.folder = kept.map_err(|error| {
            GpuError::Refused(format!(
                "the kernel cache cannot be written: {error}; set {FOLDER_VARIABLE} to a folder that can be written"
            ))
        })?;
    }
    warmed.took = start.elapsed();
    Ok(warmed)
}

/// The kernels of a source for an architecture: from the cache, or compiled and put there.
pub(super) fn compiled(architecture: &str, constants: &Constants, source: &str) -> Result<Vec<u8>, GpuError> {
    // Without a cache, the next process compiles again.
    cached(&folders(), architecture, constants, source, &compiler_version()?).map(|image| image.bytes)
}

/// Compiled kernels.
#[derive(Debug)]
struct Image {
    bytes: Vec<u8>,
    /// True if they were compiled now.
    is_new: bool,
    /// Their folder, or the reason why they are not in the cache.
    kept: io::Result<PathBuf>,
}

fn cached(
    folders: &[PathBuf],
    architecture: &str,
    constants: &Constants,
    source: &str,
    version: &str,
) -> Result<Image, GpuError> {
    let mut options = constants.options();
    options.push(format!("--gpu-architecture={architecture}"));
    options.push("--std=c++17".to_owned());
    find_or_make(folders, &file_name(&options, source, version), || compile(source, &options))
}

/// The file of this name from the first folder that has it; if none has it, a new one, in the first folder that can be written.
fn find_or_make(
    folders: &[PathBuf],
    name: &str,
    make: impl FnOnce() -> Result<Vec<u8>, GpuError>,
) -> Result<Image, GpuError> {
    for folder in folders {
        if let Some(bytes) = fs::read(folder.join(name)).ok().and_then(unsealed) {
            return Ok(Image { bytes, is_new: false, kept: Ok(folder.clone()) });
        }
    }
    let bytes = make()?;
    let mut kept = Err(io::Error::other("neither HOME nor XDG_CACHE_HOME is set"));
    for folder in folders {
        kept = match keep(&folder.join(name), &bytes) {
            Ok(()) => Ok(folder.clone()),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
        };
        if kept.is_ok() {
            break;
        }
    }
    Ok(Image { bytes, is_new: true, kept })
}

fn file_name(options: &[String], source: &str, version: &str) -> String {
    let mut digest = Sha256::new();
    for part in options.iter().map(String::as_str).chain([source, version]) {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let name: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.cubin")
}

/// Folders of the cache: that of the variable, and `kith/kernels` in the user's cache folder.
fn folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let given = variable(FOLDER_VARIABLE).filter(|folder| !folder.as_os_str().is_empty());
    let user = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let user = user.or_else(|| Some(variable("HOME")?.join(".cache")));
    given.into_iter().chain(user.map(|folder| folder.join("kith").join("kernels"))).collect()
}

/// The kernels of a file; `None` if it is damaged, or of a version that wrote no digest.
fn unsealed(mut file: Vec<u8>) -> Option<Vec<u8>> {
    let (image, digest) = file.split_last_chunk::<N_DIGEST>()?;
    let (n_bytes, is_right) = (image.len(), Sha256::digest(image).as_slice() == digest);
    file.truncate(n_bytes);
    (is_right && n_bytes > 0).then_some(file)
}

/// Bytes of the digest at the end of a file.
const N_DIGEST: usize = 32;

/// Written beside and renamed: another process or thread sees all of it or nothing.
fn keep(path: &Path, image: &[u8]) -> io::Result<()> {
    static N_KEPT: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().expect("a file in a folder");
    fs::create_dir_all(folder)?;
    let beside = folder.join(format!(".{}-{}.part", std::process::id(), N_KEPT.fetch_add(1, Ordering::Relaxed)));
    fs::write(&beside, [image, Sha256::digest(image).as_slice()].concat())?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use kith_corruption::{Bits, check_bytes, scratch};

    use super::*;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(std::env::temp_dir().join(format!("kith-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn everything_that_decides_kernels_is_in_their_name() {
        let name =
            |architecture: &str, source: &str, version: &str| file_name(&[architecture.to_owned()], source, version);
        let names = [
            name("sm_90", "a", "13.0"),
            name("sm_80", "a", "13.0"),
            name("sm_90", "b", "13.0"),
            name("sm_90", "a", "13.1"),
            file_name(&["sm_90".to_owned(), "-DKITH_HEADS=8".to_owned()], "a", "13.0"),
        ];
        for (place, one) in names.iter().enumerate() {
            assert!(one.len() == 64 + ".cubin".len() && !names[..place].contains(one), "{one}");
        }
        assert_eq!(names[0], name("sm_90", "a", "13.0"));
    }

    #[test]
    fn kernels_are_compiled_once() {
        let folder = Folder::new("compiled-once");
        let folders = [folder.0.join("first"), folder.0.join("second")];
        let made = find_or_make(&folders, "k", || Ok(vec![1])).unwrap();
        assert!(made.is_new && made.kept.unwrap() == folders[0] && !folders[1].exists());
        let found = find_or_make(&folders, "k", || unreachable!("it is there")).unwrap();
        assert_eq!((found.bytes, found.is_new, found.kept.unwrap()), (vec![1], false, folders[0].clone()));
        // What the image has not is in the user's folder.
        fs::rename(&folders[0], &folders[1]).unwrap();
        let found = find_or_make(&folders, "k", || unreachable!("it is there")).unwrap();
        assert_eq!(found.kept.unwrap(), folders[1]);
        // An empty file is no kernel.
        fs::write(folders[1].join("k"), "").unwrap();
        assert!(find_or_make(&folders, "k", || Ok(vec![2])).unwrap().is_new);
    }

    /// Whatever is damaged, the kernels are the same, and the next process finds them again.
    #[test]
    fn every_damaged_file_is_compiled_again() {
        let folder = scratch();
        let (folders, path) = ([folder.path().to_owned()], folder.path().join("k"));
        let image: Vec<u8> = (0..100).collect();
        keep(&path, &image).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut n_compiled = 0;
        let outcomes = check_bytes(&whole, "k", Bits::Each, |bytes| {
            fs::write(&path, bytes).unwrap();
            let made = find_or_make(&folders, "k", || Ok(image.clone())).map_err(|error| error.to_string())?;
            n_compiled += usize::from(made.is_new);
            assert_eq!(fs::read(&path).unwrap(), whole, "the file is whole again");
            Ok(made.bytes)
        });
        assert_eq!((outcomes.n_refused, outcomes.harmless.len()), (0, n_compiled), "all damage is found");
        // A file of a version that wrote no digest.
        fs::write(&path, &image).unwrap();
        assert!(find_or_make(&folders, "k", || Ok(image.clone())).unwrap().is_new);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_passed_over() {
        let folder = Folder::new("passed-over");
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.0.join("file"), "").unwrap();
        let folders = [folder.0.join("file/first"), folder.0.join("second")];
        assert_eq!(find_or_make(&folders, "k", || Ok(vec![1])).unwrap().kept.unwrap(), folders[1]);
        let sentence = find_or_make(&folders[..1], "k", || Ok(vec![1])).unwrap().kept.unwrap_err().to_string();
        assert!(sentence.contains("file/first: "), "{sentence}");
        assert!(find_or_make(&[], "k", || Ok(vec![1])).unwrap().kept.unwrap_err().to_string().contains("HOME"));
    }

    #[test]
    fn threads_that_keep_at_once_keep_their_own() {
        let folder = Folder::new("kept");
        let path = |k: u8| folder.0.join(format!("{k}.cubin"));
        std::thread::scope(|scope| {
            for k in 0..8 {
                let path = path(k);
                scope.spawn(move || keep(&path, &vec![k; 1 << 20]).unwrap());
            }
        });
        for k in 0..8 {
            assert!(unsealed(fs::read(path(k)).unwrap()) == Some(vec![k; 1 << 20]), "image {k}");
        }
    }
}
