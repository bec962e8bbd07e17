// An organization as it may be after a year, for pictures of the console: 300 machines of several kinds, most of them online,
// with the paths that they report, rules, people, and what needs a person. Machines are rows of the store, and speak to the
// API themselves.

import { join } from "node:path";
import type { Page } from "playwright-core";
import * as v from "valibot";
import { CheckinAnswer } from "../../src/protocol/checkin.ts";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import { password, seed, tokenOf } from "../bench/seed.ts";
import { runAgent } from "./agent.ts";
import { seedCounts, seedEvents } from "./console-history.ts";
import { makeKeys } from "./nodes.ts";

export const owner = "you@example.org";
export { password };
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

type Special = { lighthouse?: true; relay?: true; publicIp?: string; subnets?: string[] };
type Machine = { id: number; name: string; groups: string[]; special: Special };

const kinds: readonly [name: string, count: number, groups: string[]][] = [
  ["web", 64, ["web"]],
  ["app", 90, ["app"]],
  ["db", 12, ["db"]],
  ["ci", 70, ["ci"]],
  ["laptop", 60, ["staff"]],
];
const hubs: readonly [name: string, special: Special][] = [
  ["lh-1", { lighthouse: true, publicIp: "192.0.2.10" }],
  ["lh-2", { lighthouse: true, relay: true, publicIp: "198.51.100.10" }],
  ["relay-1", { relay: true, publicIp: "203.0.113.7" }],
  ["gw-berlin", { subnets: ["192.168.20.0/24"] }],
];

/** Machines by id, which counts from 1. */
export const machines: readonly Machine[] = [
  ...hubs.map(([name, special]) => ({ name, groups: ["infra"], special })),
  ...kinds.flatMap(([kind, count, groups]) =>
    Array.from({ length: count }, (_, at) => {
      const site = at % 3 === 0 ? "us" : "eu";
      const all = kind === "laptop" ? groups : [...groups, site];
      return { name: `${kind}-${at + 1}`, groups: all, special: {} };
    }),
  ),
].map((machine, at) => ({ id: at + 1, ...machine }));

export const idOf = (name: string): number => machines.find((machine) => machine.name === name)?.id ?? 0;
const address = (id: number) => `10.64.${id >> 8}.${id & 255}`;
/** On a calm one every node is there, nothing is broken or old, nobody waits, and there is a backup. */
export type Day = "usual" | "calm";
/** Away for longer or shorter. */
const isAway = ({ name, id }: Machine, day: Day) =>
  day === "usual" && (name === "relay-1" || (name.startsWith("laptop") ? id % 3 === 0 : id % 41 === 0));

