// Ten thousand jobs with ephemeral nodes in eight virtual hours: nothing is blocked, no other node gets a new configuration,
// no address is used twice within its hold, and the audit log stays whole. Ordinary tests run 375 in three hours, on
// PostgreSQL 75.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { faultsIn, verifyChains } from "../../../src/server/audit/verify.ts";
import { endSilentNodes } from "../../../src/server/nodes/contact/silence.ts";
import { runDueUpkeep } from "../../../src/server/nodes/lifecycle/upkeep.ts";
import {
  checkinOf,
  confirm,
  makeKeys,
  nodeOf,
  registerNode,
  registrationToken,
  sendRegistration,
  type Keys,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { makeTestServer, onPostgres } from "../../support/server.ts";
import { inFull } from "../../support/soak.ts";

const jobs = inFull ? 10_000 : onPostgres ? 75 : 375;
/** Longer than an address is held, so that addresses are used again. */
const hours = inFull ? 8 : 3;
const minute = 60_000;
/** After the last job began: longer than a job, and than the silence that ends a node. */
const quiet = 35 * minute;
const stepMs = 30_000;
/** Its certificates, and the longest open flow. */
const holdMs = 60 * minute + 12 * minute;

type Job = { node: RegisteredNode; until: number; leaves: boolean };

test(
  `${jobs} jobs in ${hours} hours leave no trace on other nodes`,
  async () => {
    await using server = await makeTestServer();
    const org = await server.organization("acme", "10.64.0.0/14");
    const peers = [await registerNode(server, org, "web"), await registerNode(server, org, "db")];
    let version = 0;
    for (const each of peers) version = await confirm(each);
    const registration_token = await registrationToken(server, org, {
      ephemeral: true,
      uses: jobs,
      expires_in: "30d",
      groups: ["ci"],
    });
    const random = seeded();
    const times: number[] = [];
    const timed = async (node: RegisteredNode, fields: object) => {
      const begun = performance.now();
      const answer = checkinOf(await node.checkin({ overlay_state: "running", ...fields }));
      times.push(performance.now() - begun);
      return answer;
    };
    const register = async (name: string, keys: Keys): Promise<RegisteredNode> => {
      const answer = await sendRegistration(server, org.slug, { name, ...keys, registration_token });
      return nodeOf(server, org, keys, v.parse(RegisterAnswer, answer.json));
    };
    /** The last use of each address: by which node, and when it ended. */
    const lastUse = new Map<string, { id: number; ended: number }>();
    const tooEarly: string[] = [];
    const take = ({ id, ip }: RegisteredNode) => {
      const former = lastUse.get(ip);
      if (former !== undefined && former.id !== id && former.ended + holdMs > server.clock.ms)
        tooEarly.push(ip);
    };
    const changed: number[] = [];
    const begin = server.clock.ms;
    const length = hours * 60 * minute;
    let live: Job[] = [];
    const over: RegisteredNode[] = [];
    let started = 0;
    let returned = 0;
    while (server.clock.ms < begin + length + quiet) {
      // A longer pause of the watch would not count as silence.
      for (const end = server.clock.ms + stepMs; server.clock.ms < end; server.clock.ms += 10_000)
        await endSilentNodes(server.app.services);
      const now = server.clock.ms;
      for (; started < Math.min(jobs, Math.floor((jobs * (now - begin)) / length)); started++) {
        const node = await register(`job-${started}`, await makeKeys());
        take(node);
        live.push({ node, until: now + random() * 20 * minute, leaves: random() < 0.6 });
      }
      for (const job of live) {
        const isOver = job.until <= now;
        if (!isOver) await timed(job.node, {});
        else if (job.leaves) await job.node.checkin({ leaving: true });
        if (isOver) {
          lastUse.set(job.node.ip, { id: job.node.id, ended: now });
          over.push(job.node);
        }
      }
      live = live.filter((job) => job.until > now);
      // Some jobs restart on the same machine, with its keys.
      const again =
        random() < Math.max(jobs / 20_000, 0.02) ? over.at(-Math.ceil(random() * over.length)) : undefined;
      if (again !== undefined) {
        const node = await register(again.name, again.keys);
        expect([node.id, node.ip]).toEqual([again.id, again.ip]);
        over.splice(over.indexOf(again), 1);
        live.push({ node, until: now + 5 * minute, leaves: true });
        returned++;
      }
      for (const peer of peers) {
        const answer = await timed(peer, { config_version: version });
        if (answer.config_changed) changed.push(now);
      }
      await server.app.services.reports.stop();
      await endSilentNodes(server.app.services);
      await runDueUpkeep(server.app.services);
    }
    server.clock.ms += 11 * minute;
    await endSilentNodes(server.app.services);

    expect([started, tooEarly, changed]).toEqual([jobs, [], []]);
    expect(returned).toBeGreaterThan(jobs / 100);
    const blocked = await server.db.get("SELECT count(*) AS n FROM certificates WHERE state = 'blocked'");
    expect(Number(blocked?.["n"])).toBe(0);
    const ended = await server.db.get("SELECT count(*) AS n FROM events WHERE type = 'node.ended'");
    expect(Number(ended?.["n"])).toBeGreaterThanOrEqual(jobs);
    const { db, secretKey } = server.app.services;
    expect(faultsIn(await verifyChains(db, secretKey))).toEqual([]);
    times.sort((a, b) => a - b);
    const p99 = times[Math.floor(times.length * 0.99)] ?? 0;
    if (!inFull) return;
    process.stderr.write(
      `${times.length} check-ins, p50 ${times[times.length >> 1]?.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms\n`,
    );
    expect(p99).toBeLessThan(20);
  },
  inFull ? 3_600_000 : 300_000,
);

/** Lehmer's generator, below 1. */
function seeded(): () => number {
  let state = 20_261_122;
  return () => (state = (state * 48_271) % 0x7f_ff_ff_ff) / 0x7f_ff_ff_ff;
}
