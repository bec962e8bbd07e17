// A fleet of nodes as the control plane sees it during an update in rings: each checks in, takes orders, and says how far it
// is, after random delays. What is wrong with the update is a word.

import * as v from "valibot";
import type { Organization } from "../../src/api/organizations.ts";
import { Rollout } from "../../src/api/rollouts.ts";
import { CheckinAnswer } from "../../src/protocol/checkin.ts";
import type { UpdateOrder } from "../../src/protocol/updates/order.ts";
import { advanceRollouts } from "../../src/server/rollout/rollout-turn.ts";
import { registerNode, type RegisteredNode } from "./nodes.ts";
import { makeRandom } from "./random.ts";
import type { TestServer } from "./server.ts";

/** silent: the node is not heard any more. mute: it never says that it works. lost: it lost a peer that is there. */
export type Fault = "fails" | "silent" | "mute" | "lost";

export type Bot = {
  node: RegisteredNode;
  engine: string;
  order: UpdateOrder | undefined;
  /** When it says its next word, ms. */
  at: number;
  said: "nothing" | "taken" | "applied" | "done";
  /** Root of the machine has ended the permission. */
  isClosed?: boolean;
};

export const [older, newer] = ["1.10.1", "1.11.1"];
const tickMs = 5000;

export async function makeFleet(
  server: TestServer,
  org: Organization,
  count: number,
  fields: (at: number) => Record<string, unknown> = () => ({}),
): Promise<Bot[]> {
  const bots: Bot[] = [];
  for (let at = 0; at < count; at++) {
    const node = await registerNode(server, org, `node${at}`, { overlay_version: older, ...fields(at) });
    bots.push({ node, engine: older, order: undefined, at: 0, said: "nothing" });
  }
  await Promise.all(bots.map((bot) => checkIn(server, bot)));
  await server.app.services.reports.stop();
  return bots;
}

const updates = (order: number) => ({ may: ["agent", "engine", "settings"], order, zone: 0 });

/** `more`: what it says besides. */
export async function checkIn(server: TestServer, bot: Bot, more: object = {}): Promise<void> {
  const answer = await bot.node.checkin({
    ...more,
    overlay_version: bot.engine,
    overlay_state: "running",
    ...(bot.isClosed === true ? {} : { updates: updates(bot.order?.order ?? 0) }),
  });
  const { update } = v.parse(CheckinAnswer, answer.json);
  if (update === undefined) return;
  bot.order = update;
  bot.said = "nothing";
  bot.at = server.clock.ms;
}

const report = (server: TestServer, org: Organization, bot: Bot, state: string, more: object = {}) =>
  server.send("POST", `/api/org/${org.slug}/nodes/${bot.node.id}/update_report/`, {
    token: bot.node.token,
    body: { order: bot.order?.order, state, ...more },
  });

export type Scene = {
  server: TestServer;
  org: Organization;
  bots: readonly Bot[];
  fault?: Fault;
  seed: number;
  watchS: number;
};

/** One node's words of this tick. */
async function speak(
  { server, org, bots, fault, watchS }: Scene,
  bot: Bot,
  random: () => number,
): Promise<void> {
  const { order } = bot;
  if (order === undefined || bot.said === "done" || bot.at > server.clock.ms) return;
  if (order.back === true) {
    bot.engine = older;
    bot.said = "done";
    await report(server, org, bot, "returned");
    return;
  }
  if (bot.said === "nothing") {
    bot.said = "taken";
    await report(server, org, bot, "taken");
    bot.at = server.clock.ms + random() * 20_000;
  } else if (bot.said === "taken") {
    bot.engine = order.engine ?? bot.engine;
    bot.said = "applied";
    await report(server, org, bot, "applied", { answered: 3 });
    bot.at = server.clock.ms + watchS * 1000;
  } else {
    bot.said = "done";
    if (fault === "mute") return;
    if (fault === "fails") {
      bot.engine = older;
      await report(server, org, bot, "failed", {
        reason: "No packets",
        probe: "large packets",
        log: "level=error",
      });
      return;
    }
    const lost = fault === "lost" ? [bots.find((each) => each !== bot)?.node.ip] : [];
    await report(server, org, bot, "passed", { answered: 3, lost });
  }
}

const isSilent = ({ fault }: Scene, bot: Bot): boolean =>
  fault === "silent" && bot.engine === newer && bot.order?.back !== true;

/** Lets time pass until the rollout has ended. `kill`: called around each write of the control plane; it may throw. */
export async function runRollout(
  scene: Scene,
  {
    onTick,
    services = scene.server.app.services,
  }: {
    onTick?: (rollout: Rollout) => Promise<void> | void;
    services?: Parameters<typeof advanceRollouts>[0];
  } = {},
): Promise<Rollout> {
  const { server, org, bots, seed } = scene;
  const random = makeRandom(seed);
  let shown = await newest(server, org);
  for (let tick = 0; tick < 2000 && shown.ended_at === null; tick++) {
    server.clock.ms += tickMs;
    for (const bot of bots) {
      // A poll is answered every minute, or when there is an order.
      const isPolled = tick % 10 === bot.node.id % 10 || (await hasOrder(server, bot));
      if (isPolled && !isSilent(scene, bot)) await checkIn(server, bot);
      // The node goes back by itself where it cannot be told.
      if (isSilent(scene, bot) && tick % 40 === 39) bot.engine = older;
      if (!isSilent(scene, bot)) await speak(scene, bot, random);
    }
    await server.app.services.reports.stop();
    await advanceRollouts(services).catch(() => undefined);
    shown = await newest(server, org);
    await onTick?.(shown);
  }
  // Orders that were given last arrive.
  for (const bot of bots) {
    await checkIn(server, bot);
    await speak(scene, bot, random);
  }
  return shown;
}

async function hasOrder(server: TestServer, bot: Bot): Promise<boolean> {
  const row = await server.db.get("SELECT update_order FROM nodes WHERE id = $1", [bot.node.id]);
  return row?.["update_order"] !== null;
}

async function newest(server: TestServer, org: Organization): Promise<Rollout> {
  const row = await server.db.get("SELECT max(id) AS id FROM rollouts WHERE org_id = $1", [org.id]);
  const { findRollout } = await import("../../src/server/rollout/show-rollouts.ts");
  return findRollout(server.app.services, org, Number(row?.["id"]));
}
