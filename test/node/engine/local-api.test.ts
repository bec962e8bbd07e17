// The client of the engine's control socket: on real engines 1.12, and on sockets that answer badly.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { localApi, readReload } from "../../../src/node/engine/local-api.ts";
import { localApiSection } from "../../../src/node/files/config/config-file.ts";
import { controlSocket } from "../../../src/platform/systemd/control-socket.ts";
import { realSystem } from "../../../src/base/system.ts";
import { asRoot, describeEngines } from "../../support/engines.ts";
import { meet, startEngines, type EngineNetwork } from "../../support/engine-pair.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const system = realSystem();
/** Time limits pass at once. */
const impatient = { sleep: () => Bun.sleep(50) };

async function failureOf(work: Promise<unknown>): Promise<AppError> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof AppError) return error;
  throw new Error(`not an AppError: ${String(error)}`);
}

asRoot("with root", () => {
  describeEngines(
    "control socket",
    (engine) => {
      const directory = temporaryDirectory();
      let network: EngineNetwork;
      const node = (at: number) => {
        const found = network.nodes[at];
        if (found === undefined) throw new Error(`No node ${at}`);
        return found;
      };
      const api = (at: number) => localApi(node(at).socket, system);
      beforeAll(async () => {
        network = await startEngines(engine, directory.path, ["lighthouse", "node"]);
        await meet(node(1), node(0));
      });
      afterAll(async () => {
        await network[Symbol.asyncDispose]();
        directory[Symbol.dispose]();
      });

      test("only its owner may connect", () => {
        expect(statSync(node(1).socket).mode & 0o777).toBe(0o600);
        expect(statSync(join(node(1).socket, "..")).mode & 0o777).toBe(0o700);
      });

      test("hostmap() tells each tunnel with certificate and path", async () => {
        const tunnels = await api(1).hostmap();
        expect(tunnels).toHaveLength(1);
        expect(tunnels[0]).toMatchObject({
          vpnAddrs: [node(0).address],
          currentRemote: `${node(0).host.address}:4242`,
          currentRelaysToMe: [],
          cert: { details: { name: "lighthouse", groups: [], networks: [`${node(0).address}/24`] } },
        });
        expect(tunnels[0]?.messageCounter).toBeGreaterThan(0);
        expect(Date.parse(tunnels[0]?.cert?.details.notAfter ?? "")).toBeGreaterThan(Date.now());
      });

      test("version(), device(), relays() and queryLighthouse() answer", async () => {
        expect(await api(1).version()).toBe(engine.version);
        expect(await api(1).device()).toEqual({ name: "pair1", cidr: [`${node(1).address}/24`] });
        expect(await api(1).relays()).toEqual([]);
        const known = await api(1).queryLighthouse(node(0).address);
        expect(known[node(0).address]?.learned).toEqual([`${node(0).host.address}:4242`]);
        expect(await api(1).queryLighthouse("10.78.0.99")).toEqual({});
      });

      test("closeTunnel() closes one tunnel, createTunnel() starts a handshake", async () => {
        expect(await api(1).closeTunnel(node(0).address, { localOnly: true })).toBe(true);
        expect(await api(1).closeTunnel("10.78.0.99")).toBe(false);
        await api(1).createTunnel(node(0).address);
        await meet(node(1), node(0));
        expect(await api(1).createTunnel(node(0).address)).toBe(false);
        const refused = await failureOf(api(1).closeTunnel("no address"));
        expect(refused.code).toBe("engine_failed");
        expect(refused.message).toContain("could not be parsed");
      });

      test("reload() names keys that need a restart, and rejects a configuration that fails", async () => {
        expect(await api(1).reload()).toEqual({ restartKeys: [], needsRestart: false });
        node(1).configure({ listen: { host: "0.0.0.0", port: 4243 } });
        expect(await api(1).reload()).toEqual({ restartKeys: ["listen.port"], needsRestart: true });
        node(1).configure({ firewall: { outbound: "nonsense" } });
        const refused = await failureOf(api(1).reload());
        expect(refused.code).toBe("engine_failed");
        node(1).configure({});
        // The engine goes on saying that some reload needed a restart: only the keys tell about this one.
        expect(await api(1).reload()).toEqual({ restartKeys: [], needsRestart: true });
      });
    },
    ["1.12"],
  );
});

