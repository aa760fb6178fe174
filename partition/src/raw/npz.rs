//! Numpy's npz files (zips of npy arrays), and the sparse matrices that scipy stores in them.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::{Path, PathBuf},
};

use zip::{CompressionMethod, ZipArchive};

use crate::{
    PartitionError, Result,
    raw::{
        RawRows,
        array::{Array, Origin, show_shape},
        member::Member,
        npy::{NpyStream, read_npy_from},
    },
};

/// An open npz file. Members nobody asks for are never unpacked.
#[derive(Debug)]
pub struct Npz<R = BufReader<File>> {
    path: PathBuf,
    archive: ZipArchive<R>,
    left_bytes: u64,
}

impl Npz {
    /// Opens a file; all members read from it may hold `limit_bytes` together, so that no small file fills the memory.
    pub fn open(path: &Path, limit_bytes: u64) -> Result<Npz> {
        let file = File::open(path).map_err(PartitionError::io(path))?;
        Npz::from_reader(path, BufReader::new(file), limit_bytes)
    }

    /// Opens a member that must be there to read it in chunks, outside the limit; its name is given without `.npy`.
    pub(crate) fn stream(&mut self, name: &str) -> Result<NpyStream<Member>> {
        let origin = Origin::part(&self.path, format!("member {name}.npy"));
        let Some(index) = self.archive.index_for_name_raw(format!("{name}.npy").as_bytes()) else {
            return Err(PartitionError::input(&self.path, format!("member {name}.npy"), "is missing"));
        };
        let n_bytes = self.check_packing(index, &origin)?;
        let entry = self.archive.by_index_raw(index).map_err(|error| origin.error("start", error.to_string()))?;
        let Some(start) = entry.data_start() else {
            return Err(origin.error("start", "cannot find the member's data"));
        };
        let member = Member::open(&self.path, start, &entry).map_err(PartitionError::io(&self.path))?;
        NpyStream::from_reader(member, n_bytes, origin)
    }
}

impl<R: Read + Seek> Npz<R> {
    fn from_reader(path: &Path, reader: R, limit_bytes: u64) -> Result<Npz<R>> {
        let archive = ZipArchive::new(reader)
            .map_err(|error| PartitionError::input(path, "archive", format!("cannot be read as an npz: {error}")))?;
        if archive.has_duplicate_names() {
            return Err(PartitionError::input(path, "archive", "two members have the same name"));
        }
        Ok(Npz { path: path.to_owned(), archive, left_bytes: limit_bytes })
    }

    /// Reads a member that must be there; its name is given without `.npy`.
    pub fn required(&mut self, name: &str) -> Result<Array> {
        match self.optional(name)? {
            Some(array) => Ok(array),
            None => Err(PartitionError::input(&self.path, format!("member {name}.npy"), "is missing")),
        }
    }

    /// Reads a member if it is there; its name is given without `.npy`.
    pub fn optional(&mut self, name: &str) -> Result<Option<Array>> {
        let member = format!("{name}.npy");
        let Some(index) = self.archive.index_for_name_raw(member.as_bytes()) else { return Ok(None) };
        let origin = Origin::part(&self.path, format!("member {member}"));
        let n_bytes = self.check_size(index, &origin)?;
        let mut reader = self.archive.by_index(index).map_err(|error| origin.error("start", error.to_string()))?;
        let array = read_npy_from(&mut reader, n_bytes, origin)?;
        // The checksum is compared where the member ends.
        match io::copy(&mut reader, &mut io::sink()) {
            Ok(0) => Ok(Some(array)),
            Ok(n_more) => Err(array.error("end", format!("{n_more} bytes more than its size says"))),
            Err(error) => Err(array.error("end", format!("cannot be unpacked: {error}"))),
        }
    }

    /// Reads the sparse matrix whose members' names start with `prefix`: `data`, `indices`, `indptr` and `shape`.
    pub fn csr(&mut self, prefix: &str) -> Result<Csr> {
        if let Some(format) = self.optional(&format!("{prefix}format"))? {
            let kind = format.to_text()?;
            if kind != "csr" {
                let problem = format!("a matrix of format '{kind}' where 'csr' is needed; save it again with .tocsr()");
                return Err(format.error("item 0", problem));
            }
        }
        let shape = self.required(&format!("{prefix}shape"))?;
        let [n_rows, n_columns] = shape.to_indices()?[..] else {
            return Err(shape.error("shape", format!("{} where (2,) is needed", show_shape(&shape.shape))));
        };
        let indptr = self.required(&format!("{prefix}indptr"))?;
        let indices = self.required(&format!("{prefix}indices"))?;
        let values = self.required(&format!("{prefix}data"))?;
        CsrArrays { n_rows, n_columns, indptr, indices, values }.check()
    }

