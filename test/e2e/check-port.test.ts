// The compiled command on real sockets: a port that is free, busy, forbidden, or used by our own engine. And the control
// plane's datagram, which arrives or is blocked by a router.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createSocket, type Socket } from "node:dgram";
import { join } from "node:path";
import {
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, registerNode, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
const nobody = join(directory.path, "nobody");
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  mkdirSync(nobody);
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
}, 60_000);

afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

/** A socket of this process on a port that the system chose. */
async function hold(type: "udp4" | "udp6", ipv6Only = false): Promise<Socket> {
  const socket = createSocket({ type, ipv6Only });
  await new Promise<void>((resolve) => socket.bind(0, resolve));
  return socket;
}

async function check(words: readonly (string | number)[], prefix: readonly string[] = []) {
  const { status, stdout } = await runAgent(["check-port", ...words.map(String), "--json"], {
    inside: (argv) => [...prefix, ...argv],
  });
  return { status, json: JSON.parse(stdout) as unknown };
}

test("free and busy ports, with the name of the process, for each address family", async () => {
  const four = await hold("udp4");
  const six = await hold("udp6", true);
  const both = await hold("udp6");
  const ports = [four, six, both].map((socket) => socket.address().port);
  const [p4 = 0, p6 = 0, p46 = 0] = ports;
  const me = { pid: process.pid, name: readFileSync(`/proc/${process.pid}/comm`, "utf8").trim() };
  const taken = (port: number, family: string) => ({ port, family, available: false, process: me });
  const free = (port: number, family: string) => ({ port, family, available: true });
  const wanted = [
    [p4, [taken(p4, "ipv4"), free(p4, "ipv6")]],
    [p6, [free(p6, "ipv4"), taken(p6, "ipv6")]],
    [p46, [taken(p46, "ipv4"), taken(p46, "ipv6")]],
  ] as const;
  for (const [port, states] of wanted) {
    expect(await check([port, "--config-root", nobody])).toMatchObject({
      status: 1,
      json: { ports: states },
    });
  }
  for (const socket of [four, six, both]) socket.close();
  expect(await check([`${p4},${p6}`, p46, "--config-root", nobody])).toMatchObject({ status: 0 });
});

asRoot("another user", () => {
  test("is told about a forbidden port, and about a busy one without its process", async () => {
    const held = await hold("udp4");
    const { port } = held.address();
    const user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    // In a separate network namespace, where low ports need root, as on a new machine.
    using lan = makeLan(["alone"]);
    const inside = lan.host("alone").inside(user);
    const forbidden = await check([53, "--config-root", "/nowhere"], inside);
    expect(forbidden).toMatchObject({
      status: 1,
      json: { ports: [{ available: false, reason: expect.stringContaining("forbidden") }, {}] },
    });
    const unnamed = await check([port, "--config-root", "/nowhere"], user);
    expect(unnamed).toMatchObject({ status: 1, json: { ports: [{ family: "ipv4", available: false }, {}] } });
    expect(JSON.stringify(unnamed.json)).not.toContain("process");
    held.close();
  });
});

test("with --api-base a datagram arrives; without a registration the command fails", async () => {
  const root = join(directory.path, "open");
  await registerNode(acme, root, "open", await acme.makeToken());
  const socket = await hold("udp4");
  const { port } = socket.address();
  const words = [port, "--api-base", `${plane.url}/`, "--config-root", root];
  expect(await check(words)).toMatchObject({ status: 1, json: { probes: [{ port, reachable: null }] } });
  socket.close();
  expect(await check(words)).toMatchObject({ status: 0, json: { probes: [{ port, reachable: true }] } });
  const stranger = await check([port, "--api-base", plane.url, "--config-root", nobody]);
  expect(stranger).toMatchObject({ status: 4, json: { error: { code: "not_registered" } } });
  const many = await check(["5000-5003", "--api-base", plane.url, "--config-root", root]);
  expect(many).toMatchObject({ status: 2, json: { error: { code: "usage" } } });
}, 30_000);

asRoot("a machine behind a router", () => {
  test("is told that its port is not reachable", async () => {
    using stack = new DisposableStack();
    const host = stack.use(makeLan(["inside"])).host("inside");
    // This process forwards its requests, so the datagram is sent to this process.
    stack.use(await bridgePort(host, directory.path, Number(new URL(plane.url).port)));
    const root = join(directory.path, "inside");
    await registerNode(acme, root, "inside", await acme.makeToken());
    const words = [4242, "--api-base", plane.url, "--config-root", root];
    expect(await check(words, host.inside([]))).toMatchObject({
      status: 1,
      json: { ports: [{ available: true }, { available: true }], probes: [{ reachable: false }] },
    });
  }, 60_000);
});

describeEngines("a port that our own engine holds", ({ nebula, version }) => {
  test("counts as available, and a raw socket listens beside it", async () => {
    const name = `own-${version.replaceAll(".", "-")}`;
    const root = join(directory.path, name);
    const flags = ["--overlay-binary", nebula];
    const node = await registerNode(acme, root, name, await acme.makeToken(), flags);
    const free = await hold("udp4");
    const { port } = free.address();
    free.close();
    await acme.api("PATCH", "/api/org/acme/", { config_overrides: { tun: { disabled: true } } });
    const overrides = `listen:\n  host: 127.0.0.1\n  port: ${port}\n`;
    writeFileSync(join(node.directory, "overrides.yml"), overrides);
    expect((await runAgent(["sync-config", "--config-root", root, ...flags])).status).toBe(0);
    const log = join(root, "engine.log");
    const fd = openSync(log, "a");
    const engine = Bun.spawn([nebula, "-config", join(node.directory, "config.yml")], {
      env: cleanEnvironment(),
      stdio: ["ignore", fd, fd],
    });
    closeSync(fd);
    try {
      for (let waited = 0; waited < 10_000; waited += 20) {
        if (readFileSync(log, "utf8").includes("Nebula interface is active")) break;
        await Bun.sleep(20);
      }
      // Without a port, the organization's own is tested.
      const { status, json } = await check(["--config-root", root, "--api-base", plane.url, ...flags]);
      const held = { port, family: "ipv4", available: true, process: { pid: engine.pid, name: "nebula" } };
      expect(json).toMatchObject({ ports: [held, { family: "ipv6" }], probes: [{ port, reachable: true }] });
      expect(status).toBe(0);
      // The same configuration below another root does not count.
      expect(await check([port, "--config-root", nobody])).toMatchObject({ status: 1 });
    } finally {
      engine.kill("SIGKILL");
      await engine.exited;
    }
  }, 60_000);
});

test("invalid ports are refused, and a dry run sends nothing", async () => {
  for (const word of ["0", "65536", "5-4", "a", "1-", "4242,,4243", "-1"]) {
    const { status } = await runAgent(["check-port", "--config-root", nobody, "--", word]);
    expect(`${word} ${status}`).toBe(`${word} 2`);
  }
  expect(await check([4242, "--dry-run", "--config-root", nobody])).toEqual({
    status: 0,
    json: { plan: [] },
  });
});
