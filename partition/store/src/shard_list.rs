//! Numbers of shards as text: `0,2-3`.

use std::collections::BTreeSet;

/// Most shards of a partitioned graph.
const MAX_SHARDS: u32 = 1 << 16;

/// Numbers of shards, as typed: commas between numbers and ranges, as in `0,2-3`.
pub fn parse_shard_list(text: &str) -> Result<BTreeSet<u32>, String> {
    let number = |text: &str| match text.trim().parse() {
        Ok(shard) if shard < MAX_SHARDS => Ok(shard),
        _ => Err(format!("expected shard numbers and ranges, as in 0,2-3, found {text}")),
    };
    let mut shards = BTreeSet::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => drop(shards.insert(number(part)?)),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("{part} is no range of shards: expected the lower number first"));
                }
                shards.extend(first..=last);
            }
        }
    }
    Ok(shards)
}

/// Numbers of shards in the form that [`parse_shard_list`] reads; `none` if there are none.
pub fn shard_list(shards: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for shard in shards {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *shard => *last = *shard,
            _ => ranges.push((*shard, *shard)),
        }
    }
    let text = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    if ranges.is_empty() { "none".to_owned() } else { ranges.iter().map(text).collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        for (text, shards) in [
            ("0", &[0][..]),
            ("0,2-4", &[0, 2, 3, 4]),
            ("0-65535", &(0..65_536).collect::<Vec<_>>()),
            ("7,8", &[7, 8]),
            ("1,3,5", &[1, 3, 5]),
        ] {
            let shards: BTreeSet<u32> = shards.iter().copied().collect();
            assert_eq!(parse_shard_list(text).unwrap(), shards, "{text}");
            assert_eq!(shard_list(&shards), text);
        }
        assert_eq!(parse_shard_list("3, 1-2,2").unwrap(), BTreeSet::from([1, 2, 3]));
        assert_eq!(shard_list(&BTreeSet::new()), "none");
    }

    #[test]
    fn wrong_lists_are_refused() {
        for text in ["", "x", "1,", "-1", "2-", "1-2-3", "65536", "0-4294967295", "0 1"] {
            let problem = parse_shard_list(text).unwrap_err();
            assert!(problem.contains("expected shard numbers and ranges, as in 0,2-3, found "), "{text}: {problem}");
        }
        assert!(parse_shard_list("0,3-2").unwrap_err().starts_with("3-2 is no range"));
    }
}
