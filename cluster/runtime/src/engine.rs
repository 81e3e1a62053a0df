//! From a component to the engine that a rank drives.

use std::path::PathBuf;
use std::sync::Arc;

use mstar_actors::MakeEngine;
use mstar_config::Limits;
use mstar_contract::{Component, Engine, KvGeometry, LoadCx, LoadError, Loaded};
use mstar_engines::{PagedEngine, PagedLimits, StatelessEngine, page_bytes};
use mstar_kernels::{Affinity, Cx};

use crate::placement::PlacedNode;

/// Returns what makes a node's engine on its rank's compute thread.
pub(crate) fn maker(
    component: Arc<dyn Component>,
    node: &PlacedNode,
    dir: PathBuf,
    affinity: Affinity,
    bounds: &Limits,
) -> MakeEngine {
    let precision = node.precision;
    let limits = paged_limits(node);
    let (audio_seconds, max_output_tokens) = (bounds.audio_seconds, bounds.max_output_tokens);
    Box::new(move |cx, gauge| {
        // The thread that loads is the one that computes; it is thread 0 of its pool.
        affinity.pin(0);
        refuse_cpu_only(&*component, cx)?;
        let loaded = component.load(&LoadCx { dir: &dir, precision, cx, gauge, audio_seconds, max_output_tokens })?;
        wrap(loaded, &*component, limits, cx)
    })
}

fn wrap(loaded: Loaded, component: &dyn Component, limits: PagedLimits, cx: &Cx) -> Result<Box<dyn Engine>, LoadError> {
    match loaded {
        Loaded::Stateless(compute) => Ok(Box::new(StatelessEngine::new(compute))),
        Loaded::Paged(decoder) => {
            refuse_no_page(component, &limits, &decoder.geometry())?;
            let engine = PagedEngine::new(decoder, &component.ops(), limits, cx);
            let engine = engine.map_err(|error| LoadError { component: component.id(), message: error.to_string() })?;
            Ok(Box::new(engine))
        }
        Loaded::Engine(engine) => Ok(engine),
    }
}

/// Refuses a component whose code reads numbers where a rank on a GPU has none.
fn refuse_cpu_only(component: &dyn Component, cx: &Cx) -> Result<(), LoadError> {
    if cx.gpu().is_none() || component.on_gpu() {
        return Ok(());
    }
    let message = "it computes on the CPU only; place it on a rank whose device is \"cpu\"".to_owned();
    Err(LoadError { component: component.id(), message })
}

/// Refuses a budget that is too small for a single page.
fn refuse_no_page(component: &dyn Component, limits: &PagedLimits, shape: &KvGeometry) -> Result<(), LoadError> {
    if limits.budget.pages(shape) > 0 {
        return Ok(());
    }
    let message = format!("its kv_budget is less than a page of {} bytes", page_bytes(shape));
    Err(LoadError { component: component.id(), message })
}

fn paged_limits(node: &PlacedNode) -> PagedLimits {
    let budget = match node.kv {
        Some(budget) => budget,
        None => PagedLimits::default().budget,
    };
    let max_batch_tokens = node.limits.max_tokens;
    // A piece of a prompt may be as long as a pass: the engine makes it shorter where others would wait for it.
    PagedLimits { budget, max_batch_tokens, prefill_chunk: max_batch_tokens }
}
