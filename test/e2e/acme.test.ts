// `agent serve --tls acme` with the compiled executable and Pebble: the first certificate, nodes that pinned the own CA,
// kills during an order, and replicas.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import { paths } from "../support/paths.ts";
import { seed, slug, tokenOf } from "../bench/seed.ts";
import {
  agent,
  agentJson,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
} from "../support/agent.ts";
import {
  describeAcme,
  startNames,
  startPebble,
  type NameServer,
  type Pebble,
} from "../support/acme-servers.ts";
import { freePort } from "../support/free-port.ts";
import { createDatabase, describePostgres, startPostgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const name = "control.example.test";

let names: NameServer;
beforeAll(async () => {
  buildAgent();
  names = await startNames();
});
afterAll(async () => {
  await names[Symbol.asyncDispose]();
});

type Seen = { issuer: string; serial: string; isTrusted: boolean };

/** The certificate that a client sees at the port, and whether it trusts it for the public name. */
function certificateAt(port: number, ca: string, servername = name): Promise<Seen> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, servername, ca, rejectUnauthorized: false }, () => {
      const { issuer, serialNumber } = socket.getPeerCertificate();
      resolve({ issuer: String(issuer.CN), serial: serialNumber, isTrusted: socket.authorized });
      socket.destroy();
    });
    socket.once("error", reject);
  });
}

async function until<T>(look: () => Promise<T | undefined>, what: string): Promise<T> {
  for (let tries = 0; tries < 1200; tries++) {
    const found = await look().catch(() => undefined);
    if (found !== undefined) return found;
    await Bun.sleep(100);
  }
  throw new Error(`Waited in vain for ${what}`);
}

const issued = (port: number, root: string) =>
  until(async () => {
    const seen = await certificateAt(port, root);
    return seen.isTrusted ? seen : undefined;
  }, "the certificate of the authority");

function flagsOf(pebble: Pebble, directory: string, port: number, challengePort: number): string[] {
  const trust = join(directory, "trust.pem");
  writeFileSync(trust, pebble.trust);
  const server = ["--acme-directory", pebble.directory, "--acme-ca", trust];
  const subject = ["--tls", "acme", "--public-url", `https://${name}:${port}`];
  return [...subject, ...server, "--acme-listen", `127.0.0.1:${challengePort}`];
}

function checkin(port: number, waitS: number): Promise<Response> {
  return fetch(`https://127.0.0.1:${port}${paths.checkin(slug, 1)}`, {
    method: "POST",
    headers: {
      Authorization: `Bearer ${tokenOf(1)}`,
      "Content-Type": "application/json",
      Prefer: `wait=${waitS}`,
    },
    body: JSON.stringify({ version: "0.1.0", uptime: 1, config_version: 1 }),
    tls: { rejectUnauthorized: false },
    // The listener with the former certificate closes its idle connections, maybe just when the next request is sent.
    keepalive: false,
  });
}

