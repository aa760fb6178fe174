//! Ids of users' nodes, and their mapping to nodes.

use std::{fmt::Display, path::Path};

use crate::{
    PartitionError, Result,
    csr::{Budget, Digits, EdgeFeeder, EdgeValue, ListsBuilder, Sorter},
    progress::Progress,
    raw::lines::shown,
    tables::{
        edges::EdgeFiles,
        fields::{number_id, utf8},
        files::{Trouble, counted},
        numbers::{NumberIds, Walk},
        rules::IdKind,
        sinks::{NumberSink, TextSink},
        texts::TextIds,
    },
};

/// Bits of the value below the id in a sort key.
const VALUE_BITS: u32 = 64;

/// One id as a table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id<'a> {
    Number(u64),
    Text(&'a str),
}

impl<'a> Id<'a> {
    /// Reads a field as an id of this kind.
    pub(super) fn parse(field: &'a [u8], kind: IdKind) -> Result<Id<'a>, Trouble> {
        match kind {
            IdKind::Numbers => number_id(field).map(Id::Number),
            IdKind::Texts if field.is_empty() => Err("an id is empty".into()),
            IdKind::Texts => utf8(field).map(Id::Text),
        }
    }
}

impl Display for Id<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Id::Number(number) => write!(formatter, "{number}"),
            Id::Text(text) => formatter.write_str(&shown(text)),
        }
    }
}

/// Mapping from ids to nodes.
#[derive(Debug)]
pub(super) enum NodeIds {
    /// Ids are the nodes `0..n_nodes`.
    Dense {
        n_nodes: u64,
    },
    Numbers(NumberIds),
    Texts(TextIds),
}

/// Error in the ids of a table, found once all of them are sorted.
#[derive(Debug)]
pub(super) enum Stray {
    /// An id that stands there more than once, by its node.
    Twice { node: u64 },
    /// A number that is no id.
    Unknown { id: u64 },
}

impl NodeIds {
    /// Nodes are `0..n_nodes`.
    pub(super) fn n_nodes(&self) -> u64 {
        match self {
            NodeIds::Dense { n_nodes } => *n_nodes,
            NodeIds::Numbers(ids) => ids.n_ids(),
            NodeIds::Texts(ids) => ids.n_ids(),
        }
    }

    /// Feeds all edges to the lists.
    pub(super) fn feed_edges(
        &self,
        edges: &EdgeFiles,
        lists: &ListsBuilder<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let what = "reading edges";
        match self {
            NodeIds::Dense { n_nodes } => {
                let feed = || DenseFeed { feeder: lists.feeder(), n_nodes: *n_nodes };
                edges.each_number(what, progress, feed)?.into_iter().try_for_each(|feed| feed.feeder.finish())
            }
            NodeIds::Numbers(ids) => ids.feed_edges(edges, lists, progress),
            NodeIds::Texts(ids) => {
                let feed = || TextFeed { feeder: lists.feeder(), ids };
                edges.each_text(what, progress, feed)?.into_iter().try_for_each(|feed| feed.feeder.finish())
            }
        }
    }

