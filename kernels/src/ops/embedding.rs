//! Rows of a table, by id.

use half::bf16;

use crate::error::{below, need};
use crate::isa::Lanes;
use crate::{Cx, DType, KernelError, Tensor, gpu};

/// Gathers rows of `table` (`[rows, width]`, `f32` or `bf16`) as `f32`, one per id.
pub fn embedding(cx: &Cx, table: &Tensor, ids: &[u32]) -> Result<Tensor, KernelError> {
    need(table.shape().rank() == 2, "embedding", "the table is [rows, width]", &[table.shape()])?;
    for &id in ids {
        below("embedding", "id", id as usize, table.dims()[0])?;
    }
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::gather(gpu, "embedding", table, ids, [ids.len(), table.dims()[1]].into());
    }
    cx.cpu_for("embedding")?;
    match table.dtype() {
        DType::BF16 => gather::<bf16>(table, ids),
        _ => gather::<f32>(table, ids),
    }
}

fn gather<T: Lanes>(table: &Tensor, ids: &[u32]) -> Result<Tensor, KernelError> {
    let (items, width) = (table.as_slice::<T>()?, table.dims()[1]);
    Tensor::written([ids.len(), width], |out: &mut [f32]| {
        for (out, &id) in out.chunks_exact_mut(width.max(1)).zip(ids) {
            for (out, &item) in out.iter_mut().zip(&items[id as usize * width..]) {
                *out = item.wide();
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::random;

    #[test]
    fn rows_come_in_the_order_of_their_ids() {
        let cx = Cx::with_threads(1).unwrap();
        let table = random(1, [4, 3]);
        for table in [table.to_bf16().unwrap(), table] {
            let wide = table.to_f32().unwrap();
            let got = embedding(&cx, &table, &[2, 0, 2]).unwrap();
            assert_eq!(got.dims(), [3, 3]);
            for (row, id) in [2, 0, 2].into_iter().enumerate() {
                assert_eq!(got.rows(row..row + 1).unwrap().bytes(), wide.rows(id..id + 1).unwrap().bytes());
            }
        }
    }

    #[test]
    fn an_id_beyond_the_table_is_refused() {
        let cx = Cx::with_threads(1).unwrap();
        assert!(embedding(&cx, &random(1, [4, 3]), &[4]).is_err());
        assert!(embedding(&cx, &random(1, [4]), &[0]).is_err());
    }
}
