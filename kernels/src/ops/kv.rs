//! Keys and values of past tokens, in pages of sixteen tokens.
//!
//! Per layer, page and head, keys lie as `[width][16 tokens]`, so that sixteen scores are sixteen lanes, and values as
//! `[16 tokens][width]`, so that an output's lanes are sixteen elements.

use std::ops::Range;

use half::bf16;

use crate::cx::Cpu;
use crate::error::{below, need};
use crate::gpu::{self, Gpu};
use crate::isa::{Isa, Kernel, LANES, Lanes, interleave};
use crate::pool::Disjoint;
use crate::scratch::Scratch;
use crate::{Cx, DType, Device, KernelError, Shape, Tensor};

mod joined;
mod slots;
use slots::{Slot, page_parts, whole_pages};

/// Tokens of a page.
pub const PAGE_TOKENS: usize = LANES;

/// The extents of a [`KvPages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSize {
    /// Layers; each page holds its tokens for all of them.
    pub layers: usize,
    /// Pages.
    pub pages: usize,
    /// Key-value heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Keys and values of the layers of one model; the number of pages is fixed.
#[derive(Debug)]
pub struct KvPages {
    size: KvSize,
    keys: Tensor,
    values: Tensor,
}

/// New tokens of one sequence: rows `rows` of the batch go to positions `first..`.
#[derive(Clone, Debug)]
pub struct KvRow<'a> {
    /// The tokens' rows in the batch.
    pub rows: Range<usize>,
    /// The sequence's pages, in the order of its tokens.
    pub table: &'a [u32],
    /// The position of the first token.
    pub first: usize,
}

// --- impl KvSize ---

impl KvSize {
    /// Elements of a value as stored: whole vectors.
    pub(crate) fn padded(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements of one head's keys in one page.
    pub(super) fn key_run(&self) -> usize {
        self.head_dim * LANES
    }

    /// Elements of one head's values in one page.
    pub(super) fn value_run(&self) -> usize {
        self.padded() * LANES
    }

    fn key_shape(&self) -> Shape {
        Shape::from([self.layers, self.pages, self.heads, self.head_dim, LANES])
    }

    fn value_shape(&self) -> Shape {
        Shape::from([self.layers, self.pages, self.heads, LANES, self.padded()])
    }

    fn check(&self) -> Result<(), KernelError> {
        let given = Shape::from([self.heads, self.head_dim]);
        need(self.heads > 0 && self.head_dim > 0, "kv_pages", "heads have at least one element", &[given])
    }
}

// --- impl KvPages ---

impl KvPages {
    /// Makes zeroed pages of `f32` or `bf16`.
    pub fn new(size: KvSize, dtype: DType) -> Result<Self, KernelError> {
        Self::made(size, dtype, |shape| Tensor::zeros(dtype, shape))
    }

    /// Makes zeroed pages where the context computes.
    pub fn on(cx: &Cx, size: KvSize, dtype: DType) -> Result<Self, KernelError> {
        Self::made(size, dtype, |shape| Tensor::zeros_on(cx, dtype, shape))
    }

    fn made(
        size: KvSize,
        dtype: DType,
        zeros: impl Fn(Shape) -> Result<Tensor, KernelError>,
    ) -> Result<Self, KernelError> {
        if dtype != DType::F32 && dtype != DType::BF16 {
            return Err(KernelError::DType { op: "kv_pages", want: DType::F32, got: dtype });
        }
        size.check()?;
        let (keys, values) = (zeros(size.key_shape())?, zeros(size.value_shape())?);
        Ok(Self { size, keys, values })
    }

    /// Makes pages of `f32` where the context computes. What is not stored there is whatever was left: queries never see it.
    pub fn unzeroed(cx: &Cx, size: KvSize) -> Result<Self, KernelError> {
        size.check()?;
        let left = |shape| match cx.gpu() {
            Some(gpu) => Tensor::unwritten(gpu, DType::F32, shape),
            None => Tensor::stale(DType::F32, shape),
        };
        Ok(Self { size, keys: left(size.key_shape())?, values: left(size.value_shape())? })
    }

    /// Makes pages of what [`KvPages::into_parts`] gave; the parts stay shared until they are written to.
    pub fn from_parts(size: KvSize, keys: Tensor, values: Tensor) -> Result<Self, KernelError> {
        size.check()?;
        let shapes = (keys.shape(), values.shape());
        let fits = shapes == (size.key_shape(), size.value_shape()) && keys.dtype() == values.dtype();
        need(fits, "kv_pages", "the parts are pages of this size", &[keys.shape(), values.shape()])?;
        Ok(Self { size, keys, values })
    }

