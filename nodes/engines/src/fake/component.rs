//! The fakes as components, so that the real runtime serves them like any other.

use std::sync::Arc;

use mstar_contract::{Component, Compute, Engine, KvUse, LoadCx, LoadError, Loaded, OpDecl, Recovery, WeightSource};
use mstar_graph::ComponentId;

use super::{FakeCutter, FakeLlm, FakeLlmLimits, FakeStateless, FakeVocoder, FaultPlan, ServiceTime, Timed};
use crate::StatelessEngine;

/// The loop that the fake language model ends.
pub(super) const GENERATE: &str = "generate";

/// What all fake components of a deployment share.
#[derive(Clone, Debug)]
pub struct FakeSettings {
    /// Limits of the language model.
    pub llm: FakeLlmLimits,
    /// How long batches pretend to take.
    pub service: ServiceTime,
    /// Which batches panic.
    pub faults: Arc<FaultPlan>,
}

/// A fake component.
#[derive(Clone, Debug)]
pub struct FakeComponent {
    part: Part,
    settings: FakeSettings,
}

/// The fake components that there are.
#[derive(Clone, Copy, Debug)]
enum Part {
    Llm,
    Text,
    Cutter,
    Vocoder,
}

// --- impl FakeSettings ---

impl Default for FakeSettings {
    fn default() -> Self {
        Self { llm: FakeLlmLimits::default(), service: ServiceTime::default(), faults: FaultPlan::none() }
    }
}

// --- impl FakeComponent ---

impl FakeComponent {
    /// Returns all fake components: `fake.llm`, `fake.text`, `fake.cutter` and `fake.vocoder`.
    pub fn all(settings: &FakeSettings) -> Vec<Arc<dyn Component>> {
        let parts = [Part::Llm, Part::Text, Part::Cutter, Part::Vocoder];
        parts.map(|part| Arc::new(Self { part, settings: settings.clone() }) as Arc<dyn Component>).into()
    }

    fn stateless(&self, compute: impl Compute + 'static) -> Box<dyn Engine> {
        Box::new(Timed::new(StatelessEngine::new(Box::new(compute)), self.settings.service))
    }
}

impl Component for FakeComponent {
    fn id(&self) -> ComponentId {
        let id = match self.part {
            Part::Llm => "fake.llm",
            Part::Text => "fake.text",
            Part::Cutter => "fake.cutter",
            Part::Vocoder => "fake.vocoder",
        };
        id.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        match self.part {
            Part::Llm => vec![
                OpDecl::new("prefill", &["prompt"], &["token", "text"]).stops(GENERATE).kv(KvUse::Begin),
                OpDecl::new("decode", &["token"], &["token", "text"]).stops(GENERATE).kv(KvUse::Extend),
            ],
            Part::Text => vec![
                OpDecl::new("echo", &["in"], &["out"]),
                OpDecl::new("upper", &["in"], &["out"]),
                OpDecl::new("reverse", &["in"], &["out"]),
                OpDecl::new("grow", &["in"], &["out"]),
                OpDecl::new("join", &["a", "b", "c"], &["out"]),
                OpDecl::new("concat", &["items"], &["out"]),
                OpDecl::new("split", &["in"], &["item"]),
                OpDecl::new("emit", &["in"], &["item"]),
            ],
            Part::Cutter => vec![OpDecl::new("cut", &["text"], &["item"])],
            Part::Vocoder => vec![OpDecl::new("speak", &["items"], &["audio"])],
        }
    }

    fn recovery(&self) -> Recovery {
        match self.part {
            Part::Llm => Recovery::Replay,
            Part::Text => Recovery::Redo,
            Part::Cutter | Part::Vocoder => Recovery::Restart,
        }
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let FakeSettings { mut llm, service, faults } = self.settings.clone();
        llm.max_tokens = llm.max_tokens.min(cx.max_output_tokens);
        let engine: Box<dyn Engine> = match self.part {
            Part::Llm => Box::new(Timed::new(FakeLlm::new(GENERATE, llm, faults), service)),
            Part::Text => self.stateless(FakeStateless::new(faults)),
            Part::Cutter => self.stateless(FakeCutter::new(faults)),
            Part::Vocoder => self.stateless(FakeVocoder::new(faults)),
        };
        Ok(Loaded::Engine(engine))
    }
}
