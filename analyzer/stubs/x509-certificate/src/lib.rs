//! The Postgres wire crate reads the server's certificate for one thing: SCRAM with channel binding, which Baton does not offer.
//! The crate it takes for that is under MPL-2.0. This one has the same names and refuses every certificate, so that channel binding stays off.

use std::fmt;

/// Why a certificate is not read.
#[derive(Debug)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("channel binding is not offered")
    }
}

impl std::error::Error for Refused {}

/// How a certificate was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SignatureAlgorithm {
    RsaSha1,
    RsaSha256,
    RsaSha384,
    RsaSha512,
    EcdsaSha256,
    EcdsaSha384,
}

/// Certificates.
pub mod certificate {
    use super::{Refused, SignatureAlgorithm};

    /// A certificate as it was read. There is none.
    #[derive(Debug)]
    pub enum CapturedX509Certificate {}

    impl CapturedX509Certificate {
        /// Reads certificates from PEM.
        ///
        /// # Errors
        /// Always.
        pub fn from_pem_multiple(_pem: impl AsRef<[u8]>) -> Result<Vec<Self>, Refused> {
            Err(Refused)
        }

        /// The bytes of the certificate.
        pub fn constructed_data(&self) -> &[u8] {
            match *self {}
        }

        /// How it was signed.
        pub fn signature_algorithm(&self) -> Option<SignatureAlgorithm> {
            match *self {}
        }
    }
}
