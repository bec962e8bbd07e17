// The demo inside its namespaces: a control plane, three nodes, a ping across the overlay, the deletion of a node,
// and its peers that stop answering it. Uses the product from outside, as a user would.

import { join } from "node:path";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { connectOrganization } from "../contact/requests/connection.ts";
import { fileLog } from "../engine/engine-log.ts";
import type { OverlayControl } from "../engine/control-engine.ts";
import { engineVersion, rememberVersions } from "../engine/engine.ts";
import { parseLogLine } from "../engine/log-lines.ts";
import { engineInUse } from "../engine/engine-in-use.ts";
import { followOrganization } from "../contact/follow.ts";
import { openOrganization } from "../files/organizations.ts";
import { Children } from "./children.ts";
import {
  deletedNode,
  hosts,
  lighthouse,
  register,
  slug,
  startControlPlane,
  stayingNode,
  type Plane,
  type Registered,
  type Stage,
} from "./control-plane.ts";
import { makeNetwork } from "./network.ts";
import { startPings, type Pings } from "./pings.ts";

/** Handshake and ping are measured from the start of the first engine. */
export type Timeline = {
  engineVersion: string;
  nodes: { name: string; address: string; registerMs: number }[];
  firstHandshakeMs: number;
  firstPingMs: number;
  revocationToLastPingMs: number;
};

/** After this time without a reply, the peers no longer talk to the deleted node. */
const quietMs = 2500;

/** Plays the demo once and ends every process that it started. The caller provides an empty directory and removes it. */
export async function playDemo(
  directory: string,
  engine: string,
  deps: { system: System; log: Log; say(text: string): void },
  signal: AbortSignal,
): Promise<Timeline> {
  const ended = new AbortController();
  // Pending sleeps must not keep the process alive after the end.
  const sleep: System["sleep"] = (ms, ending) =>
    deps.system.sleep(ms, ending === undefined ? ended.signal : AbortSignal.any([ending, ended.signal]));
  const system = { ...deps.system, sleep };
  const network = await makeNetwork(hosts, system);
  const children = new Children(network, system);
  const interrupted = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(new AppError("interrupted", "The demo was interrupted")));
  });
  const stage = { ...deps, directory, engine, network, children, system, ended: ended.signal };
  try {
    return await Promise.race([play(stage), interrupted]);
  } finally {
    ended.abort();
    await children.endAll();
    network.remove();
  }
}

async function play(stage: Stage): Promise<Timeline> {
  const { engine, system, say } = stage;
  const version = await engineVersion(engine, system);
  const { url, token, deleteNode } = await startControlPlane(stage);
  const nodes: Registered[] = [];
  for (const host of hosts) nodes.push(await register(stage, host, url, token));
  say(`registered   ${nodes.map((node) => `${node.name} ${node.registerMs} ms`).join(", ")}`);
  const started = await startOverlay(stage, nodes);
  const revocationToLastPingMs = await revoke(stage, nodes, started, deleteNode);
  return {
    engineVersion: version,
    nodes: nodes.map(({ name, address, registerMs }) => ({ name, address, registerMs })),
    firstHandshakeMs: started.firstHandshakeMs,
    firstPingMs: started.firstPingMs,
    revocationToLastPingMs,
  };
}

type Overlay = {
  controls: Map<string, OverlayControl>;
  pings: Pings[];
  firstHandshakeMs: number;
  firstPingMs: number;
};

/** Starts the three engines and pings from one node to another; they find each other through the lighthouse. */
async function startOverlay(stage: Stage, nodes: readonly Registered[]): Promise<Overlay> {
  const controls = new Map<string, OverlayControl>();
  const logOf = (name: string) => join(stage.directory, `${name}.engine.log`);
  const start = async ({ name, root }: Registered) => {
    const control = await stage.children.engine(name, stage.engine, join(root, slug), logOf(name));
    controls.set(name, control);
  };
  const target = nodeNamed(nodes, deletedNode);
  const from = performance.now();
  // The lighthouse must run first: a node that cannot reach it waits before it tries again.
  await start(nodeNamed(nodes, lighthouse));
  await start(target);
  // Reads what is written from here on.
  const handshakes = fileLog(logOf(stayingNode))();
  await start(nodeNamed(nodes, stayingNode));
  const pings = [stayingNode, lighthouse].map((host) =>
    startPings(stage.network, host, target.address, stage.system, stage.ended),
  );
  const handshake = waitForHandshake(handshakes, target.address, stage.system);
  const replies = pings.map((each) => each.first(10_000));
  await Promise.all([handshake, ...replies]);
  const reply = (await replies[0]) ?? 0;
  const firstPingMs = Math.round(reply - from);
  // The log is read every 2 ms, so a reply may be noticed before its handshake.
  const firstHandshakeMs = Math.round(Math.min(await handshake, reply) - from);
  stage.say(
    `handshake    between ${stayingNode} and ${deletedNode} ${firstHandshakeMs} ms after the engines' start`,
  );
  stage.say(
    `ping         from ${stayingNode} to ${deletedNode} (${target.address}) ${firstPingMs} ms after the engines' start`,
  );
  return { controls, pings, firstHandshakeMs, firstPingMs };
}

