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
        edge_weights::{Weights, column_named, weights_of, with_weight},
        fields::{each_line, each_pair_of_numbers, number_id, pick, utf8, weight},
        files::{Format, TableFile, find_all},
        names::{DESTINATION_NAMES, SOURCE_NAMES, find_name},
        npy::{NpyEdges, NpyRows},
        parquet::{ColumnType, ParquetFile, texts, whole_numbers},
        rules::{EdgeWeightRule, IdKind, IdRule},
        sinks::{NumberSink, Numbered, TextSink},
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
    are_weighted: bool,
    have_rows: bool,
}

#[derive(Debug)]
enum EdgeFile {
    Text { file: TextFile, columns: [usize; 2], weight: Option<usize> },
    Npy { edges: NpyEdges, weights: Option<NpyRows> },
    Parquet { file: ParquetFile, columns: [usize; 2], weight: Option<usize>, n_readers: usize },
}

impl EdgeFiles {
    /// Looks at all files: their columns, and whether ids are numbers or texts. The first file with an edge decides.
    pub(super) fn open(
        paths: &[PathBuf],
        rule: IdRule,
        (weights, have_rows): (Option<&EdgeWeightRule>, bool),
        memory_bytes: u64,
    ) -> Result<EdgeFiles> {
        let mut kind = match rule {
            IdRule::Auto | IdRule::Mapped => None,
            IdRule::Dense => Some(IdKind::Numbers),
            IdRule::Texts => Some(IdKind::Texts),
        };
        let found = find_all(paths)?;
        let Some(first) = found.first() else {
            return Err(PartitionError::Option("no edges: --edges names the file or folder that holds them".into()));
        };
        let mut weight_files = match weights {
            Some(EdgeWeightRule::Files(paths)) => find_all(paths)?,
            _ => Vec::new(),
        }
        .into_iter();
        let mut files = Vec::new();
        for file in &found {
            let weights = match weights {
                None => Weights::None,
                Some(EdgeWeightRule::Column(name)) => Weights::Column(name),
                Some(EdgeWeightRule::Files(_)) => Weights::File(weight_files.next().ok_or_else(|| {
                    let problem = "has no file of weights: --edge-weights names one for each file of edges";
                    PartitionError::input(&file.path, "file", problem)
                })?),
            };
            files.push(EdgeFile::open(file, &mut kind, weights, memory_bytes)?);
        }
        if let Some(file) = weight_files.next() {
            let problem = "belongs to no file of edges: --edge-weights names one for each";
            return Err(PartitionError::input(&file.path, "file", problem));
        }
        let no_edges = || PartitionError::input(&first.path, "end of file", "holds no edges");
        Ok(EdgeFiles { files, kind: kind.ok_or_else(no_edges)?, are_weighted: weights.is_some(), have_rows })
    }

    /// Kind of the ids.
    pub(super) fn kind(&self) -> IdKind {
        self.kind
    }

    /// True if edges have weights.
    pub(super) fn are_weighted(&self) -> bool {
        self.are_weighted
    }