describe("a socket that answers badly", () => {
  const directory = temporaryDirectory();
  afterAll(() => directory[Symbol.dispose]());
  let made = 0;
  /** Answers each request with this text, in pieces. */
  function serve(answer: string | undefined): { path: string; requests: string[] } & Disposable {
    const path = join(directory.path, `s${made++}`);
    const requests: string[] = [];
    const server = Bun.listen({
      unix: path,
      socket: {
        data(socket, bytes) {
          requests.push(bytes.toString());
          if (answer === undefined) return;
          const half = Math.floor(answer.length / 2);
          socket.write(answer.slice(0, half));
          setTimeout(() => socket.end(answer.slice(half)), 5);
        },
      },
    });
    return { path, requests, [Symbol.dispose]: () => server.stop(true) };
  }

  test("no socket, a socket without an answer, and none in use are engine_unreachable", async () => {
    expect((await failureOf(localApi(join(directory.path, "none"), system).version())).code).toBe(
      "engine_unreachable",
    );
    using silent = serve(undefined);
    const late = await failureOf(localApi(silent.path, impatient).version());
    expect(late.code).toBe("engine_unreachable");
    expect(late.message).toContain("did not answer within 2 s");
    expect((await failureOf(localApi(undefined, system).version())).code).toBe("engine_unreachable");
  });

  test("an answer that is cut, no JSON or another shape is engine_failed", async () => {
    for (const answer of [
      "",
      "{",
      "null\n",
      '{"version":1,"result":{"version":7}}\n',
      `"${"x".repeat(99)}"\n`,
    ]) {
      using server = serve(answer);
      expect((await failureOf(localApi(server.path, system).version())).code).toBe("engine_failed");
    }
  });

  test("one line per request, without a group of parameters that the engine does not know", async () => {
    using server = serve('{"version":1,"result":{"ok":true,"reason":"Closed"}}\n');
    await localApi(server.path, system).closeTunnel("10.78.0.1", { localOnly: true });
    expect(server.requests).toEqual([
      '{"version":1,"command":"close-tunnel","args":["10.78.0.1"],"params":{"local-only":true}}\n',
    ]);
  });

  test("a tunnel that does not parse is left out, the others stay", async () => {
    const tunnel = {
      vpnAddrs: ["10.78.0.1"],
      localIndex: 1,
      remoteIndex: 2,
      remoteAddrs: null,
      cert: null,
      messageCounter: 3,
      currentRemote: "",
      currentRelaysToMe: ["10.78.0.9"],
      currentRelaysThroughMe: null,
    };
    const long = { ...tunnel, currentRemote: "x".repeat(65) };
    using server = serve(`${JSON.stringify({ version: 1, result: [long, { vpnAddrs: [] }, 7, tunnel] })}\n`);
    const tunnels = await localApi(server.path, system).hostmap();
    expect(tunnels).toEqual([
      expect.objectContaining({ vpnAddrs: ["10.78.0.1"], remoteAddrs: [], currentRelaysToMe: ["10.78.0.9"] }),
    ]);
  });
});

test("readReload() finds the keys in the engine's sentence", () => {
  expect(readReload("Config reload complete")).toEqual({ restartKeys: [], needsRestart: false });
  expect(
    readReload(
      "Config reload was completed but requires a restart to fully apply, keys [tun.dev listen.port]",
    ),
  ).toEqual({ restartKeys: ["tun.dev", "listen.port"], needsRestart: true });
  expect(readReload("Config reload was completed but requires a restart to fully apply")).toEqual({
    restartKeys: [],
    needsRestart: true,
  });
});

test("each organization has its own address, and never a group", () => {
  expect(controlSocket("/etc/overlay-agent/acme")).toBe("/etc/overlay-agent/acme/run/ctl.sock");
  expect(controlSocket(`/${"x".repeat(100)}`)).toBeUndefined();
  expect(localApiSection(`/${"x".repeat(100)}`)).toEqual({ control: { enabled: false } });
  const windows = ["acme", "beta"].map((slug) =>
    controlSocket(`C:/ProgramData/overlay-agent/${slug}`, "win32"),
  );
  expect(new Set(windows).size).toBe(2);
  expect(windows[0]).toMatch(
    /^\\\\\.\\pipe\\ProtectedPrefix\\Administrators\\overlay-agent\.acme\.[0-9a-f]{16}$/,
  );
  expect(localApiSection("/etc/overlay-agent/acme")).toEqual({
    control: { enabled: true, socket: "/etc/overlay-agent/acme/run/ctl.sock" },
  });
});