    /// Returns the stored keys and values: for pages that are filled once, kept, and read from often.
    pub fn into_parts(self) -> (Tensor, Tensor) {
        (self.keys, self.values)
    }

    /// Returns the extents.
    pub fn size(&self) -> KvSize {
        self.size
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.keys.dtype()
    }

    /// Returns the bytes held.
    pub fn bytes(&self) -> usize {
        self.keys.byte_len() + self.values.byte_len()
    }

    /// Stores keys and values, `[rows, heads, head_dim]` each, of one layer at the positions that `rows` name.
    pub fn append(
        &mut self,
        cx: &Cx,
        layer: usize,
        (k, v): (&Tensor, &Tensor),
        rows: &[KvRow<'_>],
    ) -> Result<(), KernelError> {
        below("kv_append", "layer", layer, self.size.layers)?;
        let fits = k.shape().rank() == 3 && k.dims()[1..] == [self.size.heads, self.size.head_dim];
        let rule = "k and v are [rows, heads, head_dim] of the pages";
        need(fits && k.shape() == v.shape(), "kv_append", rule, &[k.shape(), v.shape()])?;
        let slots = self.slots(k.dims()[0], rows)?;
        if let Some(gpu) = cx.gpu() {
            // Whoever shares the pages keeps what they hold now.
            self.keys.at_mut(gpu, "kv_append", self.dtype())?;
            self.values.at_mut(gpu, "kv_append", self.dtype())?;
            return gpu::ops::kv_append(gpu, &self.on_gpu(gpu, "kv_append", layer)?, (k, v), &slots);
        }
        let cpu = cx.cpu_for("kv_append")?;
        let (k, v) = (k.f32s()?, v.f32s()?);
        match self.dtype() {
            DType::BF16 => self.write::<bf16>(cpu, layer, (k, v), &slots),
            _ => self.write::<f32>(cpu, layer, (k, v), &slots),
        }
    }

    /// Copies page `from` to page `to`, in all layers.
    pub fn copy_page(&mut self, from: u32, to: u32) -> Result<(), KernelError> {
        below("kv_copy_page", "from", from as usize, self.size.pages)?;
        below("kv_copy_page", "to", to as usize, self.size.pages)?;
        let pages = self.size.pages;
        for (store, run) in [(&mut self.keys, self.size.key_run()), (&mut self.values, self.size.value_run())] {
            if store.device() != Device::Cpu {
                gpu::ops::copy_page(store, from as usize, to as usize)?;
                continue;
            }
            let page = run * self.size.heads;
            for layer in 0..self.size.layers {
                let (from, to) = ((layer * pages + from as usize) * page, (layer * pages + to as usize) * page);
                match store.dtype() {
                    DType::BF16 => store.as_mut_slice::<bf16>()?.copy_within(from..from + page, to),
                    _ => store.as_mut_slice::<f32>()?.copy_within(from..from + page, to),
                }
            }
        }
        Ok(())
    }

    /// Returns one layer as kernels of a device take it.
    pub(super) fn on_gpu(&self, gpu: &Gpu, op: &'static str, layer: usize) -> Result<gpu::ops::Layer, KernelError> {
        gpu::ops::Layer::of(gpu, op, (&self.keys, &self.values), self.size, layer)
    }

    /// Returns the slices of one layer: keys and values of all pages.
    pub(super) fn layer<T: Lanes>(&self, layer: usize) -> Result<(&[T], &[T]), KernelError> {
        let (keys, values) = (self.keys.as_slice::<T>()?, self.values.as_slice::<T>()?);
        let (k, v) = (self.keys_per_layer(), self.values_per_layer());
        Ok((&keys[layer * k..][..k], &values[layer * v..][..v]))
    }

    fn keys_per_layer(&self) -> usize {
        self.size.pages * self.size.heads * self.size.key_run()
    }

    fn values_per_layer(&self) -> usize {
        self.size.pages * self.size.heads * self.size.value_run()
    }

    /// Resolves rows of the batch to (row, page, place in the page); refuses what is out of range.
    fn slots(&self, count: usize, rows: &[KvRow<'_>]) -> Result<Vec<Slot>, KernelError> {
        let mut slots = Vec::with_capacity(count);
        for part in rows {
            below("kv_append", "row", part.rows.end, count + 1)?;
            for (i, row) in part.rows.clone().enumerate() {
                let position = part.first + i;
                let entry = position / PAGE_TOKENS;
                below("kv_append", "page of the table", entry, part.table.len())?;
                let page = part.table[entry] as usize;
                below("kv_append", "page", page, self.size.pages)?;
                slots.push((row, page, position % PAGE_TOKENS));
            }
        }
        Ok(slots)
    }

    fn write<T: Lanes>(
        &mut self,
        cpu: Cpu<'_>,
        layer: usize,
        (k, v): (&[f32], &[f32]),
        slots: &[Slot],
    ) -> Result<(), KernelError> {
        let parts = page_parts(slots, self.size.heads * self.size.head_dim);
        let places = self.places::<T>(layer)?;
        cpu.pool.each(parts.len(), |part| cpu.launch(Part { places: &places, k, v, slots: parts[part] }));
        Ok(())
    }

    fn places<T: Lanes>(&mut self, layer: usize) -> Result<Places<'_, T>, KernelError> {
        let (size, key_layer, value_layer) = (self.size, self.keys_per_layer(), self.values_per_layer());
        let keys = Disjoint::new(&mut self.keys.as_mut_slice::<T>()?[layer * key_layer..][..key_layer]);
        let values = Disjoint::new(&mut self.values.as_mut_slice::<T>()?[layer * value_layer..][..value_layer]);
        Ok(Places { size, keys, values })
    }
}

/// One layer's pages, for writing by several threads.
struct Places<'a, T> {
    size: KvSize,
    keys: Disjoint<'a, T>,
    values: Disjoint<'a, T>,
}

/// One task: the keys and values of some tokens, `[rows, heads, width]` each. Rows are read one after the other, all heads of
/// each: head by head, they would lie a power of two apart, where caches have room for few.
struct Part<'a, T> {
    places: &'a Places<'a, T>,
    k: &'a [f32],
    v: &'a [f32],
    slots: &'a [Slot],
}

