//! Fanouts as typed: `10,10` or `10,all`.

use std::{fmt, num::NonZeroU32, str::FromStr};

/// Maximum number of neighbors sampled at each hop, from the seed nodes outwards; `None` takes all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fanouts(pub(crate) Vec<Option<NonZeroU32>>);

impl FromStr for Fanouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Fanouts, String> {
        let fanout = |text: &str| match text.trim() {
            "all" => Ok(None),
            n => n.parse().map(Some).map_err(|_| "expected fanouts of 1 or more, as in 10,10 or 10,all".to_owned()),
        };
        text.split(',').map(fanout).collect::<Result<_, _>>().map(Fanouts)
    }
}

impl fmt::Display for Fanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.0.iter().map(|fanout| fanout.map_or("all".to_owned(), |n| n.to_string()));
        f.write_str(&listed.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_are_understood() {
        assert_eq!("10,5".parse(), Ok(Fanouts(vec![NonZeroU32::new(10), NonZeroU32::new(5)])));
        assert_eq!("15, all".parse(), Ok(Fanouts(vec![NonZeroU32::new(15), None])));
        assert_eq!("15, all".parse::<Fanouts>().map(|fanouts| fanouts.to_string()), Ok("15,all".to_owned()));
        for wrong in ["", "0", "10,", "-1", "ten", "10;10"] {
            assert!(wrong.parse::<Fanouts>().is_err(), "{wrong}");
        }
    }
}