    /// Size of a member, once unpacked.
    fn check_packing(&self, index: usize, origin: &Origin) -> Result<u64> {
        let entry = self.archive.by_index_data(index).map_err(|error| origin.error("start", error.to_string()))?;
        let n_bytes = entry.size();
        if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
            let problem = format!("packed by method {:?}; save it again with numpy.savez", entry.compression());
            return Err(origin.error("start", problem));
        }
        if entry.encrypted() {
            return Err(origin.error("start", "is encrypted; save it again with numpy.savez"));
        }
        // Deflate cannot do better than 1032 to 1.
        if n_bytes / 1032 > entry.compressed_size() {
            let problem = format!("{n_bytes} bytes cannot be packed into {}", entry.compressed_size());
            return Err(origin.error("start", problem));
        }
        Ok(n_bytes)
    }

    fn check_size(&mut self, index: usize, origin: &Origin) -> Result<u64> {
        let n_bytes = self.check_packing(index, origin)?;
        match self.left_bytes.checked_sub(n_bytes) {
            Some(left_bytes) => self.left_bytes = left_bytes,
            None => {
                let problem = format!("{n_bytes} bytes are more than the {} that may be read here", self.left_bytes);
                return Err(origin.error("start", problem));
            }
        }
        Ok(n_bytes)
    }
}

/// The arrays of a sparse matrix, as read.
#[derive(Clone, Debug)]
pub struct CsrArrays {
    /// Rows that the file declares.
    pub n_rows: u64,
    /// Columns that the file declares.
    pub n_columns: u64,
    /// Start of each row, followed by the end of the last.
    pub indptr: Array,
    /// The column of each entry.
    pub indices: Array,
    /// The value of each entry.
    pub values: Array,
}

/// A sparse matrix in compressed rows, checked: every row lies within the entries, every column within the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Csr {
    /// Number of rows.
    pub n_rows: u32,
    /// Number of columns.
    pub n_columns: u32,
    /// `n_rows + 1` bounds into the other two.
    pub indptr: Vec<u64>,
    /// Columns, in file order.
    pub indices: Vec<u32>,
    /// Values, finite.
    pub values: Vec<f32>,
    origin: Origin,
}

impl CsrArrays {
    /// Checks that the arrays make a matrix.
    pub fn check(self) -> Result<Csr> {
        let CsrArrays { n_rows, n_columns, indptr, indices, values } = self;
        let size = |n: u64, what: &str| {
            u32::try_from(n).map_err(|_| indptr.error("shape", format!("a matrix of {n} {what} is too large")))
        };
        let (rows, columns) = (size(n_rows, "rows")?, size(n_columns, "columns")?);
        if indptr.vector()? as u64 != n_rows.saturating_add(1) {
            let problem = format!("{} bounds for {n_rows} rows, where one more is needed", indptr.shape[0]);
            return Err(indptr.error("shape", problem));
        }
        let (n_entries, n_values) = (indices.vector()?, values.vector()?);
        if n_entries != n_values {
            return Err(values.error("shape", format!("{n_values} values for {n_entries} columns")));
        }
        let bounds = indptr.to_indices()?;
        if bounds[0] != 0 || bounds[bounds.len() - 1] != n_entries as u64 {
            let problem = format!("{}..{} where 0..{n_entries} is needed", bounds[0], bounds[bounds.len() - 1]);
            return Err(indptr.error("first and last item", problem));
        }
        if let Some(row) = bounds.windows(2).position(|pair| pair[0] > pair[1]) {
            let problem = format!("{} after {}, where bounds must not fall", bounds[row + 1], bounds[row]);
            return Err(indptr.error(format!("item {}", row + 1), problem));
        }
        let origin = indices.origin.clone();
        let (indices, values) = (indices.to_ids(n_columns)?, values.into_f32()?);
        Ok(Csr { n_rows: rows, n_columns: columns, indptr: bounds, indices, values, origin })
    }
}

