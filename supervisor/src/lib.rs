//! Supervision of actors, generic.
