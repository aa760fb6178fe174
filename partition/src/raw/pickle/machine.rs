//! Stack machine that runs a pickle, without any opcode that could execute code.

use std::collections::HashMap;

use super::node::{CLASSES, Class, Node, NodeId};

const NONE: NodeId = 0;
const FALSE: NodeId = 1;
const TRUE: NodeId = 2;
const EMPTY_TUPLE: NodeId = 3;

/// Opcodes of Python's that are not followed here, so that a refusal can name them.
const REFUSED: [(u8, &str); 36] = [
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'F', "FLOAT"),
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (b'S', "STRING"),
    (b'V', "UNICODE"),
    (b'X', "BINUNICODE"),
    (b'd', "DICT"),
    (b'g', "GET"),
    (b'i', "INST"),
    (b'l', "LIST"),
    (b'o', "OBJ"),
    (b'p', "PUT"),
    (b'B', "BINBYTES"),
    (b'C', "SHORT_BINBYTES"),
    (b'G', "BINFLOAT"),
    (0x80, "PROTO"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x8a, "LONG1"),
    (0x8b, "LONG4"),
    (0x8c, "SHORT_BINUNICODE"),
    (0x8d, "BINUNICODE8"),
    (0x8e, "BINBYTES8"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x92, "NEWOBJ_EX"),
    (0x93, "STACK_GLOBAL"),
    (0x94, "MEMOIZE"),
    (0x95, "FRAME"),
];

/// All values, the one the pickle stands for, and the memory not used.
type Built = (Vec<Node>, NodeId, u64);

pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<NodeId>,
    marks: Vec<usize>,
    memo: HashMap<u32, NodeId>,
    left_bytes: u64,
}

impl<'a> Machine<'a> {
    pub(super) fn new(bytes: &'a [u8], left_bytes: u64) -> Machine<'a> {
        let nodes = vec![Node::None, Node::Bool(false), Node::Bool(true), Node::Tuple(Vec::new())];
        Machine { bytes, at: 0, nodes, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), left_bytes }
    }

    /// Runs the whole program; an error comes with the offset of the opcode that made it.
    pub(super) fn run(mut self) -> Result<Built, (usize, String)> {
        if !self.bytes.starts_with(&[0x80, 2]) {
            return Err((0, "this is not a pickle of protocol 2".to_owned()));
        }
        self.at = 2;
        loop {
            let opcode_at = self.at;
            let at = |problem| (opcode_at, problem);
            match self.byte().map_err(at)? {
                b'.' => return self.finish().map_err(at),
                opcode => self.step(opcode).map_err(at)?,
            }
        }
    }

    fn finish(self) -> Result<Built, String> {
        let n_after = self.bytes.len() - self.at;
        match (&self.stack[..], &self.marks[..], n_after) {
            (&[root], [], 0) => Ok((self.nodes, root, self.left_bytes)),
            ([_], [], _) => Err(format!("{n_after} bytes follow the end of the pickle")),
            _ => Err(format!("the pickle ends with {} values instead of one", self.stack.len())),
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            b'N' => self.push(NONE),
            0x88 => self.push(TRUE),
            0x89 => self.push(FALSE),
            b')' => self.push(EMPTY_TUPLE),
            b'}' => self.push_node(Node::Dict(Vec::new())),
            b']' => self.push_node(Node::List(Vec::new())),
            b'J' => self.take().and_then(|bytes| self.push_node(Node::Int(i32::from_le_bytes(bytes).into()))),
            b'K' => self.byte().and_then(|byte| self.push_node(Node::Int(byte.into()))),
            b'M' => self.take().and_then(|bytes| self.push_node(Node::Int(u16::from_le_bytes(bytes).into()))),
            b'U' => self.byte().and_then(|n_bytes| self.push_bytes(n_bytes.into())),
            b'T' => self.take().and_then(|length| self.push_bytes(i32::from_le_bytes(length).into())),
            b'c' => self.class().and_then(|class| self.push_node(Node::Class(class))),
            b'q' => self.byte().and_then(|slot| self.put(slot.into())),
            b'r' => self.take().and_then(|slot| self.put(u32::from_le_bytes(slot))),
            b'h' => self.byte().and_then(|slot| self.get(slot.into())),
            b'j' => self.take().and_then(|slot| self.get(u32::from_le_bytes(slot))),
            b'(' => self.mark(),
            b't' => self.pop_to_mark().and_then(|parts| self.push_node(Node::Tuple(parts))),
            0x85..=0x87 => self.tuple(usize::from(opcode - 0x84)),
            b'a' => self.pop().and_then(|item| self.append(&[item])),
            b'e' => self.pop_to_mark().and_then(|items| self.append(&items)),
            b's' => self.pop_pair().and_then(|pair| self.set_items(&pair)),
            b'u' => self.pop_to_mark().and_then(|items| self.set_items(&items)),
            b'R' => self.make(&[Class::ArrayMaker, Class::Dtype, Class::DefaultDict]),
            0x81 => self.make(&[Class::Csr]),
            b'b' => self.build(),
            _ => Err(match REFUSED.iter().find(|(refused, _)| *refused == opcode) {
                Some((_, name)) => format!("opcode {name} is not followed here"),
                None => format!("{opcode:#04x} is not an opcode"),
            }),
        }
    }

