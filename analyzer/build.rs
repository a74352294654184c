//! Gives this program a name by its sources: tables that another one assembled may differ.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() -> std::io::Result<()> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut hash = Sha256::new();
    // What is read and what is assembled, and the versions of the crates that do it.
    for part in ["src", "../record/src", "../Cargo.lock"] {
        let path = here.join(part);
        println!("cargo:rerun-if-changed={}", path.display());
        add(&path, &mut hash)?;
    }
    let name: String = hash.finalize()[..16].iter().map(|b| format!("{b:02x}")).collect();
    println!("cargo:rustc-env=BATON_BUILD={name}");
    Ok(())
}

fn add(path: &Path, hash: &mut Sha256) -> std::io::Result<()> {
    if path.is_dir() {
        let mut names: Vec<PathBuf> =
            fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        names.sort();
        return names.iter().try_for_each(|p| add(p, hash));
    }
    // A crate that stands alone has neither the other one nor the lock file beside it.
    if path.is_file() {
        let bytes = fs::read(path)?;
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    }
    Ok(())
}
