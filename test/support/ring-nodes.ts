// Nodes with real engines in namespaces, for what goes through an organization in rings, beside a control plane that may be killed.

import { copyFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Rollout } from "../../src/api/rollouts.ts";
import { startControlPlane } from "./agent.ts";
import { bridgePort } from "./bridge.ts";
import { placesBelow, registerDesktop, startDaemon, untilStatus, type Places } from "./daemon.ts";
import type { Channel } from "./engine-channel.ts";
import { makeLan, type Host } from "./namespaces.ts";
import { makeOrganization, signIn, type Organization } from "./overlay.ts";
import { temporaryDirectory } from "./temporary.ts";

/** The first one is the lighthouse, 10.77.0.1. */
export const fourNodes = ["lighthouse", "desk", "porch", "attic"] as const;

/** `overlay`: the path of its engine. */
export type RingNode = { name: string; host: Host; places: Places; overlay: string };

export type RingNodes = AsyncDisposable & {
  nodes: RingNode[];
  api: Organization["api"];
  killPlane(): Promise<void>;
  startPlane(): Promise<void>;
  /** Waits until nodes have said with a check-in what they can. */
  begin(wanted: { engine: string } | { settings: object }, watchS: number): Promise<Rollout>;
  until(id: number, isIt: (shown: Rollout) => boolean, ms: number): Promise<Rollout>;
};

type Options = {
  names: readonly string[];
  nebula: string;
  /** Of the organization, before its nodes register. */
  overrides?: object;
  /** Root permits updates of the engine from here. */
  channel?: Channel;
  /** Runs on each machine before its engine. */
  prepare?(host: Host): void;
};

export async function startRingNodes(options: Options): Promise<RingNodes> {
  const { names, nebula, overrides, channel, prepare } = options;
  await using starting = new AsyncDisposableStack();
  const directory = starting.use(temporaryDirectory());
  const lan = starting.use(makeLan(names));
  let plane = await startControlPlane(join(directory.path, "server"));
  starting.defer(async () => void (await plane.stop()));
  let acme = await makeOrganization(plane);
  if (overrides !== undefined) {
    const { status } = await acme.api("PATCH", "/api/org/acme/", { config_overrides: overrides });
    if (status !== 200) throw new Error(`The overrides are refused: ${status}`);
  }
  const token = await acme.makeToken(["--uses", "10", "--lighthouse"]);
  const permission = channel === undefined ? [] : ["--allow-updates", `engine=${channel.url}`];
  const reached = [plane.url, ...(channel === undefined ? [] : [channel.url.replace("{version}", "")])];
  const nodes: RingNode[] = [];
  for (const name of names) {
    const host = lan.host(name);
    const own = join(directory.path, name);
    const overlay = `${own}-engine`;
    copyFileSync(nebula, overlay);
    const places = placesBelow(own, overlay);
    const hub = name === names[0] ? ["--is-lighthouse", "--public-ip", host.address] : [];
    await registerDesktop(acme, places, token, name, [...hub, ...permission]);
    for (const url of reached) starting.use(await bridgePort(host, own, Number(new URL(url).port)));
    prepare?.(host);
    const daemon = await startDaemon(host, places);
    starting.defer(() => daemon.signal("SIGTERM"));
    nodes.push({ name, host, places, overlay });
  }
  for (const { places } of nodes) await untilStatus(places, "acme", ({ state }) => state === "running");
  const stack = starting.move();
  return {
    nodes,
    api: (...request) => acme.api(...request),
    async killPlane() {
      process.kill(plane.pid, "SIGKILL");
      await plane.stop();
    },
    async startPlane() {
      plane = await startControlPlane(plane.dataDirectory, [], Number(new URL(plane.url).port));
      acme = await signIn(plane, "acme");
    },
    async begin(wanted, watchS) {
      for (let tries = 0; tries < 60; tries++) {
        const answer = await acme.api("POST", "/api/org/acme/rollouts/", { ...wanted, watch_s: watchS });
        if (answer.status === 201) return v.parse(Rollout, await answer.json());
        await Bun.sleep(1000);
      }
      throw new Error("No rollout could be created");
    },
    async until(id, isIt, ms) {
      for (const giveUpAt = performance.now() + ms; ; await Bun.sleep(300)) {
        const answer = await acme.api("GET", `/api/org/acme/rollouts/${id}/`);
        const shown = v.parse(Rollout, await answer.json());
        if (isIt(shown)) return shown;
        if (performance.now() > giveUpAt) throw new Error(`It does not come about: ${JSON.stringify(shown)}`);
      }
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

export const isEnded = ({ ended_at }: Rollout): boolean => ended_at !== null;
