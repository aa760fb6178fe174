//! Parquet pages that would not fit in memory are refused by their headers.

use arrow_array::{
    Float32Array,
    builder::{Float32Builder, ListBuilder},
};
use parquet::{
    basic::{Compression as Packing, ZstdLevel},
    column::page::Page,
    file::{
        properties::WriterVersion,
        reader::{FileReader, SerializedFileReader},
    },
};

use super::*;
use crate::tables::parquet::{ParquetFile, sizes_of_pages};

/// Encoded struct of Thrift's compact protocol.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn field(mut self, number: u8, kind: u8, value: &[u8]) -> Struct {
        self.bytes.push((number - self.last) << 4 | kind);
        self.bytes.extend(value);
        self.last = number;
        self
    }

    fn number(self, number: u8, value: u64) -> Struct {
        self.field(number, 5, &varint(value << 1))
    }

    fn long(self, number: u8, value: u64) -> Struct {
        self.field(number, 6, &varint(value << 1))
    }

    fn text(self, number: u8, text: &str) -> Struct {
        self.field(number, 8, &[varint(text.len() as u64), text.into()].concat())
    }

    fn list(self, number: u8, kind: u8, items: &[Vec<u8>]) -> Struct {
        let head = vec![(items.len() as u8) << 4 | kind];
        self.field(number, 9, &[vec![head], items.to_vec()].concat().concat())
    }

    fn put(self, number: u8, inner: Struct) -> Struct {
        self.field(number, 12, &inner.end())
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Zeros in a frame of zstd: blocks of 128 KiB that say one byte each.
fn packed_zeros(n_blocks: u32) -> Vec<u8> {
    let size = 128 << 10;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1000_0000, 7 << 3];
    frame.extend((n_blocks * size).to_le_bytes());
    for block in 1..=n_blocks {
        frame.extend(&(u32::from(block == n_blocks) | 1 << 1 | size << 3).to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// The header of a page of 64-bit zeros, and the page.
fn page(n_unpacked: u64, packed: &[u8]) -> Vec<u8> {
    let data = Struct::default().number(1, n_unpacked / 8).number(2, 0).number(3, 3).number(4, 3);
    let header = Struct::default().number(1, 0).number(2, n_unpacked).number(3, packed.len() as u64).put(5, data);
    [header.end(), packed.to_vec()].concat()
}

/// A file with two columns of one page each, whose footer says that they are small.
fn file_of_pages(page: &[u8], n_rows: u64) -> Vec<u8> {
    let mut file = b"PAR1".to_vec();
    let mut chunks = Vec::new();
    for name in ["src", "dst"] {
        let start = file.len() as u64;
        file.extend(page);
        let path = [varint(name.len() as u64), name.into()].concat();
        let column = Struct::default().number(1, 2).list(2, 5, &[varint(0)]).list(3, 8, &[path]).number(4, 6);
        let column = column.long(5, n_rows).long(6, 100).long(7, page.len() as u64).long(9, start);
        chunks.push(Struct::default().long(2, start).put(3, column).end());
    }
    let leaf = |name| Struct::default().number(1, 2).number(3, 0).text(4, name).end();
    let schema = [Struct::default().text(4, "schema").number(5, 2).end(), leaf("src"), leaf("dst")];
    let group = Struct::default().list(1, 12, &chunks).long(2, 100).long(3, n_rows).end();
    let footer = Struct::default().number(1, 1).list(2, 12, &schema).long(3, n_rows).list(4, 12, &[group]).end();
    let n_bytes = (footer.len() as u32).to_le_bytes();
    [file, footer, n_bytes.to_vec(), b"PAR1".to_vec()].concat()
}

fn refusal(folder: &Folder, bytes: &[u8]) -> String {
    let path = folder.write("edges.parquet", bytes);
    let outcome = folder.import(&tables(&[path]));
    outcome.expect_err("it is refused").to_string()
}

#[test]
fn a_small_file_of_large_pages_is_refused_by_its_headers() {
    let folder = Folder::new();
    // 1 MiB is read: the file is whole, and what is refused below is its size.
    let whole = folder.write("whole.parquet", file_of_pages(&page(1 << 20, &packed_zeros(8)), 1 << 17));
    folder.import_and(&tables(&[whole]), |graph| assert_eq!(graph.n_nodes(), 1)).unwrap();

    let n_unpacked = 48 << 20;
    let bomb = file_of_pages(&page(n_unpacked, &packed_zeros(384)), n_unpacked / 8);
    assert!(bomb.len() < 5000);
    let said = refusal(&folder, &bomb);
    let sentence = "edges.parquet: page headers: pages need 97 MiB to be read by the sizes in their headers (column dst: 49 MiB), \
                    and --memory leaves 16 MiB: give more, or save the table with smaller pages";
    assert!(said.ends_with(sentence), "{said}");
    // With more memory it is read.
    let path = folder.write("edges.parquet", &bomb);
    folder.import(&Tables { memory_bytes: 512 << 20, ..tables(&[path]) }).unwrap();
}

#[test]
fn headers_that_can_be_read_in_two_ways_are_refused() {
    let folder = Folder::new();
    let packed = packed_zeros(8);
    let data = Struct::default().number(1, 1 << 17).number(2, 0).number(3, 3).number(4, 3).end();
    let of_kind = |kind| Struct::default().number(1, kind).number(2, 1 << 20).number(3, packed.len() as u64);
    let start = || of_kind(0);
    let cases = [
        // The decoder takes field 5 for a struct, whatever its type is.
        (start().field(5, 8, &[varint(data.len() as u64), data.clone()].concat()).end(), "field 5 has type 8"),
        (Struct::default().number(1, 0).field(2, 6, &varint(2 << 20)).end(), "field 2 has type 6"),
        (Struct::default().number(1, 0).field(2, 5, &varint(1 << 40)).end(), "a number beyond 32 bits"),
        (Struct::default().number(1, 0).field(2, 5, &varint(3)).number(3, 1).end(), "a negative size"),
        (Struct::default().number(1, 0).end(), "without type and sizes"),
        (start().field(9, 12, &[0x1c; 40]).end(), "too many structs"),
        (start().field(9, 9, &[0x21, 1, 1]).end(), "field 9 has type 9"),
        // The decoder takes the values of one, we would count those of the other.
        (start().field(5, 12, &data).field(8, 12, &data).end(), "parts of another type"),
        (start().field(7, 12, &Struct::default().number(1, 9).end()).end(), "parts of another type"),
        (of_kind(1).field(6, 12, &[0]).end(), "neither values nor a dictionary"),
        // The decoder makes room for all values of a dictionary before it looks at them.
        (of_kind(2).put(7, Struct::default().number(1, i32::MAX as u64)).end(), "more values than bytes"),
        (start().put(5, Struct::default().number(1, 9).number(2, 6)).end(), "encoded as differences"),
        (of_kind(3).put(8, Struct::default().number(1, 9).number(4, 7)).end(), "encoded as differences"),
        (
            Struct::default().number(1, 0).number(2, 9).number(3, 1 << 20).field(5, 12, &data).end(),
            "ends behind its column",
        ),
        (vec![0x15, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1], "beyond 63 bits"),
    ];
    for (header, words) in cases {
        let said = refusal(&folder, &file_of_pages(&[header, packed.clone()].concat(), 1 << 17));
        assert!(said.contains("row group 0: cannot be read as parquet (") && said.contains(words), "{words}: {said}");
    }
}

/// A page that unpacks to more than its header says is the decoder's to refuse; it has no more room than that.
#[test]
fn pages_larger_than_their_headers_are_refused() {
    let folder = Folder::new();
    let said = refusal(&folder, &file_of_pages(&page(8 << 10, &packed_zeros(384)), 1 << 10));
    assert!(said.contains("cannot be read as parquet"), "{said}");
}

/// The decoder uses the size in the file for pages that are not compressed.
#[test]
fn pages_that_are_not_compressed_are_as_long_as_they_are() {
    let folder = Folder::new();
    let dictionary = Struct::default().number(1, 2).number(2, 0).number(3, 1000).put(7, Struct::default().number(1, 9));
    let path = folder.write("page", [dictionary.end(), vec![0; 1000]].concat());
    let n_bytes = fs::metadata(&path).unwrap().len();
    let sizes = sizes_of_pages(&File::open(&path).unwrap(), 0..n_bytes).unwrap();
    assert_eq!((sizes.largest, sizes.bytes_to_read()), (1000, 3000));
}

#[test]
fn sizes_are_those_of_the_pages_that_the_decoder_makes() {
    let folder = Folder::new();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..5000).map(|n| n * n % 977)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..5000).map(|n| format!("node {}", n % 700))));
    let columns = [("numbers", numbers), ("texts", texts)];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for packing in [Packing::UNCOMPRESSED, Packing::SNAPPY, Packing::ZSTD(ZstdLevel::default())] {
            for has_dictionary in [true, false] {
                let properties = WriterProperties::builder().set_writer_version(version).set_compression(packing);
                let properties = properties.set_dictionary_enabled(has_dictionary).set_write_batch_size(64);
                let properties = properties.set_data_page_row_count_limit(500).set_max_row_group_row_count(Some(3000));
                let path = folder.write_parquet_as("pages.parquet", &columns, properties);
                let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
                for group in 0..reader.num_row_groups() {
                    let group = reader.get_row_group(group).unwrap();
                    for column in 0..2 {
                        let (start, n_bytes) = group.metadata().column(column).byte_range();
                        let sizes = sizes_of_pages(&File::open(&path).unwrap(), start..start + n_bytes);
                        if column == 1 && !has_dictionary && version == WriterVersion::PARQUET_2_0 {
                            assert!(sizes.unwrap_err().to_string().contains("encoded as differences"));
                            continue;
                        }
                        let sizes = sizes.unwrap();
                        let pages: Vec<Page> =
                            group.get_column_page_reader(column).unwrap().map(Result::unwrap).collect();
                        let (dictionaries, data): (Vec<&Page>, Vec<&Page>) =
                            pages.iter().partition(|page| page.is_dictionary_page());
                        assert!(data.len() > 1 && dictionaries.len() == usize::from(has_dictionary));
                        let n_bytes = |page: &&Page| page.buffer().len() as u64;
                        assert_eq!(sizes.largest, pages.iter().map(|page| n_bytes(&page)).max().unwrap());
                        assert_eq!(sizes.n_values, data.iter().map(|page| u64::from(page.num_values())).sum::<u64>());
                        let two = data.windows(2).map(|two| n_bytes(&two[0]) + n_bytes(&two[1])).max().unwrap();
                        assert!(sizes.bytes_to_read() >= two + 2 * dictionaries.iter().map(n_bytes).sum::<u64>());
                    }
                }
            }
        }
    }
}