    fn class(&mut self) -> Result<Class, String> {
        let [module, name] = [self.line()?, self.line()?];
        match CLASSES.iter().find(|(known_module, known_name, _)| (*known_module, *known_name) == (module, name)) {
            Some((.., class)) => Ok(*class),
            None => {
                let show = |word: &[u8]| word[..word.len().min(80)].escape_ascii().to_string();
                Err(format!("class {}.{} is not read here", show(module), show(name)))
            }
        }
    }

    /// Makes an object of one of these classes; its making runs nothing.
    fn make(&mut self, classes: &[Class]) -> Result<(), String> {
        let [class, args] = self.pop_pair()?;
        match (&self.nodes[class as usize], &self.nodes[args as usize]) {
            (Node::Class(class), Node::Tuple(_)) if classes.contains(class) => {
                self.push_node(Node::Object { class: *class, args, state: None, items: Vec::new() })
            }
            (Node::Class(class), Node::Tuple(_)) => {
                Err(format!("an object of class {class:?} cannot be made this way"))
            }
            _ => Err("an object without a class or arguments".to_owned()),
        }
    }

    fn build(&mut self) -> Result<(), String> {
        let new = self.pop()?;
        let top = self.top()?;
        match &mut self.nodes[top as usize] {
            Node::Object { state: state @ None, .. } => *state = Some(new),
            _ => return Err("a state for something that takes none".to_owned()),
        }
        Ok(())
    }

    fn append(&mut self, items: &[NodeId]) -> Result<(), String> {
        self.charge(size_of_val(items))?;
        let top = self.top()?;
        match &mut self.nodes[top as usize] {
            Node::List(list) => list.extend_from_slice(items),
            _ => return Err("items for something that is not a list".to_owned()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[NodeId]) -> Result<(), String> {
        self.charge(size_of_val(items))?;
        let top = self.top()?;
        let entries = match &mut self.nodes[top as usize] {
            Node::Dict(entries) | Node::Object { class: Class::DefaultDict, items: entries, .. } => entries,
            _ => return Err("entries for something that is not a dict".to_owned()),
        };
        let (pairs, rest) = items.as_chunks::<2>();
        entries.extend_from_slice(pairs);
        if rest.is_empty() { Ok(()) } else { Err("a key without a value".to_owned()) }
    }

    fn tuple(&mut self, n_parts: usize) -> Result<(), String> {
        let mut parts = vec![NONE; n_parts];
        for part in parts.iter_mut().rev() {
            *part = self.pop()?;
        }
        self.push_node(Node::Tuple(parts))
    }

    fn put(&mut self, slot: u32) -> Result<(), String> {
        self.charge(2 * size_of::<(u32, NodeId)>())?;
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn get(&mut self, slot: u32) -> Result<(), String> {
        match self.memo.get(&slot) {
            Some(&id) => self.push(id),
            None => Err(format!("nothing was put in slot {slot}")),
        }
    }

    fn mark(&mut self) -> Result<(), String> {
        self.charge(size_of::<usize>())?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn push_bytes(&mut self, n_bytes: i64) -> Result<(), String> {
        let start = self.at;
        let n_left = self.bytes.len() - start;
        match usize::try_from(n_bytes) {
            Ok(n_bytes) if n_bytes <= n_left => {
                self.at += n_bytes;
                self.push_node(Node::Bytes(start..self.at))
            }
            _ => Err(format!("a string of {n_bytes} bytes, where {n_left} are left")),
        }
    }

    fn push_node(&mut self, node: Node) -> Result<(), String> {
        let n_parts = if let Node::Tuple(parts) = &node { parts.len() } else { 0 };
        self.charge(size_of::<Node>() + size_of::<NodeId>() * n_parts)?;
        let id = NodeId::try_from(self.nodes.len()).map_err(|_| "too many values")?;
        self.nodes.push(node);
        self.push(id)
    }

    fn push(&mut self, id: NodeId) -> Result<(), String> {
        self.charge(size_of::<NodeId>())?;
        self.stack.push(id);
        Ok(())
    }

    fn pop(&mut self) -> Result<NodeId, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_pair(&mut self) -> Result<[NodeId; 2], String> {
        let second = self.pop()?;
        Ok([self.pop()?, second])
    }

    fn pop_to_mark(&mut self) -> Result<Vec<NodeId>, String> {
        let mark = self.marks.pop().ok_or("no mark to go back to")?;
        Ok(self.stack.drain(mark..).collect())
    }

    /// The value on top of the stack, above the last mark.
    fn top(&self) -> Result<NodeId, String> {
        match self.stack.last() {
            Some(&id) if self.marks.last().is_none_or(|&mark| mark < self.stack.len()) => Ok(id),
            _ => Err("a value is needed, and there is none".to_owned()),
        }
    }

    fn charge(&mut self, n_bytes: usize) -> Result<(), String> {
        match self.left_bytes.checked_sub(n_bytes as u64) {
            Some(left_bytes) => self.left_bytes = left_bytes,
            None => return Err("its values take more memory than is allowed here".to_owned()),
        }
        Ok(())
    }

    fn line(&mut self) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let n_bytes = rest.iter().position(|&byte| byte == b'\n').ok_or("a name that does not end")?;
        self.at += n_bytes + 1;
        Ok(&rest[..n_bytes])
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.bytes[self.at..].first_chunk().ok_or("the pickle ends early")?;
        self.at += N;
        Ok(*bytes)
    }
}
