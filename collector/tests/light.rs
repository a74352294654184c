//! An agent that links this crate without `server` builds no server, no query engine, and no client.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// The crates of the light build, by name.
fn tree(features: &[&str]) -> Vec<String> {
    let o = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "baton-collector",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--offline",
        ])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let text = String::from_utf8(o.stdout).unwrap();
    text.lines().filter_map(|l| l.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_light_build_has_no_server_parts() {
    let heavy = [
        "tonic",
        "axum",
        "hyper",
        "tokio",
        "rustls",
        "object_store",
        "datafusion",
        "reqwest",
        "opentelemetry-otlp",
    ];
    let light = tree(&[]);
    assert!(light.iter().any(|c| c == "opentelemetry_sdk"), "{light:?}");
    for name in heavy {
        let found = light.iter().find(|c| *c == name || c.starts_with(&format!("{name}-")));
        assert_eq!(found, None);
    }
    // The check can fail: with the server all of that is there.
    let server = tree(&["--features", "server"]);
    assert!(server.iter().any(|c| c == "axum") && server.iter().any(|c| c == "tonic"));
}
