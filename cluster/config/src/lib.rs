//! The deployment file, read with spans into a Deployment that cannot be wrong.
