//! The pool computes everything once, in order, whatever its threads do.

use super::*;

fn squares(pool: &Pool, n: usize) -> Vec<usize> {
    let mut out = vec![0; n];
    pool.chunks(&mut out, 3, |chunk, part| {
        for (i, x) in part.iter_mut().enumerate() {
            *x = (chunk * 3 + i).pow(2);
        }
    });
    out
}

fn is_squares(items: &[usize]) -> bool {
    items.iter().enumerate().all(|(i, &x)| x == i * i)
}

#[test]
fn every_task_runs_exactly_once_for_any_number_of_threads() {
    for threads in 1..=4 {
        let pool = Pool::new(threads, Affinity::Free).unwrap();
        assert_eq!(pool.threads(), threads);
        for n in [0, 1, 2, 7, 100] {
            let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            pool.each(n, |i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{threads} threads, {n} tasks");
            assert!(is_squares(&squares(&pool, n)));
        }
    }
}

#[test]
fn thousands_of_small_jobs_finish() {
    let pool = Pool::new(3, Affinity::Free).unwrap();
    let total = AtomicUsize::new(0);
    for _ in 0..5_000 {
        pool.each(4, |i| {
            total.fetch_add(i, Ordering::Relaxed);
        });
    }
    assert_eq!(total.into_inner(), 5_000 * 6);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_stays_usable() {
    let pool = Pool::new(3, Affinity::Free).unwrap();
    for bad in 0..20 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.each(20, |i| assert_ne!(i, bad, "task {i} breaks"));
        }));
        assert!(caught.is_err());
        assert!(is_squares(&squares(&pool, 50)));
    }
}

#[test]
fn callers_take_turns_and_nested_forks_run_alone() {
    let pool = Pool::new(2, Affinity::Free).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert!(is_squares(&squares(&pool, 30)));
                }
            });
        }
    });
    let total = AtomicUsize::new(0);
    pool.each(5, |_| {
        assert!(is_squares(&squares(&pool, 10)));
        total.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(total.into_inner(), 5);
}

#[test]
fn pinning_keeps_a_pool_working() {
    let pool = Pool::new(2, Affinity::Cores(vec![0, 0])).unwrap();
    assert!(is_squares(&squares(&pool, 64)));
    assert!(!Affinity::Free.pin(0));
    assert!(!Affinity::Cores(vec![usize::MAX]).pin(0));
}

#[test]
fn two_tasks_that_wait_for_each_other_both_run() {
    let pool = Pool::new(2, Affinity::Free).unwrap();
    for _ in 0..100 {
        let met = std::sync::Barrier::new(2);
        pool.each(2, |_| _ = met.wait());
    }
}
