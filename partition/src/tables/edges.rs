//! Edge tables: detects the contents of each file and streams all edges to one sink per thread.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use rayon::prelude::*;

use crate::{
    PartitionError, Result,
    progress::{Piece, Progress, Unit},
    tables::{
        fields::{each_line, each_pair_of_numbers, number_id, pick, utf8},
        files::{Format, TableFile, find_all},
        names::{DESTINATION_NAMES, SOURCE_NAMES, find_name},
        npy::NpyEdges,
        parquet::{ColumnType, ParquetFile, texts, whole_numbers},
        rules::{IdKind, IdRule},
        sinks::{NumberSink, TextSink},
        text::TextFile,
    },
};

/// Rows of a parquet file that are held at once.
const BATCH_ROWS: usize = 1 << 13;

/// All edge tables.
#[derive(Debug)]
pub(super) struct EdgeFiles {
    files: Vec<EdgeFile>,
    kind: IdKind,
}

#[derive(Debug)]
enum EdgeFile {
    Text { file: TextFile, columns: [usize; 2] },
    Npy(NpyEdges),
    Parquet { file: ParquetFile, columns: [usize; 2], n_readers: usize },
}

impl EdgeFiles {
    /// Looks at all files: their columns, and whether ids are numbers or texts. The first file with an edge decides.
    pub(super) fn open(paths: &[PathBuf], rule: IdRule, memory_bytes: u64) -> Result<EdgeFiles> {
        let mut kind = match rule {
            IdRule::Auto | IdRule::Mapped => None,
            IdRule::Dense => Some(IdKind::Numbers),
            IdRule::Texts => Some(IdKind::Texts),
        };
        let found = find_all(paths)?;
        let Some(first) = found.first() else {
            return Err(PartitionError::Option("no edges: --edges names the file or folder that holds them".into()));
        };
        let files = found.iter().map(|file| EdgeFile::open(file, &mut kind, memory_bytes)).collect::<Result<_>>()?;
        let no_edges = || PartitionError::input(&first.path, "end of file", "holds no edges");
        Ok(EdgeFiles { files, kind: kind.ok_or_else(no_edges)? })
    }

    /// Kind of the ids.
    pub(super) fn kind(&self) -> IdKind {
        self.kind
    }

    /// Number of files.
    pub(super) fn n_files(&self) -> usize {
        self.files.len()
    }

    /// Hands all edges to sinks, one per thread, in no particular order.
    pub(super) fn each_number<S: NumberSink>(
        &self,
        what: &str,
        progress: &dyn Progress,
        make: impl Fn() -> S + Sync,
    ) -> Result<Vec<S>> {
        self.run(what, progress, make, |sink, buffer, job, work| match (&self.files[job.file], &job.part) {
            (EdgeFile::Text { file, columns }, part) => {
                let parse = |lines: &[u8], sink: &mut S| {
                    each_pair_of_numbers(lines, file.delimiter, *columns, |source, destination| {
                        sink.edge(source, destination)
                    })
                };
                match part {
                    FilePart::Bytes(piece) => file.read_piece(piece.clone(), buffer, |lines| parse(lines, sink)),
                    _ => file.each_block(&|n| work.advance(n), &mut |lines| parse(lines, sink)),
                }
            }
            (EdgeFile::Npy(file), FilePart::Bytes(edges)) => file.read(edges.clone(), sink),
            (EdgeFile::Parquet { file, columns, .. }, FilePart::Group(group)) => {
                let (mut sources, mut destinations) = (Vec::new(), Vec::new());
                file.read_group(*group, columns, BATCH_ROWS, &mut |_, arrays| {
                    sources.clear();
                    destinations.clear();
                    whole_numbers(&arrays[0], &mut sources)?;
                    whole_numbers(&arrays[1], &mut destinations)?;
                    let mut pairs = sources.iter().zip(&destinations).enumerate();
                    pairs.try_for_each(|(row, (a, b))| sink.edge(*a, *b).map_err(|trouble| (row, trouble)))
                })
            }
            _ => unreachable!("each format is cut into its own kind of parts"),
        })
    }

