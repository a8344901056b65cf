//! A Postgres server of our own, in a temporary directory, gone with this process. Knows no client library: tests of
//! other crates use it too.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Where the server's programs are, if not in one of the usual places.
const ENV_BIN: &str = "LONGSHORE_TEST_POSTGRES_BIN";

/// The administrator's password, over TCP; the Unix socket asks for none.
pub(crate) const PASSWORD: &str = "s3cret-w0rd";

/// Runs the server as told on its standard input, and takes everything away when that ends, however we end.
const SCRIPT: &str = r#"
set -u
bin=$1 port=$2 password=$3 sync=$4
cd /
dir=$(mktemp -d /tmp/longshore-pg.XXXXXX)
printf '%s' "$password" > "$dir/password"
"$bin/initdb" -D "$dir/data" -U admin -E UTF8 --locale=C -N -A scram-sha-256 --auth-local=trust \
    --pwfile="$dir/password" > "$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log" >&2; rm -rf "$dir"; exit 1; }
pid=
launch() {
    "$bin/postgres" -D "$dir/data" -k "$dir" -p "$port" -c listen_addresses=127.0.0.1 -c fsync="$sync" \
        -c max_connections=300 -c shared_buffers=16MB -c deadlock_timeout=100ms >> "$dir/log" 2>&1 < /dev/null &
    pid=$!
}
start() {
    launch
    n=0
    until "$bin/pg_isready" -q -h "$dir" -p "$port"; do
        n=$((n + 1))
        if [ "$n" -gt 600 ]; then cat "$dir/log" >&2; exit 1; fi
        # It refuses to start while a session of the killed one lives.
        kill -0 "$pid" 2> /dev/null || launch
        sleep 0.05
    done
    echo "up $dir"
}
start
while read -r word; do
    case "$word" in
        kill) kill -9 "$pid"; wait "$pid" 2> /dev/null; echo "down $dir" ;;
        start) start ;;
    esac
done
kill -9 "$pid" 2> /dev/null
rm -rf "$dir"
"#;

/// A server that runs as long as this lives.
pub(crate) struct Server {
    /// Told what to do; its end ends the server.
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
    port: u16,
    _shell: Child,
}

impl Server {
    /// Starts one, if there are programs of it on this machine.
    pub(crate) fn start(syncs: bool) -> Option<Self> {
        let Some(bin) = find_programs() else {
            println!("skipped: no Postgres server on this machine (set {ENV_BIN})");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = port.unwrap().port();
        let sync = if syncs { "on" } else { "off" };
        let mut shell = unprivileged()
            .args(["sh", "-c", SCRIPT, "sh"])
            .arg(bin)
            .args([port.to_string().as_str(), PASSWORD, sync])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Self {
            orders: shell.stdin.take().unwrap(),
            answers: BufReader::new(shell.stdout.take().unwrap()),
            directory: PathBuf::new(),
            port,
            _shell: shell,
        };
        server.directory = server.answer("up").into();
        Some(server)
    }

    fn answer(&mut self, expected: &str) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let (word, directory) = line.trim_end().split_once(' ').unwrap_or_default();
        assert_eq!(word, expected, "the server's script said {line:?}");
        directory.to_owned()
    }

    /// Kills the server as hard as can be.
    pub(crate) fn kill(&mut self) {
        self.orders.write_all(b"kill\n").unwrap();
        self.answer("down");
    }

    /// Starts it again; returns when it takes connections.
    pub(crate) fn start_again(&mut self) {
        self.orders.write_all(b"start\n").unwrap();
        self.answer("up");
    }

    /// A database of it, over the Unix socket.
    pub(crate) fn url(&self, database: &str) -> String {
        let directory = self.directory.display();
        let port = self.port;
        format!("postgres://admin@localhost:{port}/{database}?host={directory}")
    }

    /// A database of it, over TCP.
    pub(crate) fn tcp_url(&self, user: &str, password: &str, database: &str) -> String {
        let port = self.port;
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's own setting: where the server's programs are"
)]
fn find_programs() -> Option<PathBuf> {
    let mut candidates: Vec<PathBuf> = std::env::var_os(ENV_BIN)
        .map(PathBuf::from)
        .into_iter()
        .collect();
    for version in (13..=19).rev() {
        candidates.push(format!("/usr/lib/postgresql/{version}/bin").into());
    }
    candidates.extend(["/usr/local/bin", "/usr/bin", "/opt/homebrew/bin"].map(PathBuf::from));
    let is_whole = |bin: &PathBuf| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    candidates.into_iter().find(is_whole)
}

/// The server refuses to run as root.
fn unprivileged() -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0);
    if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command
    } else {
        Command::new("env")
    }
}
