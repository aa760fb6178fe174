//! Extracts named members from an untrusted archive.
//!
//! Members are written only under the names the catalog gives them, so no name in an archive can choose a path. An
//! archive that tries is refused all the same: it is not the published one.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use kith_partition::{
    dataset::catalog::{Archive, Member, Unpack, difference},
    progress::{Piece, Progress, Unit},
};
use zip::{ZipArchive, result::ZipError};

use super::error::{Trouble, here};

/// Writes members of `archive` into the folder `into`, `ARCHIVE.unpack`, which is made for them, and checks each.
pub(super) fn unpack(
    archive: &Path,
    unpack: &Unpack,
    members: &[Member],
    into: &Path,
    progress: &dyn Progress,
) -> Result<(), Trouble> {
    let file = BufReader::new(File::open(archive).map_err(here(archive)).map_err(Trouble::Here)?);
    let what = format!("unpack {}", into.file_stem().unwrap_or_default().display());
    let piece = Piece::begin(progress, &what, u64::try_from(members.len()).ok(), Unit::Files);
    let writer = Writer { into, piece };
    let limit = Limit { left: Cell::new(unpack.most_bytes), most: unpack.most_bytes };
    match unpack.archive {
        Archive::Zip => from_zip(file, members, &limit, &writer),
        // Members that are passed over are unpacked too, so the limit is on the whole stream.
        Archive::TarGz => from_tar(Limited { inner: MultiGzDecoder::new(file), limit: &limit }, members, &writer),
    }
}

fn from_zip(file: BufReader<File>, members: &[Member], limit: &Limit, writer: &Writer) -> Result<(), Trouble> {
    let unreadable = |error: ZipError| Trouble::Lasting(format!("is not a whole zip archive: {error}"));
    let mut zip = ZipArchive::new(file).map_err(unreadable)?;
    for name in zip.file_names() {
        check_name(&name.map_err(unreadable)?)?;
    }
    if zip.has_duplicate_names() {
        return Err(Trouble::Lasting("names a member twice".to_owned()));
    }
    for member in members {
        let Some(index) = zip.index_for_name(member.inside) else {
            let names: Vec<_> = zip.file_names().filter_map(Result::ok).take(3).collect();
            return Err(absent(member, &names.join(", ")));
        };
        let entry = zip.by_index(index).map_err(|error| spoiled(member, error))?;
        if !entry.is_file() || entry.is_symlink() {
            return Err(Trouble::Lasting(format!("member {} is not a plain file", member.inside)));
        }
        writer.write(member, Limited { inner: entry, limit })?;
    }
    Ok(())
}

fn from_tar(stream: impl Read, members: &[Member], writer: &Writer) -> Result<(), Trouble> {
    let unreadable = |error: io::Error| Trouble::Lasting(format!("is not a whole tar.gz archive: {error}"));
    let mut tar = tar::Archive::new(stream);
    let mut missing = members.to_vec();
    for entry in tar.entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        check_name(&name)?;
        let Some(position) = missing.iter().position(|member| member.inside == name) else { continue };
        if !entry.header().entry_type().is_file() {
            return Err(Trouble::Lasting(format!("member {name} is not a plain file")));
        }
        writer.write(&missing.swap_remove(position), entry)?;
    }
    match missing.first() {
        Some(member) => Err(absent(member, "other members")),
        None => Ok(()),
    }
}

/// Refuses an archive with a name that would leave its folder.
fn check_name(name: &str) -> Result<(), Trouble> {
    let is_drive = name.as_bytes().get(1) == Some(&b':');
    let leaves = name.starts_with(['/', '\\']) || is_drive || name.split(['/', '\\']).any(|part| part == "..");
    if leaves || name.contains('\0') {
        return Err(Trouble::Lasting(format!("holds a member whose name leads outside its folder: {name:?}")));
    }
    Ok(())
}

fn absent(member: &Member, names: &str) -> Trouble {
    Trouble::Lasting(format!(
        "has no member {}; it holds {}",
        member.inside,
        if names.is_empty() { "none" } else { names }
    ))
}

fn spoiled(member: &Member, error: impl ToString) -> Trouble {
    Trouble::Lasting(format!("member {}: {}", member.inside, error.to_string()))
}

/// Remaining budget for unpacked bytes.
struct Limit {
    left: Cell<u64>,
    most: u64,
}

struct Limited<'a, R> {
    inner: R,
    limit: &'a Limit,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        let left = u64::try_from(n).ok().and_then(|n| self.limit.left.get().checked_sub(n));
        self.limit.left.set(left.ok_or_else(|| {
            io::Error::other(format!("unpacks to more than the {} bytes expected at most", self.limit.most))
        })?);
        Ok(n)
    }
}

struct Writer<'a> {
    into: &'a Path,
    piece: Piece<'a>,
}

impl Writer<'_> {
    fn write(&self, member: &Member, mut entry: impl Read) -> Result<(), Trouble> {
        let path = self.into.join(member.file);
        let local = |error| Trouble::Here(here(&path)(error));
        fs::create_dir_all(path.parent().unwrap_or(self.into)).map_err(local)?;
        let mut file = File::create_new(&path).map_err(local)?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match entry.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => file.write_all(&buffer[..n]).map_err(local)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(spoiled(member, error)),
            }
        }
        file.sync_all().map_err(local)?; // Its bytes must be there before its name is.
        if let Some(difference) = difference(&path, &member.check).map_err(local)? {
            return Err(spoiled(member, difference));
        }
        self.piece.advance(1);
        Ok(())
    }
}