/// A dictionary says a long text once, and rows repeat it: few of them are read at a time.
#[test]
fn long_texts_are_read_in_few_rows_at_a_time() {
    let folder = Folder::new();
    let long = "x".repeat(100 << 10);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|_| long.as_str())));
    let path =
        folder.write_parquet_as("e.parquet", &[("src", texts.clone()), ("dst", texts)], WriterProperties::builder());
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    let file = ParquetFile::open(&path, MIN_MEMORY_BYTES).unwrap();
    let n_rows = file.rows_at_once(&[0, 1]).unwrap();
    assert!((1..=41).contains(&n_rows), "{n_rows}");
    folder.import_and(&tables(std::slice::from_ref(&path)), |graph| assert_eq!(graph.n_nodes(), 1)).unwrap();
    assert_eq!(ParquetFile::open(&path, 1 << 50).unwrap().rows_at_once(&[0, 1]).unwrap().min(8192), 8192);
}

/// A few bytes say a list of millions of equal numbers.
#[test]
fn a_list_that_does_not_fit_is_refused() {
    let folder = Folder::new();
    let mut lists = ListBuilder::new(Float32Builder::new());
    lists.values().append_slice(&vec![0.5; 3 << 20]);
    lists.append(true);
    let lists: ArrayRef = Arc::new(lists.finish());
    let rows = folder.write_parquet_as("rows.parquet", &[("row", lists)], WriterProperties::builder());
    assert!(fs::metadata(&rows).unwrap().len() < 64 << 10);
    let edges = folder.write("e.csv", "0,0\n");
    let said = folder.import(&Tables { rows: vec![rows], ..tables(&[edges]) }).unwrap_err().to_string();
    assert!(said.contains("rows.parquet: page headers: pages need 49 MiB to be read"), "{said}");

    // Columns that do not fit beside each other are read one after another.
    let numbers: ArrayRef = Arc::new(Float32Array::from_iter_values((0..(1 << 20)).map(|n| n as f32)));
    let columns: Vec<(String, ArrayRef)> = (0..4).map(|n| (format!("x{n}"), numbers.clone())).collect();
    let columns: Vec<(&str, ArrayRef)> = columns.iter().map(|(name, array)| (name.as_str(), array.clone())).collect();
    let whole = WriterProperties::builder().set_dictionary_enabled(false).set_data_page_size_limit(64 << 20);
    let rows = folder.write_parquet_as("rows.parquet", &columns, whole.set_data_page_row_count_limit(1 << 20));
    let edges = folder.write("e.csv", "0,1\n");
    let tables = Tables { rows: vec![rows], n_nodes: Some(1 << 20), ..tables(&[edges]) };
    folder.import_and(&tables, |graph| assert_eq!(graph.n_nodes(), 1 << 20)).unwrap();
}
