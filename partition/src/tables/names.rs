//! Recognized names of columns in table headers.

/// Source of an edge.
pub(super) const SOURCE_NAMES: &[&str] =
    &["source", "src", "from", "sourceid", "srcid", "fromid", "fromnode", "fromnodeid", "startid", "id1", "node1"];
/// Destination of an edge.
pub(super) const DESTINATION_NAMES: &[&str] = &[
    "destination",
    "dst",
    "to",
    "target",
    "destinationid",
    "dstid",
    "toid",
    "targetid",
    "tonode",
    "tonodeid",
    "endid",
    "id2",
    "node2",
];
/// Id of a node.
pub(super) const ID_NAMES: &[&str] = &["id", "node", "nodeid"];
/// The class of a node.
pub(super) const LABEL_NAMES: &[&str] = &["label", "class", "target", "y"];
/// The part of a split.
pub(super) const PART_NAMES: &[&str] = &["part", "split", "set"];

/// The first column that has one of these names, whatever its case and punctuation.
pub(super) fn find_name(names: &[String], known: &[&str]) -> Option<usize> {
    let plain = |name: &String| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    names.iter().position(|name| known.contains(&plain(name).as_str()))
}
