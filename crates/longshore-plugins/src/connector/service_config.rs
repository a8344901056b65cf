//! `defaultServiceConfig`: gRPC's own configuration of a client, of which time limits and retries are read.

use std::time::Duration;

use serde_json::Value;

/// No call is made more often, whatever is configured: gRPC's own bound.
const MAX_ATTEMPTS: u32 = 5;
/// gRPC's codes by name; each has its place as its number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// How the methods of a connector's services are called. By default each is called once, and waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceConfig {
    methods: Vec<Methods>,
}

/// The policy of some methods.
#[derive(Clone, Debug, PartialEq)]
struct Methods {
    names: Vec<Name>,
    policy: MethodPolicy,
}

/// Which methods are meant. Empty for all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    service: String,
    method: String,
}

/// The policy of a method: its time limit and its retries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodPolicy {
    /// How long a call may take, retries included; `None` for no limit.
    pub timeout: Option<Duration>,
    /// When it is called once more; `None` for never.
    pub retries: Option<Retries>,
}

/// `retryPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct Retries {
    /// `maxAttempts`: calls in all.
    pub max_attempts: u32,
    /// `initialBackoff`: before the second call.
    pub initial_backoff: Duration,
    /// `maxBackoff`: before any call.
    pub max_backoff: Duration,
    /// `backoffMultiplier`: how much longer each wait is than the one before.
    pub multiplier: f64,
    /// `retryableStatusCodes`, as numbers.
    pub codes: Vec<u32>,
}

impl ServiceConfig {
    /// Reads the JSON text; `None` where gRPC would refuse it. What else it says is passed over.
    pub fn parse(text: &str) -> Option<Self> {
        let config: Value = serde_json::from_str(text).ok()?;
        let methods = match field(config.as_object()?, "methodConfig") {
            None => Vec::new(),
            Some(methods) => {
                let methods = methods.as_array()?.iter();
                methods.map(Methods::read).collect::<Option<_>>()?
            }
        };
        Some(Self { methods })
    }

    /// The policy of a method, where its deployment has this time limit. A policy of the method takes precedence over
    /// one of its service, and that over one of all services.
    pub fn of(&self, service: &str, method: &str, limit: Option<Duration>) -> MethodPolicy {
        let names = [(service, method), (service, ""), ("", "")];
        let found = names.into_iter().find_map(|(service, method)| {
            let is_meant = |name: &Name| name.service == service && name.method == method;
            let mut methods = self.methods.iter();
            methods.find(|it| it.names.iter().any(is_meant))
        });
        let mut policy = found.map_or_else(MethodPolicy::default, |found| found.policy.clone());
        policy.timeout = [policy.timeout, limit].into_iter().flatten().min();
        policy
    }
}

impl Methods {
    fn read(config: &Value) -> Option<Self> {
        let config = config.as_object()?;
        let names = field(config, "name").map_or(Some(Vec::new()), |names| {
            names.as_array()?.iter().map(Name::read).collect()
        })?;
        let timeout = match field(config, "timeout") {
            None => None,
            Some(timeout) => Some(duration(timeout)?),
        };
        let retries = match field(config, "retryPolicy") {
            None => None,
            Some(retries) => Some(Retries::read(retries)?),
        };
        let policy = MethodPolicy { timeout, retries };
        Some(Self { names, policy })
    }
}

impl Name {
    fn read(name: &Value) -> Option<Self> {
        let name = name.as_object()?;
        let text = |key| field(name, key).map_or(Some(""), Value::as_str);
        Some(Self {
            service: text("service")?.to_owned(),
            method: text("method")?.to_owned(),
        })
    }
}

impl Retries {
    fn read(policy: &Value) -> Option<Self> {
        let policy = policy.as_object()?;
        let max_attempts = field(policy, "maxAttempts")?.as_u64()?;
        let max_attempts = u32::try_from(max_attempts).unwrap_or(u32::MAX);
        let codes = field(policy, "retryableStatusCodes")?.as_array()?.iter();
        let retries = Self {
            max_attempts: max_attempts.min(MAX_ATTEMPTS),
            initial_backoff: duration(field(policy, "initialBackoff")?)?,
            max_backoff: duration(field(policy, "maxBackoff")?)?,
            multiplier: field(policy, "backoffMultiplier")?.as_f64()?,
            codes: codes.map(code).collect::<Option<_>>()?,
        };
        let is_sound = retries.max_attempts > 1
            && !retries.initial_backoff.is_zero()
            && !retries.max_backoff.is_zero()
            && retries.multiplier > 0.0
            && !retries.codes.is_empty();
        is_sound.then_some(retries)
    }
}