/** performance.now() when the engine's log first shows a handshake with this overlay address. */
async function waitForHandshake(
  log: { read(): string[] },
  address: string,
  system: Pick<System, "sleep">,
): Promise<number> {
  for (let waited = 0; waited < 10_000; waited += 2) {
    for (const line of log.read().map(parseLogLine)) {
      // `vpnIp`: one address, of engines before 1.10. `vpnAddrs`: a list.
      const peers = [line?.fields["vpnIp"], line?.fields["vpnAddrs"]].flat();
      if (line?.msg === "Handshake message received" && peers.includes(address)) return performance.now();
    }
    await system.sleep(2);
  }
  throw new AppError("engine_failed", `The engine's log shows no handshake with ${address}`);
}

/** Deletes a node; its peers learn it by long poll. Returns the milliseconds from the answer to the last reply. */
async function revoke(
  stage: Stage,
  nodes: readonly Registered[],
  { controls, pings }: Overlay,
  deleteNode: Plane["deleteNode"],
): Promise<number> {
  const stop = new AbortController();
  const following = nodes
    .filter((node) => node.name !== deletedNode)
    .map((node) => follow(stage, node, controls, stop.signal));
  try {
    // After a second the nodes hold the long polls that will report the deletion.
    await stage.system.sleep(1000);
    await deleteNode(nodeNamed(nodes, deletedNode).id);
    const answered = performance.now();
    stage.say(`deleted      ${deletedNode}; its engine keeps running, but its peers stop answering:`);
    const last = () => Math.max(answered, ...pings.map((each) => each.last() ?? 0));
    while (performance.now() - last() < quietMs) {
      if (performance.now() - answered > 20_000)
        throw new AppError("failed", `${deletedNode} still gets replies`);
      await stage.system.sleep(50);
    }
    await checkConnected(stage, nodeNamed(nodes, lighthouse));
    const ms = Math.round(last() - answered);
    stage.say(
      `quiet        the last ping to ${deletedNode} passed ${ms} ms after the answer to the deletion`,
    );
    return ms;
  } finally {
    stop.abort();
    await Promise.allSettled([...following, ...pings.map((each) => each.stop())]);
  }
}

/** Does the daemon's work for an organization: holds a check-in and applies changes at once. */
function follow(
  { engine, system, log }: Stage,
  { root, name }: Registered,
  controls: Map<string, OverlayControl>,
  signal: AbortSignal,
): Promise<void> {
  const control = controls.get(name);
  if (control === undefined) throw new AppError("internal", `The demo has no engine for ${name}`);
  const organization = openOrganization(root, slug);
  const withClient = connectOrganization(organization, system, log);
  const versionOf = rememberVersions(system);
  const deps = {
    configRoot: root,
    withClient,
    control,
    engine: async () => engineInUse(await control.process(), engine, versionOf),
    command: "demo",
    log,
    system,
  };
  return followOrganization(organization, deps, { signal });
}

/** A node that was not deleted must stay connected. */
async function checkConnected(stage: Stage, peer: Registered): Promise<void> {
  const pings = startPings(stage.network, stayingNode, peer.address, stage.system, stage.ended);
  await pings.first(3000);
  await pings.stop();
}

function nodeNamed(nodes: readonly Registered[], name: string): Registered {
  const node = nodes.find((each) => each.name === name);
  if (node === undefined) throw new AppError("internal", `The demo has no node ${name}`);
  return node;
}
