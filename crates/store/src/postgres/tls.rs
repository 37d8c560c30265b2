//! TLS to the server, with libpq's levels of verification.

use super::url::Verification;
use crate::error::{Error, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// A TLS connector for the given level. Roots are read only when they are needed.
pub(super) fn connector(
    verification: Verification,
    root: Option<&Path>,
) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let broken = |error: &dyn std::fmt::Display| Error::Configuration(format!("TLS: {error}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| broken(&error))?;
    let config = match verification {
        Verification::Full => builder.with_root_certificates(roots(root)?).with_no_client_auth(),
        Verification::Chain => {
            let trusted = Arc::new(roots(root)?);
            let chain = WebPkiServerVerifier::builder_with_provider(trusted, Arc::clone(&provider))
                .build()
                .map_err(|error| broken(&error))?;
            let lenient = Lenient { chain: Some(chain), provider };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(lenient))
                .with_no_client_auth()
        }
        Verification::None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Lenient { chain: None, provider }))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match file {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| {
                Error::Configuration(format!("sslrootcert {}: {error}", path.display()))
            };
            let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                store.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(system.certs);
        }
    }
    if store.is_empty() {
        return Err(Error::Configuration(
            "no trusted root certificates were found; name a file with sslrootcert".into(),
        ));
    }
    Ok(store)
}

/// Checks less than rustls would: the chain without the host's name, or nothing at all.
#[derive(Debug)]
struct Lenient {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        use CertificateError::{NotValidForName, NotValidForNameContext};
        // The name is checked last: only the name was wrong.
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