    /// Hands all edges to sinks, one per thread, in no particular order.
    pub(super) fn each_text<S: TextSink>(
        &self,
        what: &str,
        progress: &dyn Progress,
        make: impl Fn() -> S + Sync,
    ) -> Result<Vec<S>> {
        self.run(what, progress, make, |sink, buffer, job, work| match (&self.files[job.file], &job.part) {
            (EdgeFile::Text { file, columns }, part) => {
                let parse = |lines: &[u8], sink: &mut S| {
                    each_line(lines, |line| {
                        let [source, destination] = pick(line, file.delimiter, *columns)?;
                        sink.edge(utf8(&source)?, utf8(&destination)?)
                    })
                };
                match part {
                    FilePart::Bytes(piece) => file.read_piece(piece.clone(), buffer, |lines| parse(lines, sink)),
                    _ => file.each_block(&|n| work.advance(n), &mut |lines| parse(lines, sink)),
                }
            }
            (EdgeFile::Parquet { file, columns, .. }, FilePart::Group(group)) => {
                file.read_group(*group, columns, BATCH_ROWS, &mut |_, arrays| {
                    let (sources, destinations) = (texts(&arrays[0])?, texts(&arrays[1])?);
                    let mut pairs = sources.iter().zip(&destinations).enumerate();
                    pairs.try_for_each(|(row, (a, b))| sink.edge(a, b).map_err(|trouble| (row, trouble)))
                })
            }
            _ => unreachable!("files without texts were refused when they were opened"),
        })
    }

    /// Works through all parts of all files. Of several errors the one that comes first in the files is returned.
    fn run<S: Send>(
        &self,
        what: &str,
        progress: &dyn Progress,
        make: impl Fn() -> S + Sync,
        work_on: impl Fn(&mut S, &mut Vec<u8>, &Job, &Piece<'_>) -> Result<()> + Sync,
    ) -> Result<Vec<S>> {
        let jobs: Vec<Job> = (0..).zip(&self.files).flat_map(|(at, file)| file.jobs(at)).collect();
        let work = Piece::begin(progress, what, Some(self.files.iter().map(EdgeFile::n_bytes).sum()), Unit::Bytes);
        let next = AtomicUsize::new(0);
        let first_failed = AtomicUsize::new(usize::MAX);
        let failure: Mutex<Option<PartitionError>> = Mutex::new(None);
        let work_through = |_| {
            let mut sink = make();
            let mut buffer = Vec::new();
            loop {
                let place = next.fetch_add(1, Relaxed);
                // Jobs are taken in order, so those before a failed one are all under way.
                let Some(job) = jobs.get(place).filter(|_| place < first_failed.load(Relaxed)) else { return sink };
                match work_on(&mut sink, &mut buffer, job, &work) {
                    Ok(()) => work.advance(job.n_bytes),
                    Err(error) => {
                        let mut failure = failure.lock().expect("nobody panics while holding it");
                        if place < first_failed.load(Relaxed) {
                            first_failed.store(place, Relaxed);
                            *failure = Some(error);
                        }
                    }
                }
            }
        };
        let n_readers = self.files.iter().map(EdgeFile::n_readers).min().unwrap_or(1);
        let n_workers = rayon::current_num_threads().min(jobs.len()).min(n_readers).max(1);
        let sinks = (0..n_workers).into_par_iter().map(work_through).collect();
        match failure.into_inner().expect("nobody panics while holding it") {
            Some(error) => Err(error),
            None => Ok(sinks),
        }
    }
}

/// Unit of work of one thread.
struct Job {
    file: usize,
    part: FilePart,
    /// Bytes to be counted when it is done.
    n_bytes: u64,
}

enum FilePart {
    /// From the first byte to the last.
    Whole,
    /// Bytes of a plain text, or edges of an array.
    Bytes(Range<u64>),
    /// A row group.
    Group(usize),
}

impl EdgeFile {
    fn open(file: &TableFile, kind: &mut Option<IdKind>, memory_bytes: u64) -> Result<EdgeFile> {
        let path = &file.path;
        match file.format {
            Format::Text { delimiter } => EdgeFile::open_text(TextFile::open(path, delimiter)?, kind),
            Format::Npy => {
                let edges = NpyEdges::open(path)?;
                agree(kind, IdKind::Numbers).map_err(|problem| PartitionError::input(path, "header", problem))?;
                Ok(EdgeFile::Npy(edges))
            }
            Format::Parquet => EdgeFile::open_parquet(ParquetFile::open(path, memory_bytes)?, kind),
        }
    }

