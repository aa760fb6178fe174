//! Named values of a run file.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A value with a name in run files.
pub trait Choice: Copy + PartialEq + 'static {
    /// All values, by name.
    const ALL: &'static [(&'static str, Self)];

    /// Its name.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, choice)| *choice == self).expect("every choice has a name").0
    }

    /// The value of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice)
    }
}

/// The schema of a [`Choice`]: its names.
pub(crate) struct Named<T>(PhantomData<T>);

impl<T: Choice> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<T>().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = T::ALL.iter().map(|(name, _)| *name).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

/// Reads and writes a [`Choice`] by its name, for `#[serde(with = "named")]`.
pub(crate) mod named {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Choice;

    pub(crate) fn serialize<T: Choice, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.name())
    }

    pub(crate) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        T::from_name(&name).ok_or_else(|| D::Error::custom(format!("no value is called {name:?}")))
    }
}

/// The same for a [`Choice`] that may be left open.
pub(crate) mod named_option {
    use serde::{Deserializer, Serializer};

    use super::{Choice, named};

    pub(crate) fn serialize<T: Choice, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => named::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        named::deserialize(deserializer).map(Some)
    }
}
