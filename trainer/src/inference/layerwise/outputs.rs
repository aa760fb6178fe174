//! Outputs of a layer, each on the rank that computed it.

use std::{borrow::Cow, ops::Range};

use rayon::prelude::*;
use tch::Tensor;

use super::{
    division::Division,
    nodes::{NodeNumbers, NodeWriter},
    room::{Room, Shares},
};
use crate::{
    data::matrix::rows_of,
    distributed::world::{World, WorldError},
    error::TrainError,
};

/// Nodes whose outputs a thread copies at a time, at least.
const N_COPIED: usize = 1024;

/// Outputs of a layer, after its transition: each on the rank that computed it.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) division: Division,
    /// Numbers of one node.
    pub(super) len: usize,
    /// Those of this rank.
    pub(super) values: NodeNumbers,
}

impl Outputs {
    /// Outputs of nodes at some places.
    pub(super) fn of_places(&self, places: Vec<u64>, world: &mut World) -> Result<Vec<f32>, TrainError> {
        if world.n_ranks() == 1 {
            return Ok(self.copied(&places));
        }
        let mut asked: Vec<Vec<u64>> = vec![Vec::new(); world.n_ranks()];
        let ask = |place: u64| {
            let (rank, number) = self.division.owner(place);
            asked[rank].push(number);
            rank as u32
        };
        let owners: Vec<u32> = places.into_iter().map(ask).collect();
        let questions = asked.iter().map(|numbers| bytemuck::cast_slice(numbers).to_vec()).collect();
        let questions = world.collective().all_to_all(questions)?;
        let n_own = self.values.values().len() / self.len;
        let mut answers = Vec::with_capacity(questions.len());
        for numbers in &questions {
            let (numbers, rest) = numbers.as_chunks();
            let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
            if !rest.is_empty() || numbers.iter().any(|number| *number >= n_own as u64) {
                return Err(malformed());
            }
            answers.push(bytemuck::cast_slice(&self.copied(&numbers)).to_vec());
        }
        let answers = world.collective().all_to_all(answers)?;
        let is_right = |(answer, asked): (&Vec<u8>, &Vec<u64>)| answer.len() == 4 * self.len * asked.len();
        if !answers.iter().zip(&asked).all(is_right) {
            return Err(malformed());
        }
        let mut next = vec![0; answers.len()];
        let mut values = Vec::with_capacity(owners.len() * self.len);
        for owner in owners {
            let next = &mut next[owner as usize];
            let (numbers, _) = answers[owner as usize][*next..*next + 4 * self.len].as_chunks();
            values.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            *next += 4 * self.len;
        }
        Ok(values)
    }

    /// Outputs of this rank, by number.
    fn copied(&self, numbers: &[u64]) -> Vec<f32> {
        let all = self.values.values();
        let mut values = vec![0.0; numbers.len() * self.len];
        let rows = values.par_chunks_exact_mut(self.len.max(1)).with_min_len(N_COPIED);
        rows.zip(numbers)
            .for_each(|(row, number)| row.copy_from_slice(&all[*number as usize * self.len..][..self.len]));
        values
    }

    /// Outputs of all nodes of a range, in the order of places, on every rank.
    pub(super) fn of_range(&self, range: Range<u64>, world: &mut World) -> Result<Cow<'_, [f32]>, TrainError> {
        let all = self.values.values();
        if world.n_ranks() == 1 {
            return Ok(Cow::Borrowed(&all[range.start as usize * self.len..range.end as usize * self.len]));
        }
        // Numbers of a rank are in the order of places: those of a range follow each other.
        let mut numbers = vec![0..0; world.n_ranks()];
        for place in range.clone() {
            let (rank, number) = self.division.owner(place);
            let numbers: &mut Range<usize> = &mut numbers[rank];
            let first = if numbers.end == 0 { number as usize } else { numbers.start };
            *numbers = first..number as usize + 1;
        }
        let own = &numbers[world.rank()];
        let own = &all[own.start * self.len..own.end * self.len];
        let shared = world.collective().share(bytemuck::cast_slice(own))?;
        let len = |rank: usize| 4 * self.len * numbers[rank].len();
        if shared.iter().enumerate().any(|(rank, bytes)| bytes.len() != len(rank)) {
            return Err(malformed());
        }
        let mut values = Vec::with_capacity((range.end - range.start) as usize * self.len);
        for place in range {
            let (rank, number) = self.division.owner(place);
            let number = number as usize - numbers[rank].start;
            let (floats, _) = shared[rank][4 * self.len * number..][..4 * self.len].as_chunks();
            values.extend(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        }
        Ok(Cow::Owned(values))
    }
}

fn malformed() -> TrainError {
    WorldError::OutOfStep("a rank sent a malformed part of a layer".to_owned()).into()
}

/// Takes the outputs of a layer for the nodes of this rank, in their order.
pub(super) struct OutputWriter {
    division: Division,
    len: usize,
    values: NodeWriter,
}

impl OutputWriter {
    /// For the outputs of a layer, `len` numbers each, of `n_places` nodes.
    pub(super) fn new(
        (layer, len): (usize, usize),
        n_places: u64,
        (room, shares, world): (&Room, Shares, &World),
    ) -> Result<OutputWriter, TrainError> {
        let division = Division::new(n_places, world.n_ranks());
        let n_values = division.len(world.rank()) as usize * len;
        Ok(OutputWriter {
            division,
            len,
            values: NodeWriter::with_room(n_values, &format!("layer-{layer}"), (room, shares))?,
        })
    }

    /// Bytes of private memory that it has reserved.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.values.memory_bytes()
    }

    /// Takes the outputs of the next nodes.
    pub(super) fn push(&mut self, rows: &Tensor) -> Result<(), TrainError> {
        self.values.push(&rows_of(rows)?.values)
    }

    pub(super) fn finish(self) -> Result<Outputs, TrainError> {
        Ok(Outputs { division: self.division, len: self.len, values: self.values.finish()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::world::on_worlds;

    #[test]
    fn any_range_of_nodes_comes_in_their_order() {
        const LEN: usize = 3;
        for (n_places, n_ranks) in [(0, 2), (1, 3), (100, 1), (1000, 3)] {
            let value = |place: u64, k: usize| (place * LEN as u64) as f32 + k as f32;
            let values = |places: Range<u64>| -> Vec<f32> {
                places.flat_map(|place| (0..LEN).map(move |k| value(place, k))).collect()
            };
            on_worlds(n_ranks, |world| {
                let division = Division::new(n_places, n_ranks);
                let own = (0..division.len(world.rank())).map(|number| division.place(world.rank(), number));
                let own = own.flat_map(|place| values(place..place + 1)).collect();
                let outputs = Outputs { division, len: LEN, values: NodeNumbers::Memory(own) };
                for n_together in [1, 7, 64, n_places.max(1)] {
                    for first in (0..n_places).step_by(n_together as usize).take(20) {
                        let range = first..n_places.min(first + n_together);
                        assert_eq!(*outputs.of_range(range.clone(), world).unwrap(), values(range));
                    }
                }
            });
        }
    }
}
