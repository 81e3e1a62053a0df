//! The engine on a device, which is the host's shim: the same tokens alone and in company, captured and plain.

use super::*;

/// An engine whose decoder lies on a device, and the device's rank; nothing where no C++ compiler starts.
fn on_device(limits: PagedLimits, precision: Precision, crosses: bool) -> Option<(PagedEngine, Rank, Arc<Probe>)> {
    let rank = Rank::on(Cx::with_threads(1).unwrap().with_gpu(mstar_shim::device()?));
    let probe = Arc::<Probe>::default();
    let tiny = Tiny::new(precision, crosses, Arc::clone(&probe)).on(&rank.cx).unwrap();
    Some((PagedEngine::new(Box::new(tiny), &ops_of_tiny(), limits, &rank.cx).unwrap(), rank, probe))
}

/// Some of the generations: kernels take their time on the host.
fn some() -> Vec<Generation> {
    generations().into_iter().take(3).collect()
}

fn replayed(engine: &PagedEngine) -> u64 {
    engine.captures.as_ref().map_or(0, Captures::replayed)
}

#[test]
fn a_device_gives_the_same_tokens_in_company_and_after_losses() {
    for (precision, crosses) in [(Precision::F32, false), (Precision::Bf16, true)] {
        let Some((mut large, rank, _)) = on_device(limits(64, 1000, 1000), precision, crosses) else { return };
        let alone: Vec<_> = some().into_iter().map(|g| g.run(&rank, &mut large)).collect();
        assert!(replayed(&large) > 10, "{} steps ran as a whole", replayed(&large));

        let (mut small, rank, _) = on_device(limits(9, 11, 5), precision, crosses).unwrap();
        let together = run_together(&rank, &mut small, some(), |_, _| true, |round| round == 9);
        assert_eq!(seen(&together), seen(&alone));
        assert_eq!(held(&small), (0, 9, 0));
        assert!(replayed(&small) > 0);

        let (mut plain, rank, _) = on_device(limits(64, 1000, 1000), precision, crosses).unwrap();
        plain.captures = None;
        let plain: Vec<_> = some().into_iter().map(|g| g.run(&rank, &mut plain)).collect();
        assert_eq!(seen(&plain), seen(&alone));
    }
}

#[test]
fn a_device_agrees_with_the_cpu_where_nothing_is_close() {
    let Some((mut engine, rank, _)) = on_device(limits(64, 1000, 1000), Precision::F32, true) else { return };
    let run = |generation: Generation| generation.run(&rank, &mut engine).tokens;
    let on_device: Vec<_> = some().into_iter().map(run).collect();
    assert_eq!(on_device, alone(true).into_iter().take(3).map(|generation| generation.tokens).collect::<Vec<_>>());
}

#[test]
fn a_pass_that_panics_on_a_device_is_run_again() {
    let Some((mut engine, rank, probe)) = on_device(limits(64, 1000, 1000), Precision::F32, false) else { return };
    let alone = Generation::new(1, "tell me more", greedy(16)).run(&rank, &mut engine);
    let mut stirred = Generation::new(2, "tell me more", greedy(16));
    // While it is plain, while it is captured, and while it is compared.
    for round in 0.. {
        if stirred.finish.is_some() {
            break;
        }
        if [1, 2, 5].contains(&round) {
            probe.hiccups.store(1, Ordering::Relaxed);
        }
        let (op, row) = stirred.next();
        stirred.take(rank.finish(&mut engine, op, row).unwrap());
    }
    assert_eq!((stirred.tokens, stirred.finish), (alone.tokens, alone.finish));
}
