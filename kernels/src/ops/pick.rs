//! The greatest entries of rows. Of equal entries the first counts; what is not a number never does.

use std::cmp::Ordering;

use crate::error::{below, need};
use crate::{Cx, KernelError, Tensor, gpu};

/// The greatest entries of every row, falling.
#[derive(Clone, Debug)]
pub struct TopK {
    /// Their values, `[rows, k]`.
    pub values: Tensor,
    /// Their places in the row, `[rows, k]`, `u32`.
    pub indices: Tensor,
}

/// Returns the place of the greatest entry of every row.
pub fn argmax(cx: &Cx, x: &Tensor) -> Result<Vec<u32>, KernelError> {
    let width = x.shape().width();
    need(width > 0, "argmax", "rows are not empty", &[x.shape()])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::argmax(gpu, x);
    }
    let cpu = cx.cpu_for("argmax")?;
    let items = x.f32s()?;
    let mut places = vec![0; x.shape().height()];
    cpu.pool.chunks(&mut places, (32_768 / width).max(1), |chunk, places| {
        let first = chunk * (32_768 / width).max(1);
        for (i, place) in places.iter_mut().enumerate() {
            *place = greatest(&items[(first + i) * width..][..width]);
        }
    });
    Ok(places)
}

/// Returns the `k` greatest entries of every row.
pub fn top_k(cx: &Cx, x: &Tensor, k: usize) -> Result<TopK, KernelError> {
    let width = x.shape().width();
    below("top_k", "k", k, width + 1)?;
    if let Some(gpu) = cx.gpu() {
        let (values, indices) = gpu::ops::top_k(gpu, x, k)?;
        return Ok(TopK { values, indices });
    }
    cx.cpu_for("top_k")?;
    let items = x.f32s()?;
    let mut order: Vec<u32> = Vec::with_capacity(width);
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in items.chunks_exact(width.max(1)) {
        order.clear();
        order.extend(0..width as u32);
        let falling = |a: &u32, b: &u32| falling(row, *a, *b);
        if k > 0 && k < width {
            order.select_nth_unstable_by(k - 1, falling);
        }
        order.truncate(k);
        order.sort_unstable_by(falling);
        indices.extend_from_slice(&order);
        values.extend(order.iter().map(|&i| row[i as usize]));
    }
    let shape = x.shape().with_width(k);
    Ok(TopK { values: Tensor::from_f32(values, shape)?, indices: Tensor::from_u32(indices, shape)? })
}

fn greatest(row: &[f32]) -> u32 {
    // Sixteen running maxima, then the first place that holds the greatest of them.
    let mut most = [f32::NEG_INFINITY; 16];
    let (whole, rest) = row.as_chunks::<16>();
    for part in whole {
        for (most, &x) in most.iter_mut().zip(part) {
            *most = if x > *most { x } else { *most };
        }
    }
    let greatest = most.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&x| x == greatest).unwrap_or(0) as u32
}

fn falling(row: &[f32], a: u32, b: u32) -> Ordering {
    let key = |i: u32| if row[i as usize].is_nan() { f32::NEG_INFINITY } else { row[i as usize] };
    key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal).then(a.cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::random;

    #[test]
    fn top_k_is_the_head_of_the_sorted_row_and_argmax_its_first() {
        let cx = Cx::with_threads(2).unwrap();
        for width in [1, 17, 200] {
            let x = random(1, [5, width]);
            let first = argmax(&cx, &x).unwrap();
            for k in [1, width.min(3), width] {
                let top = top_k(&cx, &x, k).unwrap();
                for (row, &first) in first.iter().enumerate() {
                    let items = x.rows(row..row + 1).unwrap();
                    let mut sorted = items.f32s().unwrap().to_vec();
                    sorted.sort_by(|a, b| b.total_cmp(a));
                    let (values, indices) = (top.values.rows(row..row + 1), top.indices.rows(row..row + 1));
                    assert_eq!(values.unwrap().f32s().unwrap(), &sorted[..k]);
                    assert_eq!(indices.unwrap().u32s().unwrap()[0], first);
                }
            }
        }
    }

    #[test]
    fn ties_go_to_the_first_and_nan_never_wins() {
        let cx = Cx::with_threads(1).unwrap();
        let x = Tensor::from_f32(vec![f32::NAN, 1.0, 2.0, 2.0, f32::NEG_INFINITY], [1, 5]).unwrap();
        assert_eq!(argmax(&cx, &x).unwrap(), [2]);
        assert_eq!(top_k(&cx, &x, 3).unwrap().indices.u32s().unwrap(), [2, 3, 1]);
        assert!(top_k(&cx, &x, 6).is_err());
        assert!(argmax(&cx, &random(1, [2, 0])).is_err());
    }
}