// --- impl Part ---

impl<T: Lanes> Kernel for Part<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { places, k, v, slots } = self;
        let (heads, width) = (places.size.heads, places.size.head_dim);
        for slots in whole_pages(slots) {
            for head in 0..heads {
                let mut keys = [&k[..0]; PAGE_TOKENS];
                for (slot, key) in slots.iter().zip(&mut keys) {
                    let at = (slot.0 * heads + head) * width;
                    *key = &k[at..][..width];
                    // SAFETY: a page is one task.
                    unsafe { places.put_value(head, *slot, &v[at..][..width]) };
                }
                // SAFETY: as above.
                unsafe { places.put_keys(isa, head, slots, &keys) };
            }
        }
    }
}

// --- impl Places ---

impl<T: Lanes> Places<'_, T> {
    /// Stores one head's key of each slot, at a place that [`whole_pages`] gave.
    ///
    /// # Safety
    /// No other thread writes a key of this page.
    #[inline(always)]
    unsafe fn put_keys<I: Isa>(&self, isa: I, head: usize, slots: &[Slot], keys: &[&[f32]; PAGE_TOKENS]) {
        let (Some(&(_, page, _)), true) = (slots.first(), slots.len() == PAGE_TOKENS) else {
            for (slot, key) in slots.iter().zip(keys) {
                // SAFETY: as the caller says.
                unsafe { self.put_key(head, *slot, key) };
            }
            return;
        };
        let (run, size) = (page * self.size.heads + head, self.size.key_run());
        // SAFETY: runs are disjoint, and the page is the caller's.
        let out = unsafe { self.keys.part(run * size, size) };
        if let Some(out) = T::floats_mut(out) {
            return interleave(isa, keys, out);
        }
        let mut columns = Scratch::<f32>::take(size);
        interleave(isa, keys, &mut columns);
        for (out, &x) in out.iter_mut().zip(&*columns) {
            *out = T::narrow(x);
        }
    }

    /// Stores the key of one head.
    ///
    /// # Safety
    /// No other thread writes a key of this page.
    #[inline(always)]
    unsafe fn put_key(&self, head: usize, (_, page, token): Slot, key: &[f32]) {
        let (run, size) = (page * self.size.heads + head, self.size.key_run());
        // SAFETY: runs are disjoint, and the page is the caller's.
        let keys = unsafe { self.keys.part(run * size, size) };
        for (out, &x) in keys[token..].iter_mut().step_by(LANES).zip(key) {
            *out = T::narrow(x);
        }
    }

    /// Stores the value of one head.
    ///
    /// # Safety
    /// No other thread writes a value of this page.
    #[inline(always)]
    unsafe fn put_value(&self, head: usize, (_, page, token): Slot, value: &[f32]) {
        let at = (page * self.size.heads + head) * self.size.value_run() + token * self.size.padded();
        // SAFETY: as in `put_key`.
        let values = unsafe { self.values.part(at, value.len()) };
        for (out, &x) in values.iter_mut().zip(value) {
            *out = T::narrow(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::random;

    const SIZE: KvSize = KvSize { layers: 2, pages: 4, heads: 3, head_dim: 20 };

    #[test]
    fn tokens_land_at_their_place_whatever_their_pages() {
        let cx = Cx::with_threads(2).unwrap();
        let (k, v) = (random(1, [18, 3, 20]), random(2, [18, 3, 20]));
        for dtype in [DType::F32, DType::BF16] {
            let mut pages = KvPages::new(SIZE, dtype).unwrap();
            let row = KvRow { rows: 0..18, table: &[3, 1], first: 5 };
            pages.append(&cx, 1, (&k, &v), &[row]).unwrap();
            let (keys, values) = (pages.keys.to_f32().unwrap(), pages.values.to_f32().unwrap());
            let (k, v) = match dtype {
                DType::BF16 => (k.to_bf16().unwrap().to_f32().unwrap(), v.to_bf16().unwrap().to_f32().unwrap()),
                _ => (k.clone(), v.clone()),
            };
            for (row, head, i) in [(0, 0, 0), (10, 2, 19), (11, 1, 7), (17, 0, 3)] {
                let (page, token) = ([3, 1][(5 + row) / 16], (5 + row) % 16);
                let run = (4 + page) * 3 + head;
                let source = (row * 3 + head) * 20 + i;
                assert_eq!(keys.f32s().unwrap()[(run * 20 + i) * 16 + token], k.f32s().unwrap()[source]);
                assert_eq!(values.f32s().unwrap()[(run * 16 + token) * 32 + i], v.f32s().unwrap()[source]);
            }
        }
    }

    #[test]
    fn a_copied_page_holds_the_same_tokens() {
        let cx = Cx::with_threads(1).unwrap();
        let (k, v) = (random(1, [16, 3, 20]), random(2, [16, 3, 20]));
        let mut pages = KvPages::new(SIZE, DType::F32).unwrap();
        for (layer, page) in [(0, 0), (1, 0)] {
            pages.append(&cx, layer, (&k, &v), &[KvRow { rows: 0..16, table: &[page], first: 0 }]).unwrap();
        }
        pages.copy_page(0, 2).unwrap();
        for layer in 0..2 {
            let (keys, values) = pages.layer::<f32>(layer).unwrap();
            assert_eq!(keys[..960], keys[2 * 960..][..960]);
            assert_eq!(values[..1_536], values[2 * 1_536..][..1_536]);
        }
        assert!(pages.copy_page(0, 4).is_err());
    }

    #[test]
    fn pages_taken_apart_come_together_without_a_copy() {
        let pages = KvPages::new(SIZE, DType::F32).unwrap();
        let (keys, values) = pages.into_parts();
        let again = KvPages::from_parts(SIZE, keys.clone(), values.clone()).unwrap();
        assert_eq!(again.keys.bytes().as_ptr(), keys.bytes().as_ptr());
        assert!(KvPages::from_parts(KvSize { pages: 3, ..SIZE }, keys, values).is_err());
    }

    #[test]
    fn pages_positions_and_layers_out_of_range_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let mut pages = KvPages::new(SIZE, DType::F32).unwrap();
        let (k, v) = (random(1, [2, 3, 20]), random(2, [2, 3, 20]));
        let refused: [(usize, KvRow<'_>); 4] = [
            (2, KvRow { rows: 0..2, table: &[0], first: 0 }),
            (0, KvRow { rows: 0..3, table: &[0], first: 0 }),
            (0, KvRow { rows: 0..2, table: &[0], first: 15 }),
            (0, KvRow { rows: 0..2, table: &[4], first: 0 }),
        ];
        for (layer, row) in refused {
            assert!(pages.append(&cx, layer, (&k, &v), &[row]).is_err());
        }
        assert!(pages.append(&cx, 0, (&k, &random(3, [2, 3, 19])), &[]).is_err());
        assert!(KvPages::new(SIZE, DType::U8).is_err());
        assert!(KvPages::new(KvSize { head_dim: 0, ..SIZE }, DType::F32).is_err());
    }
}
