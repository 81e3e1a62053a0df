//! Boot, placement and drain of a node cluster.