/** Fills the data directory of a control plane that does not run: organization acme with its owner. */
export async function seedScene(data: string, day: Day = "usual"): Promise<void> {
  await seed({ dataDirectory: data }, machines.length);
  const { db } = await openData({ dataDirectory: data }, "server", realSystem());
  const now = Date.now();
  try {
    await db.write(async (tx) => {
      await tx.run("UPDATE organizations SET slug = 'acme', name = 'Acme'");
      await tx.run("DELETE FROM node_groups WHERE name LIKE 'group-%'");
      for (const name of new Set(machines.flatMap(({ groups }) => groups)))
        await tx.run("INSERT INTO node_groups (org_id, name, created_at) VALUES (1, $1, $2)", [name, now]);
      for (const machine of machines) {
        const { id, name, groups, special } = machine;
        // The relay for an hour: so Activity says (seedEvents).
        const silent = isAway(machine, day) ? (special.relay ? 0 : id % 12) * dayMs + hourMs : 0;
        await tx.run(
          `UPDATE nodes SET name = $2, overlay_version = $3, created_at = $4, registered_at = $4, groups = $5,
             is_lighthouse = $6, is_relay = $7, public_ip = $8, subnets = $9 WHERE id = $1`,
          [
            id,
            name,
            id % 97 === 0 && day === "usual" ? "1.9.6" : "1.12.0",
            now - 200 * dayMs,
            JSON.stringify(groups),
            special.lighthouse ? 1 : 0,
            special.relay ? 1 : 0,
            special.publicIp ?? null,
            JSON.stringify(special.subnets ?? []),
          ],
        );
        await tx.run("UPDATE sightings SET last_checkin_at = $2 WHERE node_id = $1", [id, now - silent]);
        const left =
          name === "db-3" && day === "usual" ? 3 : 31 + Math.round(58 * Math.sqrt(((id * 37) % 100) / 100));
        const end = now + left * dayMs;
        await tx.run("UPDATE certificates SET not_before = $2, not_after = $3 WHERE node_id = $1", [
          id,
          end - 90 * dayMs,
          end,
        ]);
      }
    });
    const online = machines.filter((machine) => !isAway(machine, day));
    const kinds = online.flatMap((machine) => pathsOf(machine, day)).map(kindOf);
    const of = (kind: string) => kinds.filter((each) => each === kind).length;
    const past = { pairs: kinds.length, relayed: of("relayed"), broken: of("broken") };
    await seedCounts(db, 1, { machines: machines.length, online: online.length, ...past }, now);
    await seedEvents(db, 1, { machines, relay: day === "calm" ? "" : "relay-1" }, now);
  } finally {
    await db.close();
  }
  const admin = async (args: readonly string[], input = "") => {
    const ran = await runAgent(["admin", ...args, "--data-dir", data], { input });
    if (ran.status !== 0) throw new Error(`agent admin ${args.join(" ")}: ${ran.stderr}`);
  };
  for (const [email, role] of [
    [owner, "owner"],
    ["ada@example.org", "admin"],
    ["noor@example.org", "member"],
  ]) {
    await admin(
      ["user", "create", email ?? "", "--password-file", "-", ...(email === owner ? ["--staff"] : [])],
      password,
    );
    await admin(["member", "create", "acme", email ?? "", "--role", role ?? ""]);
  }
  if (day === "calm") await admin(["backup", join(data, "backup.db")]);
}

/** What people and machines did: requests of the page, which is signed in as the owner. */
export async function liveScene(page: Page, url: string, day: Day = "usual"): Promise<void> {
  const rule = (from: object, to: object, protocol: string, ports: string, description = "") =>
    [
      "POST",
      "firewall_rules/",
      { direction: "inbound", protocol, ports, peer: from, target: to, description },
    ] as const;
  await requests(page, [
    ["DELETE", "firewall_rules/1/", undefined],
    rule({ any: true }, { any: true }, "icmp", "any", "everything answers pings"),
    rule({ group: "web" }, { group: "app" }, "tcp", "8080"),
    rule({ group: "app" }, { group: "db" }, "tcp", "5432"),
    rule({ group: "staff" }, { group: "web" }, "tcp", "443"),
    rule({ group: "ci" }, { any: true }, "tcp", "22", "deployments"),
    ["POST", "members/", { email: "sam@example.org", role: "member" }],
    ["POST", "service_tokens/", { name: "terraform", role: "admin", scopes: ["read", "nodes"] }],
    ["POST", "registration_tokens/", { uses: 20, groups: ["ci"], expires_in: "7d" }],
    ...(day === "calm" ? [] : ofUsualDay),
    ["PATCH", `nodes/${idOf("web-7")}/`, { groups: ["web", "eu", "canary"] }],
  ]);
  await reportPaths(url, day);
}

/** A webhook where nothing listens, a node that never came, and one that was lost. */
const ofUsualDay: readonly Wish[] = [
  ["POST", "webhooks/", { url: "http://127.0.0.1:9/hook", events: ["node.*"] }],
  ["POST", "nodes/", { name: "printer-2" }],
  ["DELETE", `nodes/${idOf("laptop-60")}/`, undefined],
];

type Wish = readonly [method: string, path: string, body: object | undefined];

