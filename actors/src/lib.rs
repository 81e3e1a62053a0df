//! The actors that carry a request through a Walk Graph.
