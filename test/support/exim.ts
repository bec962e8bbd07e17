// Debian's exim as a real SMTP server on loopback, with STARTTLS and authentication. It keeps what it accepts in its queue.

import {
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  chmodSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installMissing, runSync } from "./debian.ts";
import { freePort } from "./free-port.ts";
import { until } from "./until.ts";

const program = "/usr/sbin/exim4";
export const user = "agent";
export const secret = "a mail password";

/** The reason why there is no exim here, or undefined. */
export const noExim =
  process.getuid?.() === 0 ? installMissing([program, "/usr/bin/openssl"]) : "exim needs root to start";

export type Exim = AsyncDisposable & {
  port: number;
  /** PEM of its self-signed certificate for localhost. */
  certificate: string;
  /** Headers and body of the accepted messages. */
  messages(): string[];
};

/** Exim's user reads its files. A test that ran before in this process may have left the umask of a control plane. */
export async function startExim(): Promise<Exim> {
  const umask = process.umask(0o022);
  try {
    return await start();
  } finally {
    process.umask(umask);
  }
}

async function start(): Promise<Exim> {
  const directory = mkdtempSync(join(tmpdir(), "agent-exim-"));
  chmodSync(directory, 0o755);
  const port = freePort();
  const [certificate, key] = [join(directory, "cert.pem"), join(directory, "key.pem")];
  runSync([
    ..."openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split(
      " ",
    ),
    "-addext",
    "subjectAltName=DNS:localhost",
    "-keyout",
    key,
    "-out",
    certificate,
  ]);
  const uid = Number(runSync(["id", "-u", "Debian-exim"]));
  for (const name of ["spool", "log"]) {
    mkdirSync(join(directory, name));
    chownSync(join(directory, name), uid, -1);
  }
  chownSync(key, uid, -1);
  const config = join(directory, "exim.conf");
  writeFileSync(config, configuration(directory, port, { certificate, key }));
  const child = Bun.spawn([program, "-C", config, "-bdf"], {
    stdout: "ignore",
    stderr: "inherit",
    stdin: "ignore",
    // A group of processes of its own: one for each connection outlives the first.
    detached: true,
  });
  const input = join(directory, "spool/input");
  const isUp = () =>
    Bun.connect({ hostname: "127.0.0.1", port, socket: { data: () => undefined } }).then(
      (socket) => (socket.end(), true),
      () => false,
    );
  await until(isUp);
  return {
    port,
    certificate: readFileSync(certificate, "utf8"),
    messages: () =>
      readdirSync(input)
        .filter((name) => name.endsWith("-H"))
        .map((name) => {
          const parts = [name, name.replace(/H$/, "D")];
          return parts.map((part) => readFileSync(join(input, part), "utf8")).join("\n");
        }),
    async [Symbol.asyncDispose]() {
      process.kill(-child.pid, "SIGKILL");
      await child.exited;
      await until(() => isGone(child.pid));
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Whether no process of the group is left that could still write. */
function isGone(group: number): boolean {
  try {
    process.kill(-group, 0);
    return false;
  } catch {
    return true;
  }
}

/** Its queue is never delivered. */
function configuration(
  directory: string,
  port: number,
  { certificate, key }: { certificate: string; key: string },
): string {
  return `primary_hostname = localhost
spool_directory = ${directory}/spool
log_file_path = ${directory}/log/%slog
pid_file_path = ${directory}/spool/exim.pid
local_interfaces = 127.0.0.1
daemon_smtp_ports = ${port}
queue_only = true
tls_advertise_hosts = *
tls_certificate = ${certificate}
tls_privatekey = ${key}
acl_smtp_rcpt = recipients
begin acl
recipients:
  require authenticated = *
  accept
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = \${if and{{eq{$auth2}{${user}}}{eq{$auth3}{${secret}}}}}
  server_advertise_condition = \${if def:tls_in_cipher}
`;
}
