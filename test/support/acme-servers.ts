// Real ACME servers on loopback: Pebble, made for tests, with the faults that it can have, and step-ca. And the name server
// that Pebble asks.

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "bun:test";
import { issueServerX509, makeX509Ca, openIssuer } from "../../src/pki/x509.ts";
import { cannotInstall, inCi, runSync } from "./debian.ts";
import { goProgram } from "./go-programs.ts";
import type { Host } from "./namespaces.ts";
import { freePort } from "./free-port.ts";
import { temporaryDirectory } from "./temporary.ts";

/** Tests with ACME servers. They are skipped where these cannot be built; in CI that is an error. */
export function describeAcme(name: string, tests: () => void): void {
  const reason = cannotBuild();
  if (reason !== undefined && inCi) throw new Error(`${name}: ${reason}`);
  describe.skipIf(reason !== undefined)(name, tests);
}

function cannotBuild(): string | undefined {
  const reason = existsSync("/usr/bin/go") || Bun.which("go") !== null ? undefined : cannotInstall();
  if (reason !== undefined) return reason;
  try {
    for (const each of ["pebble", "pebble-challtestsrv", "step-ca"] as const) goProgram(each);
    return undefined;
  } catch (error) {
    return String(error);
  }
}

export type AcmeServer = AsyncDisposable & {
  directory: string;
  /** PEM of the CA of its own certificate. */
  trust: string;
};

export type Pebble = AcmeServer & {
  /** PEM of the root of the certificates that it issues. */
  root(): Promise<string>;
  /** Posts to its management interface. */
  manage(path: string, body: object): Promise<void>;
  /** Its log so far. */
  log(): string;
  /** It does nothing until `resume`. */
  pause(): void;
  resume(): void;
};

export type PebbleOptions = {
  port?: number;
  /** Where it looks for HTTP-01. */
  httpPort?: number;
  /** Percent of nonces that it refuses. */
  refusedNonces?: number;
  /** Validations take up to this many seconds; without it they are immediate. */
  slowS?: number;
  /** The name server, HOST:PORT. */
  dns?: string;
  /** Only this external account may have an account: id and key. */
  externalAccount?: { kid: string; key: string };
  blocked?: string[];
  /** It runs there, on the loopback of that host. */
  host?: Host;
};

export async function startPebble(options: PebbleOptions = {}): Promise<Pebble> {
  const directory = temporaryDirectory();
  const [port, management] = [options.port ?? freePort(), freePort()];
  const trust = await certificateFor(directory.path);
  const { externalAccount } = options;
  const config = {
    listenAddress: `127.0.0.1:${port}`,
    managementListenAddress: `127.0.0.1:${management}`,
    certificate: join(directory.path, "tls.crt"),
    privateKey: join(directory.path, "tls.key"),
    httpPort: options.httpPort ?? 80,
    tlsPort: 443,
    retryAfter: { authz: 1, order: 1 },
    keyAlgorithm: "ecdsa",
    domainBlocklist: options.blocked ?? [],
    externalAccountBindingRequired: externalAccount !== undefined,
    ...(externalAccount === undefined
      ? {}
      : { externalAccountMACKeys: { [externalAccount.kid]: externalAccount.key } }),
    profiles: {
      default: { description: "The usual one", validityPeriod: 7_776_000 },
      shortlived: { description: "For addresses", validityPeriod: 518_400 },
    },
  };
  const file = join(directory.path, "pebble.json");
  writeFileSync(file, JSON.stringify({ pebble: config }));
  const argv = [goProgram("pebble"), "-config", file, "-strict"];
  const words = [...argv, ...(options.dns === undefined ? [] : ["-dnsserver", options.dns])];
  const inside = (each: readonly string[]) => options.host?.inside(each) ?? [...each];
  const child = Bun.spawn(inside(words), {
    env: {
      PEBBLE_WFE_NONCEREJECT: String(options.refusedNonces ?? 0),
      ...(options.slowS === undefined
        ? { PEBBLE_VA_NOSLEEP: "1" }
        : { PEBBLE_VA_SLEEPTIME: String(options.slowS) }),
      PEBBLE_AUTHZREUSE: "0",
    },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  let log = "";
  void (async () => {
    for await (const chunk of child.stdout) log += new TextDecoder().decode(chunk);
  })();
  const url = `https://127.0.0.1:${port}/dir`;
  const get = getter(trust, inside);
  await untilAnswered(url, get);
  return {
    directory: url,
    trust,
    log: () => log,
    pause: () => child.kill("SIGSTOP"),
    resume: () => child.kill("SIGCONT"),
    root: () => get(`https://127.0.0.1:${management}/roots/0`),
    async manage(path, body) {
      const response = await fetch(`https://127.0.0.1:${management}${path}`, {
        method: "POST",
        body: JSON.stringify(body),
        tls: { ca: trust },
      });
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    },
    async [Symbol.asyncDispose]() {
      // A paused process ends at no other signal.
      child.kill("SIGKILL");
      await child.exited;
      directory[Symbol.dispose]();
    },
  };
}

/** A certificate for 127.0.0.1. Returns the PEM of its CA. */
async function certificateFor(directory: string): Promise<string> {
  const times = { notBefore: Date.now() - 60_000, notAfter: Date.now() + 86_400_000 };
  const serial = () => crypto.getRandomValues(new Uint8Array(16));
  const authority = await makeX509Ca({ organization: "test", ...times, serial: serial() });
  const names = { names: ["localhost"], addresses: ["127.0.0.1"] };
  const made = await issueServerX509({ ...names, ...times, serial: serial() }, await openIssuer(authority));
  writeFileSync(join(directory, "tls.crt"), made.cert);
  writeFileSync(join(directory, "tls.key"), made.key, { mode: 0o600 });
  return authority.certificatePem;
}

/** Requests with curl, from where the server runs. Throws unless the status is 200. */
function getter(trust: string, inside: (argv: readonly string[]) => string[] = (argv) => [...argv]) {
  return async (url: string): Promise<string> => {
    const argv = inside(["curl", "-sf", "--max-time", "10", "--cacert", "/dev/stdin", url]);
    const child = Bun.spawn(argv, { stdin: Buffer.from(trust), stdout: "pipe", stderr: "ignore" });
    const text = await new Response(child.stdout).text();
    if ((await child.exited) !== 0) throw new Error(`${url} does not answer`);
    return text;
  };
}

async function untilAnswered(url: string, get: (url: string) => Promise<string>): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const answered = await get(url).then(
      () => true,
      () => false,
    );
    if (answered) return;
    await Bun.sleep(50);
  }
  throw new Error(`${url} does not answer`);
}