    /// Puts values that come with ids in the order of the nodes: `feed` hands them over, `take` gets node after node.
    /// Of a node that comes twice, or an id that is none, nothing is taken; it is returned.
    pub(super) fn in_node_order(
        &self,
        budget: &Budget,
        feed: impl FnOnce(&mut dyn FnMut(Id<'_>, u64) -> Result<(), Trouble>) -> Result<()>,
        mut take: impl FnMut(u64, u64) -> Result<()> + Send,
    ) -> Result<Option<Stray>> {
        let bits = match self {
            NodeIds::Numbers(ids) => ids.span().bits(),
            _ => u64::BITS - self.n_nodes().leading_zeros(),
        };
        let sorter: Sorter<'_, u128> = Sorter::new(budget, Digits::new(VALUE_BITS, VALUE_BITS + bits));
        let mut feeder = sorter.feeder();
        feed(&mut |id, value| {
            let place = self.place(id)?;
            Ok(feeder.push(u128::from(place) << VALUE_BITS | u128::from(value))?)
        })?;
        feeder.finish()?;
        let mut walk = match self {
            NodeIds::Numbers(ids) => Some(Walk::new(ids)),
            _ => None,
        };
        let mut stray = None;
        let mut last = None;
        sorter.finish(&mut |keys: &[u128]| {
            for key in keys {
                let place = (key >> VALUE_BITS) as u64;
                let node = match &mut walk {
                    Some(walk) => walk.node_of(place)?,
                    None => Some(place),
                };
                match node {
                    _ if stray.is_some() => {}
                    None => stray = Some(Stray::Unknown { id: self.least() + place }),
                    Some(node) if last == Some(node) => stray = Some(Stray::Twice { node }),
                    Some(node) => {
                        last = Some(node);
                        take(node, *key as u64)?;
                    }
                }
            }
            Ok(())
        })?;
        Ok(stray)
    }

    /// The node of an id, or for mapped numbers how far it lies above the smallest.
    fn place(&self, id: Id<'_>) -> Result<u64, Trouble> {
        match (self, id) {
            (NodeIds::Dense { n_nodes }, Id::Number(number)) => inside(number, *n_nodes),
            (NodeIds::Numbers(ids), Id::Number(number)) if ids.span().contains(number) => Ok(number - ids.span().min),
            (NodeIds::Texts(ids), Id::Text(text)) => ids.node_of(text).ok_or_else(|| unknown(id)),
            _ => Err(unknown(id)),
        }
    }

    fn least(&self) -> u64 {
        if let NodeIds::Numbers(ids) = self { ids.span().min } else { 0 }
    }

    /// Refuses a table without ids where the place of a line says nothing.
    pub(super) fn check_by_place(&self, path: &Path) -> Result<()> {
        match self {
            NodeIds::Dense { .. } => Ok(()),
            _ => {
                let problem = "has no id column, and ids are mapped: add one, or --ids dense if ids number the nodes";
                Err(PartitionError::input(path, "columns", problem))
            }
        }
    }

    /// Hands the id of a node to `tell`.
    pub(super) fn with_id<R>(&self, node: u64, tell: impl FnOnce(Id<'_>) -> R) -> Result<R> {
        match self {
            NodeIds::Dense { .. } => Ok(tell(Id::Number(node))),
            NodeIds::Numbers(ids) => {
                let mut id = [0];
                ids.read(node, &mut id)?;
                Ok(tell(Id::Number(id[0])))
            }
            NodeIds::Texts(ids) => Ok(tell(Id::Text(ids.text_of(node)))),
        }
    }
}

/// Error for an id that belongs to no node.
pub(super) fn unknown(id: Id<'_>) -> Trouble {
    Trouble::Here(format!("{id} is not the id of any node"))
}

fn inside(number: u64, n_nodes: u64) -> Result<u64, Trouble> {
    match number < n_nodes {
        true => Ok(number),
        false => Err(format!("node {number} is outside 0..{n_nodes}: --nodes says how many there are").into()),
    }
}

/// The sentence about a stray id; `place_of` reads the table again and fails where the id stands (for the second time).
pub(super) fn stray_error(
    stray: Stray,
    ids: &NodeIds,
    place_of: impl FnOnce(&mut dyn FnMut(Id<'_>) -> Result<(), Trouble>) -> Result<()>,
) -> PartitionError {
    let find = |wanted: Id<'_>, problem: Trouble, n_before: u64| {
        let mut n_left = n_before;
        let mut problem = Some(problem);
        let found = place_of(&mut |id| match id == wanted {
            true if n_left == 0 => Err(problem.take().unwrap_or(Trouble::Here(String::new()))),
            true => {
                n_left -= 1;
                Ok(())
            }
            false => Ok(()),
        });
        let changed = || PartitionError::Option("a table changed while it was read".into());
        found.err().unwrap_or_else(changed)
    };
    match stray {
        Stray::Unknown { id } => find(Id::Number(id), unknown(Id::Number(id)), 0),
        Stray::Twice { node } => {
            let told = ids.with_id(node, |id| find(id, Trouble::Here(format!("id {id} stands there twice")), 1));
            told.unwrap_or_else(|error| error)
        }
    }
}

struct DenseFeed<'s, 'a> {
    feeder: EdgeFeeder<'s, 'a>,
    n_nodes: u64,
}

impl NumberSink for DenseFeed<'_, '_> {
    #[inline]
    fn edge(&mut self, source: u64, destination: u64, value: EdgeValue) -> Result<(), Trouble> {
        if source.max(destination) >= self.n_nodes {
            inside(source, self.n_nodes)?;
            inside(destination, self.n_nodes)?;
        }
        Ok(self.feeder.push_with(source, destination, value)?)
    }
}

struct TextFeed<'s, 'a> {
    feeder: EdgeFeeder<'s, 'a>,
    ids: &'s TextIds,
}

impl TextSink for TextFeed<'_, '_> {
    fn edge(&mut self, source: &str, destination: &str, value: EdgeValue) -> Result<(), Trouble> {
        let node_of = |text| self.ids.node_of(text).ok_or_else(|| unknown(Id::Text(text)));
        let (source, destination) = (node_of(source)?, node_of(destination)?);
        Ok(self.feeder.push_with(source, destination, value)?)
    }
}

/// The sentence about a table with one line per node that has not as many as there are nodes.
pub(super) fn check_n_rows(what: &str, n_rows: u64, n_nodes: u64, nodes_are_given: bool) -> Result<(), String> {
    if n_rows == n_nodes {
        return Ok(());
    }
    let found = format!("{} for {}", counted(n_rows, what), counted(n_nodes, "node"));
    Err(match nodes_are_given {
        true => format!("{found}, as many as --nodes says"),
        false if n_rows > n_nodes => {
            format!("{found} in the edges: --nodes {n_rows} says that the others have no edge")
        }
        false => format!("{found} in the edges: one is needed for each"),
    })
}
