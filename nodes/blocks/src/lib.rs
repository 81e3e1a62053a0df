//! Layers and text machinery that two models share.
