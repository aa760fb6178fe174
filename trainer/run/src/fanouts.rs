//! Fanouts in run files: `[10, 10]`, `["all", 5]`, `"all"`.

use std::borrow::Cow;

use kith_sampler::Fanout;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// One fanout, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Written),
    Many(Vec<Written>),
}

/// One fanout.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u32),
    Text(String),
}

impl Written {
    fn fanout(&self) -> Option<Fanout> {
        match self {
            Written::Number(n) => Fanout::at_most(*n).ok(),
            Written::Text(text) => (text == "all").then_some(Fanout::All),
        }
    }
}

pub(crate) fn serialize<S: Serializer>(fanouts: &[Fanout], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(fanouts.iter().map(|fanout| match fanout {
        Fanout::All => Written::Text("all".to_owned()),
        Fanout::AtMost(n) => Written::Number(n.get()),
    }))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Fanout>, D::Error> {
    let written = match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    };
    let fanouts: Option<Vec<Fanout>> = written.iter().map(Written::fanout).collect();
    fanouts
        .filter(|fanouts| !fanouts.is_empty())
        .ok_or_else(|| D::Error::custom("a fanout is a number from 1, or \"all\""))
}

/// The schema of fanouts.
pub(crate) struct Fanouts;

impl JsonSchema for Fanouts {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Fanouts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = serde_json::json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": u32::MAX }, { "const": "all" }] });
        json_schema!({ "anyOf": [{ "type": "array", "items": one, "minItems": 1 }, one] })
    }
}
