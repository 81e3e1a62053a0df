//! The Walk Graph: nodes, walks, sections, chunk policies and the cursor that steps them.
