//! Where a key stands in a file, for complaints that only whoever uses its value can make.

use toml_edit::{Document, Item};

use crate::problem::position;

/// Returns line and column, from 1, of the value of a key that is named by its path from the root; nothing when the file
/// does not have it.
pub fn locate(text: &str, path: &[&str]) -> Option<(usize, usize)> {
    let document = Document::parse(text).ok()?;
    let mut item: &Item = document.as_item();
    for key in path {
        item = item.as_table_like()?.get(key)?;
    }
    Some(position(text, item.span()?.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_they_are_written() {
        let text = "a = 1\n[model.x]\nweights = 'here'\n[model]\ny = { weights = 'there' }\n";
        let check = |path: &[&str], place| assert_eq!(locate(text, path), place, "{path:?}");
        check(&["a"], Some((1, 5)));
        check(&["model", "x", "weights"], Some((3, 11)));
        check(&["model", "y", "weights"], Some((5, 17)));
        check(&["model", "z"], None);
        check(&["a", "b"], None);
        assert_eq!(locate("= no toml", &["a"]), None);
    }
}
