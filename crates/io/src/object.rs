//! Real object stores: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage, a local
//! directory. Behind the cargo feature `object-store`.
//!
//! A URL chooses: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
//! `file:///directory` or a plain path. Credentials come by the provider's usual chain: environment,
//! profile file (S3), the cloud's metadata service; they are never printed. All further settings of a
//! provider may stand in the environment as its own tools know them (`AWS_REGION`, `AWS_ENDPOINT_URL`,
//! `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` …); [`Settings`] go before them.
//!
//! A request's way: `adapter` (places, attempts, counters) → the `object_store` crate (signing) →
//! `curl` (HTTP on the caller's thread) → `verdict` (what a failure means) → `patience` (again or
//! not). Requests of other clients, in the protocol of S3, go through `passage`. What GCS and Azure are asked is tested against a stand-in, not against the clouds.

mod adapter;
mod crypto;
mod curl;
mod local;
pub mod passage;
mod patience;
mod profile;
mod verdict;
mod wire;

use crate::store::{ObjectStore, ReadOnly, Result, StoreError};
use adapter::{Adapter, Plan};
use curl::{CurlConnector, Limits};
use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Which store, and how patiently.
#[derive(Clone, Debug)]
pub struct Settings {
    pub url: String,
    /// Another server than the provider's, as `https://host:port` (Azure: with the account's path, if it has one).
    pub endpoint: Option<String>,
    /// S3: default from the environment, else `us-east-1`.
    pub region: Option<String>,
    /// Plain HTTP to a host that is not this one.
    pub allow_http: bool,
    /// S3: the bucket in the host's name instead of the path.
    pub virtual_hosted: bool,
    /// Requests at a time; background work may use half of them.
    pub in_flight_max: usize,
    /// Attempts of one request.
    pub attempts_max: u32,
    /// For one attempt.
    pub timeout: Duration,
    /// For one request with all its attempts.
    pub patience: Duration,
    /// A local directory must be there and is not made; nothing is put or deleted.
    pub read_only: bool,
}

impl Settings {
    pub fn new(url: &str) -> Settings {
        Settings {
            url: url.to_string(),
            endpoint: None,
            region: None,
            allow_http: false,
            virtual_hosted: false,
            in_flight_max: 64,
            attempts_max: 4,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            read_only: false,
        }
    }

    fn refused(&self, cause: impl std::fmt::Display) -> StoreError {
        StoreError::Refused { key: public(&self.url), cause: cause.to_string() }
    }
}

/// The URL without user, password and query.
fn public(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) => {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.to_string().trim_end_matches('/').to_string()
        }
        Err(_) => match url.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default()),
            None => url.to_string(),
        },
    }
}

/// Keys have their own places; in a URL they would do nothing, and be shown.
fn check_public(settings: &Settings, what: &str, url: &Url) -> Result<()> {
    if url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
    {
        return Ok(());
    }
    Err(settings.refused(format!(
        "{what} holds more than a place: keys come from the environment or the provider's own files"
    )))
}

/// Opens a store. Nothing is asked yet, so a wrong bucket shows at the first request; a URL that
/// can't be meant is `Refused` here.
pub fn open(settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let store = open_any(settings)?;
    Ok(if settings.read_only { Arc::new(ReadOnly(store)) } else { store })
}

/// For [`ObjectStore::beside`]: a place that is named by another one's data.
fn open_beside(url: &str, endpoint: Option<&str>, read_only: bool) -> Result<Arc<dyn ObjectStore>> {
    open(&Settings { endpoint: endpoint.map(str::to_string), read_only, ..Settings::new(url) })
}

fn open_any(settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let text = settings.url.as_str();
    if !text.contains("://") {
        return Ok(Arc::new(local::Local::open(
            Path::new(text),
            settings.in_flight_max,
            settings.read_only,
        )?));
    }
    let url = Url::parse(text).map_err(|e| settings.refused(format!("not a URL: {e}")))?;
    check_public(settings, "the URL", &url)?;
    match url.scheme() {
        "file" => {
            let path = url
                .to_file_path()
                .map_err(|()| settings.refused("a file:// URL names no local directory"))?;
            Ok(Arc::new(local::Local::open(&path, settings.in_flight_max, settings.read_only)?))
        }
        "s3" | "gs" | "az" => open_remote(settings, &url),
        other => Err(settings.refused(format!("`{other}` is not among s3, gs, az and file"))),
    }
}

