//! Audio in and out: decoding, resampling, encoding.