describeAcme("serve --tls acme", () => {
  test("the public certificate comes without a lost poll; nodes that pinned the own CA find it at their port", async () => {
    using directory = temporaryDirectory();
    const data = join(directory.path, "data");
    await seed({ dataDirectory: data }, 2);
    const [port, pinned, challenges] = [freePort(), freePort(), freePort()];
    await using pebble = await startPebble({ httpPort: challenges, dns: names.address });
    let fingerprint: unknown;
    {
      await using former = await startControlPlane(
        data,
        ["--tls", "auto", "--public-url", `https://127.0.0.1:${pinned}`],
        pinned,
      );
      const { stdout } = await former.admin(["token", "create", slug, "--json"]);
      fingerprint = /--ca-fingerprint (\S+)/.exec(stdout)?.[1];
    }
    expect(fingerprint).toStartWith("sha256:");
    const before = await agentJson(["admin", "token", "create", slug, "--data-dir", data]);
    expect(JSON.stringify(before)).toContain(String(fingerprint));

    const flags = flagsOf(pebble, directory.path, port, challenges);
    const taken = await runAgent(["serve", ...flags, "--listen", `127.0.0.1:${pinned}`, "--data-dir", data]);
    expect([taken.status, taken.stderr]).toEqual([78, expect.stringContaining("--own-ca-listen none")]);

    await using plane = await startControlPlane(data, flags, port);
    const first = await certificateAt(port, await pebble.root());
    expect(first).toMatchObject({ issuer: "control plane CA", isTrusted: false });
    const held = checkin(port, 6);
    const root = await pebble.root();
    const seen = await issued(port, root);
    expect(seen.issuer).toStartWith("Pebble Intermediate CA");
    expect((await held).status).toBe(200);
    expect((await checkin(port, 0)).status).toBe(200);
    // Answers by the public name insist on TLS from now on.
    const answer = await fetch(`https://127.0.0.1:${port}/healthz`, {
      headers: { Host: `${name}:${port}` },
      tls: { rejectUnauthorized: false },
    });
    expect(answer.headers.get("strict-transport-security")).toBe("max-age=2592000");
    expect((await certificateAt(pinned, root)).issuer).toBe("control plane CA");
    expect((await checkin(pinned, 0)).status).toBe(200);
    const after = await agentJson(["admin", "token", "create", slug, "--data-dir", data]);
    expect(JSON.stringify(after)).not.toContain("ca-fingerprint");
    const events = await plane.admin(["audit", "verify"]);
    expect(events.status).toBe(0);
    expect(plane.log()).not.toContain("BEGIN PRIVATE KEY");

    // A restart keeps both ports and orders nothing. Told to move nodes, it says so where the own CA is shown.
    const moveAt = async (at: number) => Object(await (await checkin(at, 0)).json()).move;
    expect(await moveAt(pinned)).toBeUndefined();
    expect(await plane.stop()).toBe(0);
    await using again = await startControlPlane(data, [...flags, "--move-nodes"], port);
    expect([await moveAt(port), await moveAt(pinned)]).toEqual([undefined, expect.stringContaining(".")]);
    expect((await certificateAt(port, root)).serial).toBe(seen.serial);
    expect((await certificateAt(pinned, root)).issuer).toBe("control plane CA");
    expect(again.log()).not.toContain("ordering");
  }, 180_000);

  test("killed during a slow validation, the server continues its order", async () => {
    // Pebble chooses how long it waits before it validates. A validation that is under way already when the server is
    // killed fails, and ends its order: then the kill came too late to show anything.
    for (let tries = 0; !(await killBeforeValidation()); tries++) expect(tries).toBeLessThan(10);
  }, 360_000);

  /** Whether the server could be killed between its answer to the challenge and the validation. */
  async function killBeforeValidation(): Promise<boolean> {
    using directory = temporaryDirectory();
    const data = join(directory.path, "data");
    const [port, challenges] = [freePort(), freePort()];
    await using pebble = await startPebble({
      httpPort: challenges,
      dns: names.address,
      slowS: 9,
      refusedNonces: 20,
    });
    const flags = flagsOf(pebble, directory.path, port, challenges);
    const argv = [agent, "serve", "--listen", `127.0.0.1:${port}`, "--data-dir", data, ...flags];
    const child = Bun.spawn(argv, {
      env: cleanEnvironment(),
      stdin: "ignore",
      stdout: "ignore",
      stderr: "ignore",
    });
    await until(async () => (pebble.log().includes("POST /chalZ/") ? true : undefined), "the challenge");
    // It must not ask while there is no server: a validation that fails ends its order.
    pebble.pause();
    child.kill("SIGKILL");
    await child.exited;
    // Its last lines may still be in the pipe.
    await Bun.sleep(100);
    if (pebble.log().includes("Attempting to validate")) return false;
    await using plane = await startControlPlane(data, flags, port);
    pebble.resume();
    await issued(port, await pebble.root());
    expect(plane.log()).toContain("the TLS certificate is there");
    expect(pebble.log().match(/Added order/g)).toHaveLength(1);
    return true;
  }

  test("the flags are checked together", async () => {
    const usage: [string[], string][] = [
      [["--tls", "acme"], "--public-url"],
      [["--tls", "acme", "--public-url", "http://control.example.test"], "--public-url"],
      [["--acme-email", "a@example.org"], "--acme-email needs --tls acme"],
      [["--tls", "acme", "--public-url", "https://a.example", "--acme-dns-hook", "hook"], "absolute path"],
      [["--tls", "acme", "--public-url", "https://a.example", "--acme-eab-kid", "1"], "--acme-eab-key-file"],
      [
        ["--tls", "acme", "--public-url", "https://a.example", "--acme-directory", "http://a.example"],
        "HTTPS",
      ],
      [
        ["--tls", "acme", "--public-url", "https://a.example", "--tls-cert", "a", "--tls-key", "b"],
        "not both",
      ],
    ];
    for (const [flags, words] of usage) {
      const { status, stderr } = await runAgent(["serve", ...flags]);
      expect([flags, status, stderr.includes(words) || stderr]).toEqual([flags, 2, true]);
    }
  }, 180_000);
});

describePostgres("serve --tls acme on PostgreSQL", () => {
  test("of two replicas one orders, the other answers the challenge, and both serve the certificate", async () => {
    using directory = temporaryDirectory();
    await using cluster = await startPostgres();
    const database = ["--database-url", await createDatabase(cluster.directory)];
    const data = join(directory.path, "data");
    await seed({ dataDirectory: data, databaseUrl: database[1] ?? "" }, 1);
    const [a, b, challengesA, challengesB] = [freePort(), freePort(), freePort(), freePort()];
    // The authority reaches only the replica that has no lease.
    await using pebble = await startPebble({ httpPort: challengesB, dns: names.address, slowS: 2 });
    const flags = (port: number, challenges: number) => [
      ...flagsOf(pebble, directory.path, port, challenges),
      ...database,
    ];
    // It must not validate before the replica that it reaches is there.
    pebble.pause();
    await using first = await startControlPlane(data, flags(a, challengesA), a);
    await using second = await startControlPlane(data, flags(b, challengesB), b);
    pebble.resume();
    const root = await pebble.root();
    const [seenA, seenB] = [await issued(a, root), await issued(b, root)];
    expect(seenA.serial).toBe(seenB.serial);
    const logs = first.log() + second.log();
    expect(logs.match(/ordering a TLS certificate/g)).toHaveLength(1);
    expect(pebble.log().match(/Added order/g)).toHaveLength(1);
  }, 180_000);
});
