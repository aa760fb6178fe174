//! Weights of classes in run files: `"balanced"`, or `[1.0, 2.5]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Weights of classes in the node loss.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// All the same.
    Equal,
    /// One over the number of training nodes of the class.
    Balanced,
    /// One number per class.
    Given(Vec<f64>),
}

const NAMES: [&str; 2] = ["equal", "balanced"];

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Numbers(Vec<f64>),
}

impl Serialize for ClassWeights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ClassWeights::Equal => NAMES[0].serialize(serializer),
            ClassWeights::Balanced => NAMES[1].serialize(serializer),
            ClassWeights::Given(weights) => weights.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ClassWeights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClassWeights, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Name(name) if name == NAMES[0] => Ok(ClassWeights::Equal),
            Written::Name(name) if name == NAMES[1] => Ok(ClassWeights::Balanced),
            Written::Name(name) => Err(D::Error::custom(format!("no value is called {name:?}"))),
            Written::Numbers(weights) => Ok(ClassWeights::Given(weights)),
        }
    }
}

impl JsonSchema for ClassWeights {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ClassWeights".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let numbers =
            serde_json::json!({ "type": "array", "items": { "type": "number", "minimum": 0 }, "minItems": 1 });
        json_schema!({ "anyOf": [{ "type": "string", "enum": NAMES }, numbers] })
    }
}
