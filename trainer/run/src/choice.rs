//! Names of choices.

/// One of a few things that have a name in run files.
pub trait Choice: Copy + PartialEq + 'static {
    /// All of them.
    const ALL: &'static [(&'static str, Self)];

    /// Its name.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, choice)| *choice == self).expect("every choice has a name").0
    }

    /// The one of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice)
    }
}