async function requests(page: Page, wishes: readonly Wish[]): Promise<void> {
  const refused = await page.evaluate(
    async (all) => {
      const bad: string[] = [];
      for (const [method, path, body] of all) {
        const answer = await fetch(`/api/org/acme/${path}`, {
          method,
          headers: { "Content-Type": "application/json" },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        if (!answer.ok) bad.push(`${method} ${path} ${answer.status} ${await answer.text()}`);
      }
      return bad;
    },
    wishes.map((wish) => [...wish] as [string, string, object | undefined]),
  );
  if (refused.length > 0) throw new Error(refused.slice(0, 5).join("\n"));
}

const of = (group: string) => machines.filter(({ groups }) => groups.includes(group));
/** Peers by group, with the usual round trip in ms. */
const peersOf: Readonly<Record<string, readonly (readonly [peer: Machine, rttMs: number])[]>> = {
  web: of("app")
    .slice(0, 3)
    .map((peer) => [peer, 12]),
  app: of("db")
    .slice(0, 2)
    .map((peer) => [peer, 7]),
  staff: of("web")
    .slice(0, 1)
    .map((peer) => [peer, 41]),
  ci: [...of("app").slice(4, 5), ...of("db").slice(3, 4)].map((peer, at) => [peer, at === 0 ? 33 : 86]),
};
const toLighthouse = 9;

/** To lighthouses, to peers of the rules, some relayed or broken. */
function pathsOf({ id, groups }: Machine, day: Day) {
  const lighthouses = machines.slice(0, 2).map((hub) => [hub, toLighthouse] as const);
  const peers = [...lighthouses, ...(peersOf[groups[0] ?? ""] ?? [])].filter(([peer]) => peer.id !== id);
  return peers.map(([peer, usual], at) => {
    // Laptops are behind all kinds of networks.
    const isRelayed = at > 1 && (id + at) % (groups[0] === "staff" ? 5 : 47) === 0;
    const isBroken = day === "usual" && at === 2 && [idOf("web-5"), idOf("app-11")].includes(id);
    return {
      peer: address(peer.id),
      path: isBroken ? "none" : isRelayed ? "relayed" : "direct",
      ...(isRelayed && !isBroken ? { relays: ["lh-2"] } : {}),
      ...(isRelayed || isBroken ? {} : { remote: `203.0.113.${peer.id & 255}:4242` }),
      probe: isBroken ? "broken" : "answers",
      ...(isBroken
        ? {}
        : { rtt_ms: usual * (isRelayed ? 1.7 : 0.8 + ((id * 7 + at * 13) % 9) / 20), loss: 0 }),
    };
  });
}
const kindOf = ({ probe, path }: { probe: string; path: string }) => (probe === "broken" ? probe : path);

/** Every machine that is online checks in with its paths. */
export async function reportPaths(url: string, day: Day): Promise<void> {
  const online = machines.filter((each) => !isAway(each, day));
  for (const machine of online)
    await checkIn(url, machine.id, { paths: { whole: true, changed: pathsOf(machine, day) } });
  // A report may have changed what the nodes before it should have.
  for (const { id } of online) {
    const { config_version } = await checkIn(url, id, {});
    // web-5 has not applied the newest configuration yet.
    if (id !== idOf("web-5") || day === "calm") await checkIn(url, id, { config_version });
  }
}

async function checkIn(url: string, id: number, news: object): Promise<CheckinAnswer> {
  const answer = await fetch(`${url}/api/org/acme/nodes/${id}/checkin/`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${tokenOf(id)}` },
    body: JSON.stringify({ version: "0.1.0", uptime: 4000, ...news }),
  });
  if (!answer.ok) throw new Error(`check-in of machine ${id}: ${answer.status} ${await answer.text()}`);
  return v.parse(CheckinAnswer, await answer.json());
}

/** A machine whose registration waits for approval. */
export async function askToJoin(
  page: Page,
  url: string,
  name: string,
  groups: readonly string[],
): Promise<void> {
  const token = await page.evaluate(async (asked) => {
    await fetch("/api/org/acme/", {
      method: "PATCH",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ node_approval: "all" }),
    });
    const answer = await fetch("/api/org/acme/registration_tokens/", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ groups: asked, expires_in: "1h" }),
    });
    return ((await answer.json()) as { token: string }).token;
  }, groups);
  const body = { name, ...(await makeKeys(name)), registration_token: token };
  await fetch(`${url}/api/org/acme/nodes/register/`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}
