//! Who may connect.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use baton_record::canonical::sha256_hex;
use datafusion_postgres::pgwire::api::auth::sasl::SASLAuthStartupHandler;
use datafusion_postgres::pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramAuth, gen_salted_password};
use datafusion_postgres::pgwire::api::auth::{
    AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler, finish_authentication,
    protocol_negotiation, save_startup_parameters_to_metadata,
};
use datafusion_postgres::pgwire::api::{ClientInfo, PidSecretKeyGenerator, RandomPidSecretKeyGenerator};
use datafusion_postgres::pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use futures::Sink;

use super::{Error, Shared};

const SALT: usize = 16;

/// Users with their passwords as SCRAM keeps them.
#[derive(Clone)]
pub(super) struct Users(Arc<Inner>);

struct Inner {
    users: HashMap<String, Password>,
    /// Makes the salt of users that there are not.
    secret: [u8; 32],
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.0.users.len())
    }
}

impl Users {
    pub(super) fn new(users: &[(String, String)]) -> Result<Self, Error> {
        let random = |bytes: &mut [u8]| {
            getrandom::fill(bytes).map_err(|e| Error::Io {
                what: "random numbers".to_owned(),
                source: std::io::Error::other(e.to_string()),
            })
        };
        let mut secret = [0; 32];
        random(&mut secret)?;
        let mut known = HashMap::new();
        for (name, password) in users {
            let mut salt = [0; SALT];
            random(&mut salt)?;
            let salted = gen_salted_password(password, &salt, SCRAM_ITERATIONS);
            known.insert(name.clone(), Password::new(Some(salt.to_vec()), salted));
        }
        Ok(Self(Arc::new(Inner { users: known, secret })))
    }
}

#[async_trait]
impl AuthSource for Users {
    async fn get_password(&self, login: &LoginInfo) -> PgWireResult<Password> {
        let name = login.user().unwrap_or_default();
        Ok(self.0.users.get(name).cloned().unwrap_or_else(|| {
            // The same salt each time and a password that nobody has: who asks cannot tell which users there are.
            let made =
                |what: &str| sha256_hex(&[&self.0.secret[..], what.as_bytes(), name.as_bytes()].concat());
            Password::new(Some(made("salt").into_bytes()[..SALT].to_vec()), made("password").into_bytes())
        }))
    }
}

/// The beginning of one connection.
pub(super) struct Startup {
    refused: bool,
    tls: bool,
    open: bool,
    scram: SASLAuthStartupHandler<DefaultServerParameterProvider>,
    pids: RandomPidSecretKeyGenerator,
}

impl Startup {
    pub(super) fn new(shared: &Shared, refused: bool) -> Self {
        let mut scram = SASLAuthStartupHandler::new(Arc::new(parameters()));
        if let Some(users) = &shared.users {
            scram = scram.with_scram(ScramAuth::new(Arc::new(users.clone())));
        }
        Self {
            refused,
            tls: shared.tls.is_some(),
            open: shared.users.is_none(),
            scram,
            pids: RandomPidSecretKeyGenerator::default(),
        }
    }
}

/// What clients are told of the server.
fn parameters() -> DefaultServerParameterProvider {
    let mut p = DefaultServerParameterProvider::default();
    p.server_version = super::catalog::SERVER_VERSION.to_owned();
    p.is_superuser = false;
    p.default_transaction_read_only = true;
    p
}

fn fatal(code: &str, what: &str) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new("FATAL".to_owned(), code.to_owned(), what.to_owned())))
}

#[async_trait]
impl StartupHandler for Startup {
    async fn on_startup<C>(&self, client: &mut C, message: PgWireFrontendMessage) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: fmt::Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let PgWireFrontendMessage::Startup(startup) = &message else {
            return if self.open {
                Err(fatal("08P01", "a startup message was expected"))
            } else {
                self.scram.on_startup(client, message).await
            };
        };
        if self.refused {
            return Err(fatal(
                "53300",
                "too many connections; [serve] connections sets how many there may be",
            ));
        }
        if self.tls && !client.is_secure() {
            return Err(fatal("28000", "connections are encrypted here: use sslmode=require or stricter"));
        }
        if !self.open {
            return self.scram.on_startup(client, message).await;
        }
        protocol_negotiation(client, startup).await?;
        save_startup_parameters_to_metadata(client, startup);
        let (pid, secret) = self.pids.generate(client);
        client.set_pid_and_secret_key(pid, secret);
        finish_authentication(client, &parameters()).await
    }
}
