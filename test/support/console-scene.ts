// An organization as it may be after a year, for pictures of the console: 300 machines of several kinds, most of them online,
// with the paths that they report, rules, people, and what needs a person. Machines are rows of the store, and speak to the
// API themselves.

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

type Machine = { id: number; name: string; groups: string[]; patch: Record<string, unknown> };

const kinds: readonly [name: string, count: number, groups: string[]][] = [
  ["web", 64, ["web"]],
  ["app", 90, ["app"]],
  ["db", 12, ["db"]],
  ["ci", 70, ["ci"]],
  ["laptop", 60, ["staff"]],
];
const special: readonly [name: string, patch: Record<string, unknown>][] = [
  ["lh-1", { is_lighthouse: true, public_ip: "192.0.2.10", groups: ["infra"] }],
  ["lh-2", { is_lighthouse: true, public_ip: "198.51.100.10", groups: ["infra"] }],
  ["relay-1", { is_relay: true, public_ip: "203.0.113.7", groups: ["infra"] }],
  ["gw-berlin", { subnets: ["192.168.20.0/24"], groups: ["infra"] }],
];

/** Machines by id, which counts from 1. */
export const machines: readonly Machine[] = [
  ...special.map(([name, patch]) => ({ name, groups: ["infra"], patch })),
  ...kinds.flatMap(([kind, count, groups]) =>
    Array.from({ length: count }, (_, at) => {
      const site = at % 3 === 0 ? "us" : "eu";
      const all = kind === "laptop" ? groups : [...groups, site];
      return { name: `${kind}-${at + 1}`, groups: all, patch: { groups: all } };
    }),
  ),
].map((machine, at) => ({ id: at + 1, ...machine }));

export const idOf = (name: string): number => machines.find((machine) => machine.name === name)?.id ?? 0;
const address = (id: number) => `10.64.${id >> 8}.${id & 255}`;
/** Away for longer or shorter. */
const isAway = ({ name, id }: Machine) =>
  name === "relay-1" || (name.startsWith("laptop") ? id % 3 === 0 : id % 41 === 0);

/** Fills the data directory of a control plane that does not run: organization acme with its owner. */
export async function seedScene(data: string): Promise<void> {
  await seed({ dataDirectory: data }, machines.length);
  const { db } = await openData({ dataDirectory: data }, "server", realSystem());
  const now = Date.now();
  try {
    await db.write(async (tx) => {
      await tx.run("UPDATE organizations SET slug = 'acme', name = 'Acme'");
      await tx.run("DELETE FROM node_groups WHERE name LIKE 'group-%'");
      for (const machine of machines) {
        const { id, name } = machine;
        const silent = isAway(machine) ? (id % 12) * dayMs + hourMs : 0;
        await tx.run(
          "UPDATE nodes SET name = $2, overlay_version = $3, created_at = $4, registered_at = $4 WHERE id = $1",
          [id, name, id % 97 === 0 ? "1.9.6" : "1.12.0", now - 200 * dayMs],
        );
        await tx.run("UPDATE sightings SET last_checkin_at = $2 WHERE node_id = $1", [id, now - silent]);
        const left = name === "db-3" ? 3 : 20 + (id % 70);
        const end = now + left * dayMs;
        await tx.run("UPDATE certificates SET not_before = $2, not_after = $3 WHERE node_id = $1", [
          id,
          end - 90 * dayMs,
          end,
        ]);
      }
    });
    const online = machines.filter((machine) => !isAway(machine));
    const kinds = online.flatMap((machine) => pathsOf(machine)).map(kindOf);
    const of = (kind: string) => kinds.filter((each) => each === kind).length;
    const past = { pairs: kinds.length, relayed: of("relayed"), broken: of("broken") };
    await seedCounts(db, 1, { machines: machines.length, online: online.length, ...past }, now);
    await seedEvents(db, 1, { machines, relay: "relay-1" }, now);
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
}

/** What people and machines did: requests of the page, which is signed in as the owner. */
export async function liveScene(page: Page, url: string): Promise<void> {
  const wishes = machines.map(({ id, patch }) => ["PATCH", `nodes/${id}/`, patch] as const);
  const rule = (from: object, to: object, protocol: string, ports: string, description = "") =>
    [
      "POST",
      "firewall_rules/",
      { direction: "inbound", protocol, ports, peer: from, target: to, description },
    ] as const;
  await requests(page, wishes);
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
    ["POST", "webhooks/", { url: "http://127.0.0.1:9/hook", events: ["node.*"] }],
    ["POST", "nodes/", { name: "printer-2" }],
    ["DELETE", `nodes/${idOf("laptop-60")}/`, undefined],
    ["PATCH", `nodes/${idOf("web-7")}/`, { groups: ["web", "eu", "canary"] }],
  ]);
  await reportPaths(url);
}

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
const peersOf: Readonly<Record<string, Machine[]>> = {
  web: of("app").slice(0, 3),
  app: of("db").slice(0, 2),
  staff: of("web").slice(0, 1),
};

/** To lighthouses, to peers of the rules, some relayed or broken. */
function pathsOf({ id, groups }: Machine) {
  const peers = [...machines.slice(0, 2), ...(peersOf[groups[0] ?? ""] ?? [])].filter(
    (peer) => peer.id !== id,
  );
  return peers.map((peer, at) => {
    const isRelayed = at > 1 && (id + at) % 9 === 0;
    const isBroken = (id === idOf("web-5") && at === 2) || (id === idOf("app-11") && at === 2);
    return {
      peer: address(peer.id),
      path: isBroken ? "none" : isRelayed ? "relayed" : "direct",
      ...(isRelayed && !isBroken ? { relays: ["relay-1"] } : {}),
      ...(isRelayed || isBroken ? {} : { remote: `203.0.113.${peer.id & 255}:4242` }),
      probe: isBroken ? "broken" : "answers",
      ...(isBroken ? {} : { rtt_ms: 4 + ((id * 7 + at * 13) % 60) / 2, loss: 0 }),
    };
  });
}
const kindOf = ({ probe, path }: { probe: string; path: string }) => (probe === "broken" ? probe : path);

/** Every machine that is online checks in with its paths. */
async function reportPaths(url: string): Promise<void> {
  for (const machine of machines.filter((each) => !isAway(each))) {
    const { id } = machine;
    const changed = pathsOf(machine);
    const { config_version } = await checkIn(url, id, { paths: { whole: true, changed } });
    // web-5 has not applied the newest configuration yet.
    if (id !== idOf("web-5")) await checkIn(url, id, { config_version });
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