fn open_remote(settings: &Settings, url: &Url) -> Result<Arc<dyn ObjectStore>> {
    let bucket =
        url.host_str().filter(|b| !b.is_empty()).ok_or_else(|| settings.refused("the bucket is missing"))?;
    let prefix = url.path().trim_matches('/').to_string();
    object_store::path::Path::parse(&prefix).map_err(|e| settings.refused(e))?;
    let (remote, uploads): (Arc<dyn object_store::ObjectStore>, Arc<dyn MultipartStore>) = match url.scheme()
    {
        "s3" => both(s3(settings, bucket)?),
        "gs" => both(gcs(settings, bucket)?),
        _ => both(azure(settings, bucket)?),
    };
    Ok(Arc::new(Adapter::new(Plan {
        remote,
        uploads,
        completes_on_condition: url.scheme() == "s3",
        name: public(&settings.url),
        prefix,
        service: format!(
            "{}://{bucket} at {}",
            url.scheme(),
            settings.endpoint.as_deref().map_or("the provider's own".into(), public)
        ),
        lists_in_order: true,
        in_flight_max: settings.in_flight_max,
        attempts_max: settings.attempts_max,
        time_max: settings.patience,
    })))
}

fn both<T: object_store::ObjectStore + MultipartStore>(
    store: T,
) -> (Arc<dyn object_store::ObjectStore>, Arc<dyn MultipartStore>) {
    let store = Arc::new(store);
    (store.clone(), store)
}

fn connector(settings: &Settings) -> CurlConnector {
    CurlConnector(Limits {
        connect: settings.timeout.min(Duration::from_secs(5)),
        total: settings.timeout,
        idle_max: settings.in_flight_max,
    })
}

/// Retrying is the adapter's. (The crate would also need a runtime to wait in.)
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn s3(settings: &Settings, bucket: &str) -> Result<object_store::aws::AmazonS3> {
    s3_builder(settings, bucket)?.build().map_err(|e| settings.refused(verdict::cause(&e)))
}

fn s3_builder(settings: &Settings, bucket: &str) -> Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(settings.virtual_hosted)
        .with_http_connector(connector(settings))
        .with_crypto_provider(Arc::new(crypto::RustCrypto))
        .with_retry(no_retries())
        .with_disable_bulk_delete(true);
    if let Some(region) = &settings.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_none()
        && let Some(keys) = profile::keys(&env)
    {
        builder = builder.with_access_key_id(keys.id).with_secret_access_key(keys.secret);
        if let Some(token) = keys.token {
            builder = builder.with_token(token);
        }
    }
    if let Some(endpoint) = builder.get_config_value(&AmazonS3ConfigKey::Endpoint) {
        check_endpoint(settings, &endpoint)?;
        builder = builder.with_allow_http(true);
        // Over TLS the body needs no signature of its own: objects carry a hash of theirs.
        builder = builder.with_unsigned_payload(endpoint.starts_with("https:"));
    } else {
        builder = builder.with_unsigned_payload(true);
    }
    Ok(builder)
}

fn gcs(settings: &Settings, bucket: &str) -> Result<GoogleCloudStorage> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(connector(settings))
        .with_crypto_provider(Arc::new(crypto::RustCrypto))
        .with_retry(no_retries());
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    if let Some(endpoint) = builder.get_config_value(&GoogleConfigKey::BaseUrl) {
        check_endpoint(settings, &endpoint)?;
    }
    builder.build().map_err(|e| settings.refused(verdict::cause(&e)))
}

fn azure(settings: &Settings, container: &str) -> Result<MicrosoftAzure> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_http_connector(connector(settings))
        .with_crypto_provider(Arc::new(crypto::RustCrypto))
        .with_retry(no_retries());
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_string());
    }
    if let Some(endpoint) = builder.get_config_value(&AzureConfigKey::Endpoint) {
        check_endpoint(settings, &endpoint)?;
    }
    builder.build().map_err(|e| settings.refused(verdict::cause(&e)))
}

/// Plain HTTP is for this machine, or when it is asked for.
fn check_endpoint(settings: &Settings, endpoint: &str) -> Result<()> {
    let shown = public(endpoint);
    let url = Url::parse(endpoint).map_err(|e| settings.refused(format!("endpoint {shown}: {e}")))?;
    check_public(settings, "the endpoint", &url)?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_here || settings.allow_http || env_allows_http() => Ok(()),
        "http" => Err(settings.refused("the endpoint is plain HTTP to another host; allow it, or use https")),
        other => Err(settings.refused(format!("endpoint {shown}: `{other}` is neither https nor http"))),
    }
}

fn env_allows_http() -> bool {
    let is_on = |name| std::env::var(name).is_ok_and(|v| v == "true" || v == "1");
    ["AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP"].into_iter().any(is_on)
}
