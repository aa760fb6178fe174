//! Location of a folder in object storage.

use std::{
    fmt,
    fs::{File, TryLockError},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult, RetryConfig, UpdateVersion,
    aws::AmazonS3Builder, http::HttpBuilder, local::LocalFileSystem, path::Path,
};
use url::Url;

use crate::error::{BucketError, Result};

/// A folder in object storage.
#[derive(Clone, Debug)]
pub struct Place {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    kind: Kind,
    /// The folder itself, for storage in files of this machine.
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    S3,
    Local,
    Http,
}

/// True if a text is a URL and not a path.
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

impl Place {
    /// Parses a URL. S3 settings come from the usual environment variables: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, and `AWS_ENDPOINT_URL` for storage that is not Amazon's.
    pub fn parse(text: &str) -> Result<Place> {
        let bad = |problem: &str| BucketError::Url { url: text.to_owned(), problem: problem.to_owned() };
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("a place has neither ? nor #"));
        }
        install_tls();
        let refused = |error: Error| bad(&problem_of(&error));
        let prefix = Path::from_url_path(url.path()).map_err(|error| bad(&error.to_string()))?;
        let (store, kind): (Arc<dyn ObjectStore>, Kind) = match url.scheme() {
            "s3" => {
                let host = url.host_str().filter(|host| !host.is_empty());
                let bucket = host.ok_or_else(|| bad("it names no bucket"))?;
                let mut builder =
                    AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(RetryConfig::default());
                if let Ok(region) = std::env::var("AWS_REGION") {
                    builder = builder.with_region(region);
                }
                // An explicit http:// endpoint allows connections without encryption.
                let is_plain = |name| std::env::var(name).is_ok_and(|endpoint| endpoint.starts_with("http://"));
                if ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"].into_iter().any(is_plain) {
                    builder = builder.with_allow_http(true);
                }
                (Arc::new(builder.build().map_err(refused)?), Kind::S3)
            }
            "http" | "https" => {
                let options = object_store::ClientOptions::new().with_allow_http(url.scheme() == "http");
                let base = &url[..url::Position::BeforePath];
                let builder = HttpBuilder::new().with_url(base).with_client_options(options);
                (Arc::new(builder.build().map_err(refused)?), Kind::Http)
            }
            "file" if url.host_str().is_none_or(str::is_empty) => {
                // What was put survives a loss of power, as in a bucket.
                (Arc::new(LocalFileSystem::new().with_fsync(true)), Kind::Local)
            }
            "file" => return Err(bad("files of another host cannot be reached")),
            scheme => return Err(bad(&format!("{scheme}:// is nothing that Kith reads"))),
        };
        let folder = (kind == Kind::Local).then(|| url.to_file_path().ok()).flatten();
        Ok(Place { url: text.trim_end_matches('/').to_owned(), store, prefix, kind, folder })
    }

    /// A folder in simulated storage.
    #[cfg(test)]
    pub(crate) fn simulated(store: Arc<dyn ObjectStore>, prefix: &str) -> Place {
        let (url, prefix) = (format!("s3://simulated/{prefix}"), Path::from(prefix));
        Place { url, store, prefix, kind: Kind::S3, folder: None }
    }

    /// True if objects can be put there.
    pub fn is_writable(&self) -> bool {
        self.kind != Kind::Http
    }

    /// A folder in it.
    pub fn inside(&self, name: &str) -> Result<Place> {
        let prefix = self.path(name)?;
        let folder = self.folder.as_ref().map(|folder| folder.join(name));
        Ok(Place { url: self.url_of(name), prefix, folder, ..self.clone() })
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// Common prefix of the paths of all its objects.
    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// An object in it.
    pub(crate) fn path(&self, name: &str) -> Result<Path> {
        let whole = if self.prefix.is_root() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        Path::parse(&whole).map_err(|error| BucketError::Url { url: self.url_of(name), problem: error.to_string() })
    }

    pub(crate) fn url_of(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Converts an error of the storage into one about an object; for storage in files, into one about a file.
    pub(crate) fn error(&self, name: &str, error: &Error) -> BucketError {
        if let (Some(folder), Some(source)) = (&self.folder, system_error(error)) {
            return BucketError::Io { path: folder.join(name), source };
        }
        let (url, problem) = (self.url_of(name), problem_of(error));
        match error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => BucketError::Refused { url, problem },
            _ => BucketError::Storage { url, problem },
        }
    }

    /// A whole object, where there is one.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<(bytes::Bytes, UpdateVersion)>> {
        let refused = |error: Error| self.error(name, &error);
        let found = match self.store.get(&self.path(name)?).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(refused)?,
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        Ok(Some((found.bytes().await.map_err(refused)?, version)))
    }

    /// Puts an object on a condition; the version that it then has.
    pub(crate) async fn put(&self, name: &str, payload: PutPayload, mode: PutMode) -> Result<UpdateVersion> {
        let path = self.path(name)?;
        let put = match (mode, &self.folder) {
            (PutMode::Update(before), Some(folder)) => self.put_locked(&path, folder, payload, &before).await?,
            (mode, _) => match self.store.put_opts(&path, payload.clone(), mode.into()).await {
                // Storage that knows no conditions has one writer at a time on its user's word.
                Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => self.store.put(&path, payload).await,
                put => put,
            },
        };
        match put {
            Ok(put) => Ok(UpdateVersion { e_tag: put.e_tag, version: put.version }),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                Err(BucketError::Contested { url: self.to_string() })
            }
            Err(error) => Err(self.error(name, &error)),
        }
    }

    /// Files know no conditions: the folder is locked between looking and putting.
    async fn put_locked(
        &self,
        path: &Path,
        folder: &std::path::Path,
        payload: PutPayload,
        before: &UpdateVersion,
    ) -> Result<object_store::Result<PutResult>> {
        let _lock = lock(folder)?;
        match self.store.head(path).await {
            Ok(now) if now.e_tag != before.e_tag => Err(BucketError::Contested { url: self.to_string() }),
            Err(Error::NotFound { .. }) => Err(BucketError::Contested { url: self.to_string() }),
            Err(error) => Ok(Err(error)),
            Ok(_) => Ok(self.store.put(path, payload).await),
        }
    }

    /// Removes an object, if it is there.
    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        match self.store.delete(&self.path(name)?).await {
            Err(error) if !matches!(error, Error::NotFound { .. }) => Err(self.error(name, &error)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Locks a folder for as long as the result lives; `None` on file systems without locks.
fn lock(folder: &std::path::Path) -> Result<Option<File>> {
    let opened = File::open(folder).map_err(BucketError::io(folder))?;
    let started = Instant::now();
    loop {
        match opened.try_lock() {
            Ok(()) => return Ok(Some(opened)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if started.elapsed() > MAX_LOCKED => {
                return Err(BucketError::Storage {
                    url: folder.display().to_string(),
                    problem: format!("another process has locked it for {} s", MAX_LOCKED.as_secs()),
                });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The longest that a folder stays locked: it takes one small file to be written.
const MAX_LOCKED: Duration = Duration::from_secs(30);

/// The error of the system that caused an error.
fn system_error(error: &Error) -> Option<std::io::Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if let Some(code) = code {
            return Some(std::io::Error::from_raw_os_error(code));
        }
        cause = error.source();
    }
    None
}

/// The innermost reason is the one that a person can do something about; the layers above repeat each other.
fn problem_of(error: &Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() > MAX_PROBLEM {
        words.truncate(words.floor_char_boundary(MAX_PROBLEM));
        words.push('…');
    }
    words
}

/// Servers answer errors with whole pages.
const MAX_PROBLEM: usize = 300;

/// The one TLS provider of this program.
fn install_tls() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // Somebody else may have chosen one already; then that is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://bucket/path", "file:///tmp", "https://host/x", "gs://b"] {
            assert!(is_url(url), "{url}");
        }
        for path in ["stores/cora", "/tmp/x", "C:/x", "://x", "a b://c", ""] {
            assert!(!is_url(path), "{path}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_a_sentence() {
        let problem = |url| Place::parse(url).unwrap_err().to_string();
        assert!(problem("gs://b/x").starts_with("gs://b/x: gs:// is nothing that Kith reads; expected s3://"));
        assert!(problem("file://host/x").contains("another host"));
        assert!(problem("https://host/x?y=1").contains("neither ? nor #"));
        assert!(problem("s3:///x").contains("no bucket"));
        assert!(problem("nonsense").contains("expected s3://"));
    }

    #[test]
    fn objects_stand_below_the_place() {
        let place = Place::parse("file:///tmp/some/").unwrap();
        assert_eq!(place.path("a/b").unwrap().as_ref(), "tmp/some/a/b");
        assert_eq!(place.inside("a").unwrap().to_string(), "file:///tmp/some/a");
        assert!(place.path("../b").is_err());
    }
}
