//! The names of the graph's parts: cheap to clone, ordered, never mixed up with each other.
//! Inside a graph, parts are found by small integers; names are for people, plans and messages.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes the name.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// Returns the name's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                Self(name.into())
            }
        }

        impl From<&$name> for $name {
            fn from(name: &$name) -> Self {
                name.clone()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

names! {
    /// Names a node of a graph.
    NodeName,
    /// Names one entry point of a node, such as `prefill` or `decode`.
    OpName,
    /// Names a step of a walk; `node.op` unless the step was given another name.
    StepName,
    /// Names an input, an output or a signal of an op, an input of a walk or a result of one.
    Port,
    /// Names a walk.
    WalkName,
    /// Names a partition: one independent walk state machine of a request.
    PartitionName,
    /// Names a loop and its stop signal.
    LoopName,
    /// Names a streaming edge between two partitions.
    StreamName,
    /// Names a value that stays on its rank for later walks of the request.
    KeptName,
    /// Names a component, such as `smollm2.llm`, that several models may share.
    ComponentId,
    /// Names a model as clients ask for it.
    ModelId,
}

macro_rules! indices {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Returns the position, for indexing tables that run parallel to the graph's.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            pub(crate) fn at(index: usize) -> Self {
                Self(u32::try_from(index).expect("invariant: a graph has fewer than 2^32 parts"))
            }
        }
    )*};
}

indices! {
    /// Finds a step in its graph.
    StepIx,
    /// Finds a stream in its graph.
    StreamIx,
    /// Finds a walk in its graph.
    WalkIx,
    /// Finds a loop in its graph.
    LoopIx,
}

/// What a value is to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// UTF-8 text.
    Text,
    /// Sound.
    Audio,
    /// A still picture.
    Image,
    /// Moving pictures.
    Video,
    /// A robot's action.
    Action,
    /// Raw numbers.
    Tensor,
    /// JSON side information, such as log-probabilities or timestamps.
    Detail,
}

/// Says that a word names no modality.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown modality `{0}`")]
pub struct UnknownModality(String);

// --- impl Modality ---

impl Modality {
    /// All modalities.
    pub const ALL: [Modality; 7] = [
        Modality::Text,
        Modality::Audio,
        Modality::Image,
        Modality::Video,
        Modality::Action,
        Modality::Tensor,
        Modality::Detail,
    ];

    /// Returns the modality's word, lower-case.
    pub fn as_str(self) -> &'static str {
        match self {
            Modality::Text => "text",
            Modality::Audio => "audio",
            Modality::Image => "image",
            Modality::Video => "video",
            Modality::Action => "action",
            Modality::Tensor => "tensor",
            Modality::Detail => "detail",
        }
    }
}

impl fmt::Display for Modality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Modality {
    type Err = UnknownModality;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = Modality::ALL.into_iter().find(|m| m.as_str() == word);
        known.ok_or_else(|| UnknownModality(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_modality_reads_back_what_it_shows() {
        for modality in Modality::ALL {
            assert_eq!(modality.to_string().parse(), Ok(modality));
            let json = serde_json::to_string(&modality).unwrap();
            assert_eq!(json, format!("\"{modality}\""));
        }
        assert_eq!("Text".parse::<Modality>().unwrap_err().to_string(), "unknown modality `Text`");
    }

    #[test]
    fn names_travel_as_plain_text() {
        let name = StreamName::from("tokens");
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"tokens\"");
        assert_eq!(serde_json::from_str::<StreamName>("\"tokens\"").unwrap(), name);
        let mut names = ["b", "c", "a"].map(NodeName::from);
        names.sort();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