impl Csr {
    /// Columns and values of one row.
    pub fn row(&self, row: u32) -> (&[u32], &[f32]) {
        let bounds = self.indptr[row as usize] as usize..self.indptr[row as usize + 1] as usize;
        (&self.indices[bounds.clone()], &self.values[bounds])
    }

    /// Every entry as an edge from its row to its column, in file order.
    pub fn edges(&self) -> Vec<[u32; 2]> {
        (0..self.n_rows).flat_map(|row| self.row(row).0.iter().map(move |&column| [row, column])).collect()
    }

    /// The same matrix with every row in order of its columns, and without stored zeros.
    pub fn into_tidy(self) -> Result<Csr> {
        let is_tidy = |row| {
            let (columns, values) = self.row(row);
            columns.is_sorted_by(|a, b| a < b) && !values.contains(&0.0)
        };
        if (0..self.n_rows).all(is_tidy) {
            return Ok(self);
        }
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        let mut entries: Vec<(u32, f32)> = Vec::new();
        for row in 0..self.n_rows {
            let (columns, row_values) = self.row(row);
            entries.clear();
            entries.extend(columns.iter().copied().zip(row_values.iter().copied()));
            entries.sort_by_key(|entry| entry.0);
            if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(self
                    .origin
                    .error(format!("row {row}"), format!("column {} stands there twice", pair[0].0)));
            }
            entries.retain(|entry| entry.1 != 0.0);
            indices.extend(entries.iter().map(|entry| entry.0));
            values.extend(entries.iter().map(|entry| entry.1));
            indptr.push(indices.len() as u64);
        }
        Ok(Csr { indptr, indices, values, ..self })
    }

    /// The rows of a tidy matrix.
    pub fn into_rows(self) -> Result<RawRows> {
        let Csr { n_columns: dim, indptr, indices, values, .. } = self.into_tidy()?;
        Ok(RawRows::Sparse { dim, indptr, indices, values })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::samples::{assert_error, garbled, npy, npy_of, npz, zip},
    };

    const LIMIT: u64 = 1 << 20;

    fn open(bytes: &[u8]) -> Result<Npz<Cursor<&[u8]>>> {
        Npz::from_reader(Path::new("a.npz"), Cursor::new(bytes), LIMIT)
    }

    /// Rows {2: 5, 0: 3}, {}, {1: 0, 2: 4} of three columns.
    fn matrix() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("format", npy_of("|S3", "()", b"csr")),
            ("shape", npy(&[2], &[3i64, 3])),
            ("indptr", npy(&[4], &[0i32, 2, 2, 4])),
            ("indices", npy(&[4], &[2i32, 0, 1, 2])),
            ("data", npy(&[4], &[5f32, 3.0, 0.0, 4.0])),
        ]
    }

    fn matrix_but(name: &'static str, array: Vec<u8>) -> Result<Csr> {
        let members: Vec<_> =
            matrix().into_iter().map(|(key, old)| (key, if key == name { array.clone() } else { old })).collect();
        open(&npz(&members)).unwrap().csr("")
    }

    #[test]
    fn stored_and_deflated_members() {
        let members = [("a", npy(&[2], &[1i32, 2])), ("b", npy_of("|O", "(1,)", b"pickle")), ("c", vec![9; 100])];
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let bytes = zip(&members, method);
            let mut file = open(&bytes).unwrap();
            assert_eq!(file.required("a").unwrap().to_indices().unwrap(), [1, 2]);
            assert_eq!(file.optional("nothing").unwrap(), None);
            assert_error(file.required("nothing"), "member nothing.npy: is missing");
            assert_error(file.required("b"), "member b.npy: header: items of type '|O' are pickled objects");
            assert_error(file.required("c"), "member c.npy: header: this is not an npy array");
        }
    }

    /// Writes an npz file.
    fn file(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("a.npz");
        std::fs::write(&path, zip(members, method)).unwrap();
        (dir, path)
    }

    #[test]
    fn members_are_read_in_chunks_beyond_the_limit() {
        let items: Vec<i64> = (0..100_000).collect();
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let (_dir, path) = file(&[("before", vec![7; 33]), ("a", npy(&[2, 50_000], &items))], method);
            let mut npz = Npz::open(&path, 10).unwrap();
            assert_error(npz.required("a"), "are more than the 10 that may be read here");
            let (mut first, mut second) = (npz.stream("a").unwrap(), npz.stream("a").unwrap());
            assert_eq!(first.shape(), [2, 50_000]);
            let mut chunk: Vec<u64> = Vec::new();
            assert_eq!(first.read_chunk(&mut chunk, 3).unwrap(), 3);
            assert_eq!(chunk, [0, 1, 2]);
            second.skip(99_998).unwrap();
            assert_eq!(second.read_chunk(&mut chunk, 3).unwrap(), 2);
            assert_eq!(chunk, [99_998, 99_999]);
            assert_error(npz.stream("b"), "a.npz: member b.npy: is missing");
        }
    }

    #[test]
    fn damage_in_a_streamed_member_is_found() {
        let items = [1.5f32; 5000];
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let (_dir, path) = file(&[("a", npy(&[5000], &items))], method);
            let whole = std::fs::read(&path).unwrap();
            let read = |bytes: &[u8]| {
                std::fs::write(&path, bytes).unwrap();
                let mut values = Vec::<f32>::new();
                Npz::open(&path, 0)?.stream("a")?.read_chunk(&mut values, usize::MAX).map(|_| values)
            };
            assert_eq!(read(&whole).unwrap(), items);
            let n_damaged =
                garbled(&whole, 1000).filter_map(|bytes| read(&bytes).ok()).filter(|own| own != &items).count();
            assert_eq!(n_damaged, 0, "damaged items were read");
        }
        let (_dir, path) = file(&[("a", npy(&[5000], &items))], CompressionMethod::Stored);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let mut values = Vec::<f32>::new();
        let read = Npz::open(&path, 0).unwrap().stream("a").unwrap().read_chunk(&mut values, usize::MAX);
        assert_error(read, "member a.npy: items from 0: cannot be read: the checksum differs: the file is damaged");
    }

    #[test]
    fn rows_are_sorted_and_hold_no_zero() {
        let csr = open(&npz(&matrix())).unwrap().csr("").unwrap();
        assert_eq!(csr.edges(), [[0, 2], [0, 0], [2, 1], [2, 2]]);
        assert_eq!(csr.row(1), (&[][..], &[][..]));
        let rows =
            RawRows::Sparse { dim: 3, indptr: vec![0, 2, 2, 3], indices: vec![0, 2, 2], values: vec![3.0, 5.0, 4.0] };
        assert_eq!(csr.into_rows().unwrap(), rows);
        let twice = matrix_but("indices", npy(&[4], &[2i32, 2, 1, 2])).unwrap();
        assert_error(twice.into_rows(), "member indices.npy: row 0: column 2 stands there twice");
    }

    #[test]
    fn bad_matrices_are_refused() {
        let cases: &[(&str, Vec<u8>, &str)] = &[
            ("format", npy_of("|S3", "()", b"csc"), "a matrix of format 'csc' where 'csr' is needed"),
            ("format", npy(&[], &[1i32]), "one item of text is needed"),
            ("shape", npy(&[3], &[3i64, 3, 3]), "(3,) where (2,) is needed"),
            ("shape", npy(&[2], &[-3i64, 3]), "item 0: -3 is not a whole number"),
            ("shape", npy(&[2], &[i64::MAX, 3]), "a matrix of 9223372036854775807 rows is too large"),
            ("shape", npy(&[2], &[u64::MAX, 3]), "is too large"),
            ("shape", npy(&[2], &[4i64, 3]), "member indptr.npy: shape: 4 bounds for 4 rows"),
            ("shape", npy(&[2], &[3i64, 2]), "member indices.npy: item 0: 2 is outside 0..2"),
            ("indptr", npy(&[2, 2], &[0i32, 2, 2, 4]), "(2, 2) where one dimension is needed"),
            ("indptr", npy(&[4], &[0i32, 3, 2, 4]), "indptr.npy: item 2: 2 after 3, where bounds must not fall"),
            ("indptr", npy(&[4], &[0i32, 2, 2, 3]), "first and last item: 0..3 where 0..4 is needed"),
            ("indptr", npy(&[4], &[1i32, 2, 2, 4]), "1..4 where 0..4 is needed"),
            ("indptr", npy(&[4], &[0f32, 2.0, 2.0, 4.0]), "item 0: 0 is not a whole number"),
            ("indices", npy(&[4], &[2i32, 0, -1, 2]), "item 2: -1 is not a whole number"),
            ("indices", npy(&[3], &[2i32, 0, 2]), "member data.npy: shape: 4 values for 3 columns"),
            ("data", npy(&[4], &[5f32, 3.0, f32::INFINITY, 4.0]), "item 2: inf is not a finite 32-bit float"),
        ];
        for (name, array, text) in cases {
            assert_error(matrix_but(name, array.clone()), text);
        }
        assert_error(open(&npz(&matrix()[..4])).unwrap().csr(""), "member data.npy: is missing");
    }

    #[test]
    fn bombs_and_lies_are_refused() {
        let zeros = npy(&[1 << 19], &[0u32; 1 << 19]);
        assert_error(
            open(&npz(&[("a", zeros)])).unwrap().required("a"),
            "2097280 bytes are more than the 1048576 that",
        );
        let half = npy(&[150_000], &[0u32; 150_000]);
        let two = npz(&[("a", half.clone()), ("b", half)]);
        let mut two = open(&two).unwrap();
        two.required("a").unwrap();
        assert_error(two.required("b"), "600128 bytes are more than the 448448 that may be read here");

        let huge = npz(&[("a", npy_of("<f8", "(1000000000000,)", &[0; 8]))]);
        assert_error(open(&huge).unwrap().required("a"), "takes 8000000000000 bytes, and 8 bytes follow the header");
        // The size stands 24 bytes into the entry of the directory at the end, where the archive's readers look.
        let mut liar = npz(&[("a", npy(&[2], &[1i32, 2]))]);
        let entry = liar.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
        liar[entry + 24..entry + 28].copy_from_slice(&900_000u32.to_le_bytes());
        assert_error(open(&liar).unwrap().required("a"), "900000 bytes cannot be packed into");
        liar[entry + 24..entry + 28].copy_from_slice(&137u32.to_le_bytes());
        assert_error(open(&liar).unwrap().required("a"), "takes 8 bytes, and 9 bytes follow the header");
    }

    #[test]
    fn broken_archives_are_refused() {
        assert_error(open(b""), "archive: cannot be read as an npz");
        assert_error(open(b"{'descr': '<i4'}"), "archive: cannot be read as an npz");
        let mut twice = npz(&[("a", npy(&[1], &[1i32])), ("b", npy(&[1], &[2i32]))]);
        for at in 0..twice.len() - 5 {
            if &twice[at..at + 5] == b"b.npy" {
                twice[at] = b'a';
            }
        }
        assert_error(open(&twice), "archive: two members have the same name");
        let mut rotten = zip(&[("a", npy(&[1], &[1i32]))], CompressionMethod::Stored);
        let item = rotten.windows(4).position(|bytes| bytes == [1, 0, 0, 0]).unwrap();
        rotten[item] = 2;
        assert_error(open(&rotten).unwrap().required("a"), "member a.npy: end: cannot be unpacked: Invalid checksum");
        assert_error(Npz::open(Path::new("no such file"), LIMIT), "no such file");
    }

    #[test]
    fn cut_and_garbled_archives_never_panic() {
        let whole = npz(&matrix());
        for n_bytes in 0..whole.len() {
            assert!(open(&whole[..n_bytes]).is_err(), "cut at {n_bytes}");
        }
        let n_good =
            garbled(&whole, 4000).filter(|bytes| open(bytes).and_then(|mut file| file.csr("")).is_ok()).count();
        assert!((1..4000).contains(&n_good), "{n_good} of 4000 read");
    }

    #[test]
    fn real_matrices() {
        for (folder, n_rows, n_entries) in
            [("flickr", 89_250, 899_756), ("ogbn-arxiv/graphsaint-format", 169_343, 1_166_243)]
        {
            let Some(folder) = real_files(folder) else { continue };
            let csr = Npz::open(&folder.join("adj_full.npz"), 1 << 30).unwrap().csr("").unwrap();
            assert_eq!((csr.n_rows, csr.n_columns, csr.indices.len()), (n_rows, n_rows, n_entries));
            assert!(csr.values.iter().all(|&value| value == 1.0));
        }
    }
}