    /// A first line is a header if it names both ends, or if neither end is a number where ids are numbers.
    fn open_text(mut file: TextFile, kind: &mut Option<IdKind>) -> Result<EdgeFile> {
        let Some(first) = file.head.first() else { return Ok(EdgeFile::Text { file, columns: [0, 1] }) };
        let named = named_columns(first);
        let numbers_in = |line: &[String], columns: [usize; 2]| {
            columns.map(|column| line.get(column).is_some_and(|field| number_id(field.as_bytes()).is_ok()))
        };
        let numbers_follow = || file.head.get(1).is_some_and(|second| numbers_in(second, [0, 1]) == [true, true]);
        let is_header = named.is_some()
            || first.len() > 1
                && numbers_in(first, [0, 1]) == [false, false]
                && match kind {
                    Some(IdKind::Numbers) => true,
                    Some(IdKind::Texts) => false,
                    None => numbers_follow(),
                };
        if is_header {
            file.skip_header();
        }
        let columns = named.unwrap_or([0, 1]);
        if let (Some(first), None) = (file.head.first(), &kind) {
            let are_numbers = numbers_in(first, columns) == [true, true];
            *kind = Some(if are_numbers { IdKind::Numbers } else { IdKind::Texts });
        }
        Ok(EdgeFile::Text { file, columns })
    }

    fn open_parquet(file: ParquetFile, kind: &mut Option<IdKind>) -> Result<EdgeFile> {
        let names = file.names();
        let refuse = |problem: String| PartitionError::input(&file.path, "columns", problem);
        if names.len() < 2 {
            return Err(refuse("edges need two columns, a source and a destination".into()));
        }
        let columns = named_columns(&names).unwrap_or([0, 1]);
        let found = match columns.map(|column| file.column_type(column)) {
            [ColumnType::Whole, ColumnType::Whole] => IdKind::Numbers,
            [ColumnType::Text, ColumnType::Text] => IdKind::Texts,
            _ => {
                let [source, destination] = columns.map(|column| &names[column]);
                return Err(refuse(format!(
                    "{source} and {destination} are neither both whole numbers nor both texts"
                )));
            }
        };
        agree(kind, found).map_err(refuse)?;
        let n_readers = file.n_readers(file.bytes_to_read(&columns)?);
        Ok(EdgeFile::Parquet { file, columns, n_readers })
    }

    fn n_bytes(&self) -> u64 {
        match self {
            EdgeFile::Text { file, .. } => file.n_bytes,
            EdgeFile::Npy(file) => file.n_bytes(),
            EdgeFile::Parquet { file, .. } => file.n_bytes,
        }
    }

    /// Threads that may read the file at once.
    fn n_readers(&self) -> usize {
        if let EdgeFile::Parquet { n_readers, .. } = self { *n_readers } else { usize::MAX }
    }

    fn jobs(&self, at: usize) -> Vec<Job> {
        let job = |part, n_bytes| Job { file: at, part, n_bytes };
        match self {
            EdgeFile::Text { file, .. } => match file.pieces() {
                Some(pieces) => {
                    pieces.map(|piece| job(FilePart::Bytes(piece.clone()), piece.end - piece.start)).collect()
                }
                None => vec![job(FilePart::Whole, 0)], // A packed file counts its bytes as it goes.
            },
            EdgeFile::Npy(file) => file.pieces().map(|(edges, n_bytes)| job(FilePart::Bytes(edges), n_bytes)).collect(),
            EdgeFile::Parquet { file, .. } => {
                let n_groups = file.n_groups();
                (0..n_groups).map(|group| job(FilePart::Group(group), file.n_bytes / n_groups as u64)).collect()
            }
        }
    }
}

/// The columns that a header calls source and destination.
fn named_columns(names: &[String]) -> Option<[usize; 2]> {
    Some([find_name(names, SOURCE_NAMES)?, find_name(names, DESTINATION_NAMES)?])
}

/// Ids of one graph are all numbers or all texts.
fn agree(kind: &mut Option<IdKind>, found: IdKind) -> Result<(), String> {
    match (*kind, found) {
        (None, _) => *kind = Some(found),
        (Some(IdKind::Numbers), IdKind::Texts) => {
            return Err("ids are texts here, and numbers before: --ids texts takes all of them as texts".into());
        }
        (Some(IdKind::Texts), IdKind::Numbers) => {
            return Err(
                "ids are numbers here, where texts are needed: save them as texts, or all others as numbers".into()
            );
        }
        _ => {}
    }
    Ok(())
}
