//! Rows and columns picked, joined and turned: what needs a copy because views are contiguous.

use std::ops::Range;

use crate::error::{below, need};
use crate::{Cx, KernelError, Shape, Tensor, gpu};

/// Copies a range of the innermost dimension.
pub fn columns(cx: &Cx, x: &Tensor, range: Range<usize>) -> Result<Tensor, KernelError> {
    let width = x.shape().width();
    below("columns", "end", range.end, width + 1)?;
    below("columns", "start", range.start, range.end + 1)?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::columns(gpu, x, range);
    }
    cx.cpu_for("columns")?;
    let items = x.f32s()?;
    Tensor::written(x.shape().with_width(range.len()), |out: &mut [f32]| {
        let rows = items.chunks_exact(width.max(1));
        for (out, row) in out.chunks_exact_mut(range.len().max(1)).zip(rows) {
            out.copy_from_slice(&row[range.clone()]);
        }
    })
}

/// Joins tensors of the same outer extents along the innermost dimension.
pub fn concat_columns(cx: &Cx, parts: &[&Tensor]) -> Result<Tensor, KernelError> {
    let shapes: Vec<Shape> = parts.iter().map(|part| part.shape()).collect();
    let same = shapes.windows(2).all(|pair| pair[0].with_width(1) == pair[1].with_width(1));
    need(!parts.is_empty() && same, "concat_columns", "outer extents agree", &shapes)?;
    let width = shapes.iter().map(Shape::width).sum();
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::concat_columns(gpu, parts, shapes[0].with_width(width));
    }
    cx.cpu_for("concat_columns")?;
    let items = parts.iter().map(|part| part.f32s()).collect::<Result<Vec<_>, _>>()?;
    Tensor::written(shapes[0].with_width(width), |out: &mut [f32]| {
        for (row, mut out) in out.chunks_exact_mut(width.max(1)).enumerate() {
            for (items, shape) in items.iter().zip(&shapes) {
                let (head, tail) = out.split_at_mut(shape.width());
                head.copy_from_slice(&items[row * shape.width()..][..shape.width()]);
                out = tail;
            }
        }
    })
}

/// Joins tensors of the same inner extents along the outermost dimension.
pub fn concat_rows(cx: &Cx, parts: &[&Tensor]) -> Result<Tensor, KernelError> {
    let shapes: Vec<Shape> = parts.iter().map(|part| part.shape()).collect();
    let same = shapes.windows(2).all(|pair| pair[0].with_first(1) == pair[1].with_first(1));
    need(!parts.is_empty() && same && shapes[0].rank() > 0, "concat_rows", "inner extents agree", &shapes)?;
    let count = shapes.iter().map(|shape| shape.dims()[0]).sum();
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::concat_rows(gpu, parts, shapes[0].with_first(count));
    }
    cx.cpu_for("concat_rows")?;
    let items = parts.iter().map(|part| part.f32s()).collect::<Result<Vec<_>, _>>()?;
    Tensor::written(shapes[0].with_first(count), |mut out: &mut [f32]| {
        for items in items {
            let (head, tail) = out.split_at_mut(items.len());
            head.copy_from_slice(items);
            out = tail;
        }
    })
}

/// Copies the named rows (of the outermost dimension), in their order; a row may come more than once.
pub fn take_rows(cx: &Cx, x: &Tensor, rows: &[usize]) -> Result<Tensor, KernelError> {
    need(x.shape().rank() > 0, "take_rows", "a scalar has no rows", &[x.shape()])?;
    for &row in rows {
        below("take_rows", "row", row, x.dims()[0])?;
    }
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::take_rows(gpu, x, rows);
    }
    cx.cpu_for("take_rows")?;
    let stride: usize = x.dims()[1..].iter().product();
    let items = x.f32s()?;
    Tensor::written(x.shape().with_first(rows.len()), |out: &mut [f32]| {
        for (out, &row) in out.chunks_exact_mut(stride.max(1)).zip(rows) {
            out.copy_from_slice(&items[row * stride..][..stride]);
        }
    })
}

/// Exchanges the two dimensions of a matrix.
pub fn transpose(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    need(x.shape().rank() == 2, "transpose", "x is a matrix", &[x.shape()])?;
    let (height, width) = (x.dims()[0], x.dims()[1]);
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::transpose(gpu, x);
    }
    cx.cpu_for("transpose")?;
    let items = x.f32s()?;
    Tensor::written([width, height], |out: &mut [f32]| {
        for (column, out) in out.chunks_exact_mut(height.max(1)).enumerate() {
            for (row, out) in out.iter_mut().enumerate() {
                *out = items[row * width + column];
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::random;

    #[test]
    fn parts_of_a_tensor_join_to_the_whole() {
        let cx = Cx::with_threads(1).unwrap();
        let x = random(1, [4, 7]);
        let (left, right) = (columns(&cx, &x, 0..3).unwrap(), columns(&cx, &x, 3..7).unwrap());
        assert_eq!(concat_columns(&cx, &[&left, &right]).unwrap().bytes(), x.bytes());
        let (head, tail) = (x.rows(0..1).unwrap(), x.rows(1..4).unwrap());
        assert_eq!(concat_rows(&cx, &[&head, &tail]).unwrap().bytes(), x.bytes());
        let taken = take_rows(&cx, &x, &[3, 3, 0]).unwrap();
        assert_eq!(taken.rows(1..2).unwrap().bytes(), x.rows(3..4).unwrap().bytes());
        let turned = transpose(&cx, &x).unwrap();
        assert_eq!(turned.dims(), [7, 4]);
        assert_eq!(turned.f32s().unwrap()[4 + 2], x.f32s().unwrap()[2 * 7 + 1]);
        assert_eq!(transpose(&cx, &turned).unwrap().bytes(), x.bytes());
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let x = random(1, [4, 7]);
        assert!(columns(&cx, &x, 5..8).is_err());
        assert!(take_rows(&cx, &x, &[4]).is_err());
        assert!(concat_rows(&cx, &[]).is_err());
        assert!(concat_rows(&cx, &[&x, &random(1, [4, 6])]).is_err());
        assert!(concat_columns(&cx, &[&x, &random(1, [3, 7])]).is_err());
        assert!(transpose(&cx, &random(1, [4])).is_err());
    }
}
