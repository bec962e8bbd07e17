// What keeps a machine from others, seen from namespaces: an unplugged cable, a refused port, and a network of IPv6 alone
// where names have addresses of both families.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { until } from "../support/until.ts";

const port = 4242;
const source = join(import.meta.dir, "../../src");
let lan: Lan;

beforeAll(() => {
  lan = makeLan(["here", "hub"]);
  for (const [at, host] of lan.hosts.entries())
    host.run(["ip", "addr", "add", `fd00:7::${at + 1}/64`, "dev", "eth0", "nodad"]);
  lan.host("hub").spawn([process.execPath, "-e", engine]);
});
afterAll(() => lan.remove());

/** Answers as engines do, on both families. */
const engine = `
  const { createSocket } = require("node:dgram");
  for (const [kind, at] of [["udp4", "0.0.0.0"], ["udp6", "::"]]) {
    const socket = createSocket({ type: kind, ipv6Only: true });
    socket.on("message", (packet, { port, address }) =>
      socket.send(Buffer.concat([Buffer.from([0x12]), packet.subarray(1)]), port, address));
    socket.bind(${port}, at);
  }
`;

/** What a program in the namespace prints, as JSON. */
const inHere = (script: string): unknown =>
  JSON.parse(lan.host("here").run([process.execPath, "-e", script]));

const ask = (addresses: readonly string[], at = port) =>
  inHere(`
    import { askHubs, udpFinding } from "${source}/node/doctor/underlay.ts";
    const hub = { overlay: "10.77.0.1", name: "hub", host: "hub.example.org", port: ${at}, isLighthouse: true, isRelay: true };
    const asked = await askHubs([hub], { lookup: async () => ${JSON.stringify(addresses)} });
    console.log(JSON.stringify({ is: asked[0].is, finding: udpFinding(asked, "acme", { carries: false }) }));
  `);

const failure = (addresses: readonly string[], env: Record<string, string> = {}) =>
  inHere(`
    import { findTrueFailure } from "${source}/base/connect-failure.ts";
    const refused = Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
    const told = await findTrueFailure(refused, "https://hub.example.org/", { lookup: async () => ${JSON.stringify(addresses)}, env: ${JSON.stringify(env)} });
    console.log(JSON.stringify(told.code));
  `);

const both = ["192.0.2.2", "fd00:7::2"];
const answering = { is: "answers", finding: { verdict: "ok" } };

test("a lighthouse is found by each address of its name, and the address that answers counts", async () => {
  await until(() => JSON.stringify(ask(both)).includes("answers"), { ms: 30_000 });
  expect(ask(both)).toMatchObject(answering);
  expect(ask(["198.51.100.9", "fd00:7::2"])).toMatchObject(answering);
  expect(ask([])).toMatchObject({ is: "unknown name" });
  expect(ask(both, 9)).toMatchObject({
    is: "closed",
    finding: {
      verdict: "fail",
      evidence:
        "UDP does not pass: UDP hub.example.org:9 of hub (192.0.2.2) is closed, no engine listens there",
      remedy:
        "On the lighthouse: agent start acme. If 192.0.2.2 is not its address, correct what the name server says of hub.example.org",
    },
  });
}, 60_000);

test("a refused connection is called refused, and a cable that is out is not", () => {
  expect(failure(both)).toBe("ECONNREFUSED");
  lan.host("here").link("down");
  try {
    expect(failure(both)).not.toBe("ECONNREFUSED");
    // What was refused is the connection to the proxy.
    expect(failure(both, { HTTPS_PROXY: "http://127.0.0.1:9" })).toBe("ECONNREFUSED");
    expect(ask(both)).toMatchObject({
      is: "no route",
      finding: {
        verdict: "fail",
        evidence:
          "UDP does not pass: no route to UDP hub.example.org:4242 of hub (192.0.2.2): this machine is not connected, or no machine has that address",
      },
    });
  } finally {
    lan.host("here").link("up");
  }
}, 60_000);

test("on a machine with IPv6 alone the addresses of IPv4 say nothing", () => {
  const here = lan.host("here");
  here.run(["ip", "addr", "flush", "dev", "eth0"]);
  here.run(["ip", "addr", "add", "fd00:7::1/64", "dev", "eth0", "nodad"]);
  expect(ask(both)).toMatchObject(answering);
  expect(failure(both)).toBe("ECONNREFUSED");
  expect(ask(["192.0.2.2"])).toMatchObject({
    is: "no route",
    finding: {
      remedy:
        "Connect this machine to the network, then: ip route get 192.0.2.2. If it is connected, the lighthouse may have another address now: there, agent doctor",
    },
  });
}, 60_000);