export type NameServer = AsyncDisposable & {
  address: string;
  /** Where the program that sets TXT records posts to. */
  management: string;
};

/** A name server for which every name has the address 127.0.0.1. */
export async function startNames(): Promise<NameServer> {
  const [port, management] = [freePort(), freePort()];
  const off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""];
  const listen = ["-dnsserver", `127.0.0.1:${port}`, "-management", `127.0.0.1:${management}`];
  const child = Bun.spawn([goProgram("pebble-challtestsrv"), ...off, ...listen], {
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
  });
  for (let tries = 0; ; tries++) {
    const isUp = await fetch(`http://127.0.0.1:${management}/`).then(
      () => true,
      () => false,
    );
    if (isUp) break;
    if (tries === 200) throw new Error("the name server does not start");
    await Bun.sleep(50);
  }
  return {
    address: `127.0.0.1:${port}`,
    management: `http://127.0.0.1:${management}`,
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
    },
  };
}

/** A hook for DNS-01 that writes the records of `names`. */
export function writeDnsHook(path: string, names: NameServer): void {
  const script = `#!/bin/sh
set -eu
case "$1" in
add) curl -sf "${names.management}/set-txt" -d "{\\"host\\":\\"$2.\\",\\"value\\":\\"$3\\"}" ;;
remove) curl -sf "${names.management}/clear-txt" -d "{\\"host\\":\\"$2.\\"}" ;;
esac
`;
  writeFileSync(path, script, { mode: 0o755 });
}

/** step-ca with one ACME provisioner, which looks for HTTP-01 at this port. `dns`: its name server, HOST:PORT. */
export async function startStepCa(httpPort: number, dns: string): Promise<AcmeServer> {
  const directory = temporaryDirectory();
  const at = (name: string) => join(directory.path, name);
  const port = freePort();
  // Its own tool would be another program to build.
  const openssl = (...words: string[]) => runSync(["openssl", ...words], { cwd: directory.path });
  const key = (name: string) => openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", name);
  key("root.key");
  key("ca.key");
  const subject = ["-subj", "/CN=Test root", "-days", "2", "-key", "root.key", "-out", "root.crt"];
  openssl("req", "-new", "-x509", ...subject, "-addext", "keyUsage=critical,keyCertSign,cRLSign");
  openssl("req", "-new", "-key", "ca.key", "-subj", "/CN=Test CA", "-out", "ca.csr");
  writeFileSync(
    at("ca.ext"),
    "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n",
  );
  const signed = [
    "-CA",
    "root.crt",
    "-CAkey",
    "root.key",
    "-CAcreateserial",
    "-days",
    "2",
    "-extfile",
    "ca.ext",
  ];
  openssl("x509", "-req", "-in", "ca.csr", ...signed, "-out", "ca.crt");
  const config = {
    root: at("root.crt"),
    crt: at("ca.crt"),
    key: at("ca.key"),
    address: `127.0.0.1:${port}`,
    dnsNames: ["127.0.0.1"],
    logger: { format: "text" },
    db: { type: "bbolt", dataSource: at("db") },
    authority: { provisioners: [{ type: "ACME", name: "acme" }] },
  };
  writeFileSync(at("ca.json"), JSON.stringify(config));
  const where = ["--insecure", "--acme-http-port", String(httpPort), "--resolver", dns];
  const argv = [goProgram("step-ca"), ...where, at("ca.json")];
  const child = Bun.spawn(argv, { stdin: "ignore", stdout: "ignore", stderr: Bun.file(at("log")) });
  const trust = await Bun.file(at("root.crt")).text();
  const url = `https://127.0.0.1:${port}/acme/acme/directory`;
  await untilAnswered(url, getter(trust));
  return {
    directory: url,
    trust,
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
      directory[Symbol.dispose]();
    },
  };
}