    /// True if edges have features: one thread then reads all edges, in order.
    pub(super) fn have_rows(&self) -> bool {
        self.have_rows
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
            (EdgeFile::Text { file, columns, weight: column }, part) => {
                let parse = |lines: &[u8], sink: &mut Numbered<S>| match column {
                    None => each_pair_of_numbers(lines, file.delimiter, *columns, |source, destination| {
                        sink.edge(source, destination, 1.0)
                    }),
                    Some(column) => each_line(lines, |line| {
                        let fields = pick(line, file.delimiter, [columns[0], columns[1], *column])?;
                        sink.edge(number_id(&fields[0])?, number_id(&fields[1])?, weight(&fields[2])?)
                    }),
                };
                match part {
                    FilePart::Bytes(piece) => file.read_piece(piece.clone(), buffer, |lines| parse(lines, sink)),
                    _ => file.each_block(&|n| work.advance(n), &mut |lines| parse(lines, sink)),
                }
            }
            (EdgeFile::Npy { edges, weights }, FilePart::Bytes(range)) => {
                edges.read(range.clone(), weights.as_ref(), sink)
            }
            (EdgeFile::Parquet { file, columns, weight, .. }, FilePart::Group(group)) => {
                let (mut sources, mut destinations) = (Vec::new(), Vec::new());
                file.read_group(*group, &with_weight(*columns, *weight), BATCH_ROWS, &mut |_, arrays| {
                    sources.clear();
                    destinations.clear();
                    whole_numbers(&arrays[0], &mut sources)?;
                    whole_numbers(&arrays[1], &mut destinations)?;
                    let weights = weights_of(arrays)?;
                    let mut edges = sources.iter().zip(&destinations).zip(weights).enumerate();
                    edges.try_for_each(|(row, ((a, b), weight))| {
                        sink.edge(*a, *b, weight).map_err(|trouble| (row, trouble))
                    })
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
            (EdgeFile::Text { file, columns, weight: column }, part) => {
                let parse = |lines: &[u8], sink: &mut Numbered<S>| {
                    each_line(lines, |line| {
                        let [source, destination] = pick(line, file.delimiter, *columns)?;
                        let own = match column {
                            None => 1.0,
                            Some(column) => weight(&pick(line, file.delimiter, [*column])?[0])?,
                        };
                        sink.text_edge(utf8(&source)?, utf8(&destination)?, own)
                    })
                };
                match part {
                    FilePart::Bytes(piece) => file.read_piece(piece.clone(), buffer, |lines| parse(lines, sink)),
                    _ => file.each_block(&|n| work.advance(n), &mut |lines| parse(lines, sink)),
                }
            }
            (EdgeFile::Parquet { file, columns, weight, .. }, FilePart::Group(group)) => {
                file.read_group(*group, &with_weight(*columns, *weight), BATCH_ROWS, &mut |_, arrays| {
                    let (sources, destinations) = (texts(&arrays[0])?, texts(&arrays[1])?);
                    let weights = weights_of(arrays)?;
                    let mut edges = sources.iter().zip(&destinations).zip(weights).enumerate();
                    edges.try_for_each(|(row, ((a, b), weight))| {
                        sink.text_edge(a, b, weight).map_err(|trouble| (row, trouble))
                    })
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
        work_on: impl Fn(&mut Numbered<S>, &mut Vec<u8>, &Job, &Piece<'_>) -> Result<()> + Sync,
    ) -> Result<Vec<S>> {
        let jobs: Vec<Job> = (0..).zip(&self.files).flat_map(|(at, file)| file.jobs(at)).collect();
        let work = Piece::begin(progress, what, Some(self.files.iter().map(EdgeFile::n_bytes).sum()), Unit::Bytes);
        let next = AtomicUsize::new(0);
        let first_failed = AtomicUsize::new(usize::MAX);
        let failure: Mutex<Option<PartitionError>> = Mutex::new(None);
        let work_through = |_| {
            let mut sink = Numbered::new(make());
            let mut buffer = Vec::new();
            loop {
                let place = next.fetch_add(1, Relaxed);
                // Jobs are taken in order, so those before a failed one are all under way.
                let Some(job) = jobs.get(place).filter(|_| place < first_failed.load(Relaxed)) else {
                    return sink.into_sink();
                };
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
        let n_threads = if self.have_rows { 1 } else { rayon::current_num_threads() };
        let n_workers = n_threads.min(jobs.len()).min(n_readers).max(1);
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
    fn open(file: &TableFile, kind: &mut Option<IdKind>, weights: Weights<'_>, memory_bytes: u64) -> Result<EdgeFile> {
        let path = &file.path;
        let name = match &weights {
            Weights::Column(name) => Some(*name),
            _ => None,
        };
        if file.format != Format::Npy && matches!(weights, Weights::File(_)) {
            let problem = "a file of weights is for npy edges: name a column of this table with --edge-weights";
            return Err(PartitionError::input(path, "name", problem));
        }
        match file.format {
            Format::Text { delimiter } => EdgeFile::open_text(TextFile::open(path, delimiter)?, kind, name),
            Format::Npy => {
                let edges = NpyEdges::open(path)?;
                agree(kind, IdKind::Numbers).map_err(|problem| PartitionError::input(path, "header", problem))?;
                let weights = weights.of_array(path, edges.n_edges())?;
                Ok(EdgeFile::Npy { edges, weights })
            }
            Format::Parquet => EdgeFile::open_parquet(ParquetFile::open(path, memory_bytes)?, kind, name),
        }
    }

    /// A first line is a header if it names both ends, or if neither end is a number where ids are numbers.
    fn open_text(mut file: TextFile, kind: &mut Option<IdKind>, weight: Option<&str>) -> Result<EdgeFile> {
        let Some(first) = file.head.first() else {
            return Ok(EdgeFile::Text { file, columns: [0, 1], weight: None });
        };
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
        // Numbers of a first line are no names.
        let weight = weight.map(|name| column_named(first, name, is_header)).transpose();
        let weight = weight.map_err(|problem| PartitionError::input(&file.path, "columns", problem))?;
        if is_header {
            file.skip_header();
        }
        let columns = named.unwrap_or([0, 1]);
        if let (Some(first), None) = (file.head.first(), &kind) {
            let are_numbers = numbers_in(first, columns) == [true, true];
            *kind = Some(if are_numbers { IdKind::Numbers } else { IdKind::Texts });
        }
        Ok(EdgeFile::Text { file, columns, weight })
    }

    fn open_parquet(file: ParquetFile, kind: &mut Option<IdKind>, weight: Option<&str>) -> Result<EdgeFile> {
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
        let weight = weight.map(|name| column_named(&names, name, true)).transpose().map_err(refuse)?;
        let n_readers = file.n_readers(file.bytes_to_read(&with_weight(columns, weight))?);
        Ok(EdgeFile::Parquet { file, columns, weight, n_readers })
    }

    fn n_bytes(&self) -> u64 {
        match self {
            EdgeFile::Text { file, .. } => file.n_bytes,
            EdgeFile::Npy { edges, .. } => edges.n_bytes(),
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
            EdgeFile::Npy { edges, .. } => {
                edges.pieces().map(|(range, n_bytes)| job(FilePart::Bytes(range), n_bytes)).collect()
            }
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
