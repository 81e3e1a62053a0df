//! Weight packages: fetching, verifying, converting and reading them.
