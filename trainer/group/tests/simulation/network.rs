//! Connections between processes: bytes arrive in order and late. What cannot arrive is kept, as TCP sends it again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use kith_group::{
    message::{Answer, Message, Opening},
    ring::frame::HEAD_BYTES,
};

use crate::{draws::Draws, queue::Queue, world::Event};

/// A message or a piece of a collective, on its way.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// The first message.
    Opening(Opening),
    /// From rank 0, while ranks join.
    Answer(Answer),
    /// Heartbeats.
    Message(Message),
    /// A piece of a collective.
    Frame([u8; HEAD_BYTES], Vec<u8>),
    /// The end; why, if it broke.
    Close(Option<&'static str>),
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    /// Its process.
    pub(crate) process: usize,
    /// Its host.
    pub(crate) host: usize,
    /// False once its process has closed it or is gone.
    pub(crate) is_open: bool,
    /// On the way to it.
    inbound: VecDeque<Packet>,
    /// Packets that arrived at a cut, or at a host without power.
    n_held: usize,
    /// Time of the last arrival.
    last: Duration,
}

/// A connection: who made it, and who accepted it.
pub(crate) type Line = [End; 2];

/// All connections, and which hosts reach each other.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) lines: Vec<Line>,
    /// Cuts from a host to another, each as often as it was cut.
    cuts: BTreeMap<(usize, usize), u32>,
    /// Factors of slow hosts.
    pub(crate) slow: Vec<u32>,
    /// Hosts without power.
    pub(crate) is_down: Vec<bool>,
    draws: Draws,
}

impl Network {
    pub(crate) fn new(n_hosts: usize, draws: Draws) -> Network {
        let (slow, is_down) = (vec![1; n_hosts], vec![false; n_hosts]);
        Network { lines: Vec::new(), cuts: BTreeMap::new(), slow, is_down, draws }
    }

    /// Time of one trip.
    pub(crate) fn delay(&mut self, from: usize, to: usize) -> Duration {
        let millis = if from == to { self.draws.millis(0, 1) } else { self.draws.millis(0, 20) };
        millis * self.slow[from].max(self.slow[to])
    }

    /// Cuts the way from a host to another, or heals it.
    pub(crate) fn cut(&mut self, from: usize, to: usize, is_cut: bool) {
        let n = self.cuts.entry((from, to)).or_insert(0);
        *n = if is_cut { *n + 1 } else { n.saturating_sub(1) };
    }

    /// True if packets from a host reach another.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        !self.is_down[from] && !self.is_down[to] && self.cuts.get(&(from, to)).is_none_or(|n| *n == 0)
    }

    /// True if each of two hosts reaches the other.
    pub(crate) fn is_connected(&self, one: usize, other: usize) -> bool {
        self.reaches(one, other) && self.reaches(other, one)
    }

    /// Connects two processes; the number of the connection. The first end is the one that connects.
    pub(crate) fn connect(&mut self, ends: [(usize, usize); 2]) -> usize {
        let end = |(process, host)| End {
            process,
            host,
            is_open: true,
            inbound: VecDeque::new(),
            n_held: 0,
            last: Duration::ZERO,
        };
        self.lines.push(ends.map(end));
        self.lines.len() - 1
    }

    /// The end of a connection that belongs to a process.
    pub(crate) fn end_of(&self, line: usize, process: usize) -> usize {
        usize::from(self.lines[line][1].process == process)
    }

    /// True if what a process sent waits for the way to heal.
    pub(crate) fn is_stuck(&self, line: usize, process: usize) -> bool {
        self.lines[line][1 - self.end_of(line, process)].n_held > 0
    }

    /// Sends a packet from a process.
    pub(crate) fn send(
        &mut self,
        line: usize,
        process: usize,
        packet: Packet,
        now: Duration,
        queue: &mut Queue<Event>,
    ) {
        let end = self.end_of(line, process);
        if self.lines[line][end].is_open {
            self.put(line, 1 - end, packet, now, queue);
        }
    }

    /// Puts a packet on its way to an end.
    fn put(&mut self, line: usize, to: usize, packet: Packet, now: Duration, queue: &mut Queue<Event>) {
        let delay = self.delay(self.lines[line][1 - to].host, self.lines[line][to].host);
        let end = &mut self.lines[line][to];
        end.last = end.last.max(now + delay);
        end.inbound.push_back(packet);
        queue.add(end.last, Event::Arrive { line, end: to });
    }

    /// Closes the end of a process.
    pub(crate) fn close(&mut self, line: usize, process: usize, now: Duration, queue: &mut Queue<Event>) {
        self.send(line, process, Packet::Close(None), now, queue);
        let end = self.end_of(line, process);
        self.lines[line][end].is_open = false;
    }

    /// A packet arrives: the process that gets it, and the packet.
    pub(crate) fn arrive(
        &mut self,
        line: usize,
        end: usize,
        now: Duration,
        queue: &mut Queue<Event>,
    ) -> Option<(usize, Packet)> {
        let (from, to) = (self.lines[line][1 - end].host, self.lines[line][end].host);
        if !self.reaches(from, to) {
            self.lines[line][end].n_held += 1;
            return None;
        }
        let packet = self.lines[line][end].inbound.pop_front()?;
        if self.lines[line][end].is_open {
            return Some((self.lines[line][end].process, packet));
        }
        // Nobody has this connection any more: its other end is told.
        if !matches!(packet, Packet::Close(_)) && self.lines[line][1 - end].is_open {
            self.put(line, 1 - end, Packet::Close(Some("connection reset")), now, queue);
        }
        None
    }

    /// Breaks a connection for both ends.
    pub(crate) fn reset(&mut self, line: usize, now: Duration, queue: &mut Queue<Event>) {
        for to in [0, 1] {
            self.put(line, to, Packet::Close(Some("connection reset")), now, queue);
        }
    }

    /// Flips a bit of a frame that is on its way to an end; whether there was one.
    pub(crate) fn garble(&mut self, line: usize, end: usize) -> bool {
        let frame = self.lines[line][end].inbound.iter_mut().find_map(|packet| match packet {
            Packet::Frame(_, piece) if !piece.is_empty() => Some(piece),
            _ => None,
        });
        frame.is_some_and(|piece| {
            piece[0] ^= 4;
            true
        })
    }

    /// Ways were healed: what was kept goes on.
    pub(crate) fn resume(&mut self, now: Duration, queue: &mut Queue<Event>) {
        for line in 0..self.lines.len() {
            for end in [0, 1] {
                let n_held = std::mem::take(&mut self.lines[line][end].n_held);
                for _ in 0..n_held {
                    let delay = self.delay(self.lines[line][1 - end].host, self.lines[line][end].host);
                    let place = &mut self.lines[line][end];
                    place.last = place.last.max(now + delay);
                    queue.add(place.last, Event::Arrive { line, end });
                }
            }
        }
    }

    /// Open connections of a process.
    pub(crate) fn lines_of(&self, process: usize) -> Vec<usize> {
        let is_its = |line: &usize| self.lines[*line].iter().any(|end| end.process == process && end.is_open);
        (0..self.lines.len()).filter(is_its).collect()
    }
}