impl MethodPolicy {
    /// How long to wait before the method is called once more, after this many calls, the last of which was refused
    /// with this code; `None` where it is not.
    pub fn wait_after(&self, n_calls: u32, code: u32) -> Option<Duration> {
        let retries = self.retries.as_ref()?;
        if n_calls >= retries.max_attempts || !retries.codes.contains(&code) {
            return None;
        }
        let exponent = i32::try_from(n_calls.saturating_sub(1)).unwrap_or(i32::MAX);
        let factor = retries.multiplier.powi(exponent);
        let wait = retries.initial_backoff.as_secs_f64() * factor;
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
        Some(wait.min(retries.max_backoff))
    }
}

fn field<'a>(object: &'a serde_json::Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// Seconds with an `s`, as protobuf's JSON has them.
fn duration(value: &Value) -> Option<Duration> {
    let seconds: f64 = value.as_str()?.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn code(value: &Value) -> Option<u32> {
    let number = match value.as_str() {
        Some(name) => CODES.iter().position(|code| *code == name)?,
        None => usize::try_from(value.as_u64()?).ok()?,
    };
    let number = Some(number).filter(|number| *number < CODES.len())?;
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {"name": [{}], "timeout": "20s"},
            {"name": [{"service": "s"}], "timeout": "1.5s", "retryPolicy": {
                "maxAttempts": 9, "initialBackoff": "0.1s", "maxBackoff": "0.3s", "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", 8]
            }},
            {"name": [{"service": "s", "method": "m"}], "waitForReady": true}
        ]
    }"#;

    #[test]
    fn the_narrowest_configuration_counts() {
        let config = ServiceConfig::parse(CONFIG).unwrap();
        let limit = |service, method, own: Option<u64>| {
            let policy = config.of(service, method, own.map(Duration::from_secs));
            policy.timeout.map(|timeout| timeout.as_millis())
        };
        assert_eq!(limit("s", "m", None), None);
        assert_eq!(limit("s", "m", Some(10)), Some(10_000));
        assert_eq!(limit("s", "other", Some(10)), Some(1_500));
        assert_eq!(limit("other", "m", None), Some(20_000));
        assert_eq!(limit("other", "m", Some(10)), Some(10_000));
        let none = ServiceConfig::default();
        assert_eq!(none.of("s", "m", None), MethodPolicy::default());
    }

    #[test]
    fn waits_grow_up_to_their_bound_and_calls_are_few() {
        let policy = ServiceConfig::parse(CONFIG).unwrap().of("s", "x", None);
        let unavailable = |n_calls| {
            let wait = policy.wait_after(n_calls, 14);
            wait.map(|wait| wait.as_millis())
        };
        let waits: Vec<_> = (1..6).map(unavailable).collect();
        assert_eq!(waits, [Some(100), Some(200), Some(300), Some(300), None]);
        assert!(policy.wait_after(1, 8).is_some());
        assert_eq!(policy.wait_after(1, 13), None);
        assert_eq!(MethodPolicy::default().wait_after(1, 14), None);
    }

    #[test]
    fn what_grpc_would_refuse_is_refused() {
        let with = |from: &str, to: &str| ServiceConfig::parse(&CONFIG.replace(from, to));
        assert!(with("", "").is_some());
        for (from, to) in [
            ("{", ""),
            ("\"20s\"", "20"),
            ("\"maxAttempts\": 9", "\"maxAttempts\": 1"),
            ("0.1s", "0s"),
            ("UNAVAILABLE", "DOWN"),
            ("8]", "17]"),
            ("\"backoffMultiplier\": 2,", ""),
        ] {
            assert_eq!(with(from, to), None, "{from} as {to}");
        }
        assert_eq!(ServiceConfig::parse("[]"), None);
    }
}
