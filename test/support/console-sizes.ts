// Other organizations for pictures of the console: none of their machines runs, all is rows. Take the pictures within two minutes:
// machines that do not check in are away then.

import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/base/system.ts";
import type { Database } from "../../src/server/store/database.ts";
import { password, seed } from "../bench/seed.ts";
import { runAgent } from "./agent.ts";
import { seedCounts, seedEvents } from "./console-history.ts";
import { owner } from "./console-scene.ts";

const hourMs = 3_600_000;
const ago = 5000;

type Path = { to: number; kind: "direct" | "relayed" | "broken"; rttMs: number };
type Machine = { name: string; group: string; patch?: string; isAway?: boolean; paths: readonly Path[] };
type Made = { title: string; machines: readonly Machine[] };

/** By place in the list of machines, which counts from 1. */
const direct = (to: number, rttMs: number): Path => ({ to, kind: "direct", rttMs });
const few: Made = {
  title: "Home",
  machines: [
    {
      name: "lh-1",
      group: "infra",
      patch: "is_lighthouse = 1, public_ip = '192.0.2.10'",
      paths: [direct(2, 11)],
    },
    { name: "web-1", group: "web", paths: [direct(3, 29), direct(4, 38)] },
    { name: "nas", group: "home", paths: [direct(1, 24), { to: 4, kind: "relayed", rttMs: 74 }] },
    { name: "laptop-noor", group: "staff", paths: [direct(1, 31)] },
    { name: "pi-garden", group: "home", isAway: true, paths: [] },
  ],
};

const [sites, perService] = [["eu", "us", "ap"], 320];
/** What each service talks to. */
const talksTo: Readonly<Record<string, readonly string[]>> = {
  edge: ["web"],
  web: ["api", "auth"],
  api: ["pay", "cache", "db"],
  pay: ["db", "queue"],
  auth: ["db"],
  queue: ["cache", "lake"],
  cache: ["db"],
  db: ["lake"],
  lake: ["ml"],
  ml: ["lake"],
};

/** 10,240 machines in 33 groups: ten services in three sites, builds, laptops, and what holds the network together. */
function makeMany(): Made {
  const services = Object.keys(talksTo);
  const groups = services.flatMap((service) => sites.map((site) => `${service}-${site}`));
  const named = [
    ...Array.from({ length: 6 }, (_, at) => ({ name: `lh-${at + 1}`, group: "infra" })),
    ...groups.flatMap((group) =>
      Array.from({ length: perService }, (_, at) => ({ name: `${group}-${at + 1}`, group })),
    ),
    ...Array.from({ length: 122 }, (_, at) => ({ name: `ci-${at + 1}`, group: "ci" })),
    ...Array.from({ length: 512 }, (_, at) => ({ name: `laptop-${at + 1}`, group: "staff" })),
  ];
  const firstOf = new Map([...named.entries()].toReversed().map(([at, { group }]) => [group, at + 1]));
  const machines = named.map(({ name, group }, at): Machine => {
    const [service = "", site = "eu"] = group.split("-");
    const isInfra = group === "infra";
    const targets =
      group === "ci"
        ? groups
        : group === "staff"
          ? sites.map((each) => `edge-${each}`)
          : (talksTo[service] ?? []).flatMap((to) =>
              (at % 4 === 0 ? sites : [site]).map((each) => `${to}-${each}`),
            );
    const peers =
      targets.length === 0
        ? []
        : [0, 1, 2, 3].map((step) => {
            const target = targets[(at + step * 7) % targets.length] ?? "";
            const isFar = !target.endsWith(site);
            const kind = group === "staff" && at % 11 === step ? "relayed" : "direct";
            return {
              to: (firstOf.get(target) ?? 1) + ((at * 3 + step * 29) % perService),
              kind,
              rttMs: (isFar ? 38 : 4) + ((at * 13 + step) % 40) / 2,
            } as const;
          });
    const hubs = [1 + (at % 6), 1 + ((at + 1) % 6)].map((to) => direct(to, 6 + (at % 9)));
    const isBroken = ["web-eu-7", "api-ap-12", "auth-us-3"].includes(name);
    return {
      name,
      group,
      ...(isInfra ? { patch: `is_lighthouse = 1, public_ip = '192.0.2.${at + 10}'` } : {}),
      isAway: group === "staff" ? at % 4 === 0 : !isInfra && at % 157 === 0 && !isBroken,
      paths: [...hubs, ...peers].map((path, place) =>
        isBroken && place === 2 ? { ...path, kind: "broken" } : path,
      ),
    };
  });
  return { title: "Initech", machines };
}

export const sizes = ["empty", "few", "many"] as const;
export type Size = (typeof sizes)[number];

/** Fills the data directory of a control plane that does not run: organization acme with its owner. */
export async function seedSize(data: string, size: Size): Promise<void> {
  const made = size === "few" ? few : size === "many" ? makeMany() : undefined;
  const admin = async (args: readonly string[], input = "") => {
    const ran = await runAgent(["admin", ...args, "--data-dir", data], { input });
    if (ran.status !== 0) throw new Error(`agent admin ${args.join(" ")}: ${ran.stderr}`);
  };
  if (made !== undefined) await seed({ dataDirectory: data }, made.machines.length);
  await admin(["user", "create", owner, "--staff", "--password-file", "-"], password);
  if (made === undefined) {
    await admin(["org", "create", "acme", "--name", "Acme", "--network", "10.77.0.0/16", "--owner", owner]);
    return;
  }
  const { db } = await openData({ dataDirectory: data }, "server", realSystem());
  try {
    await db.write((tx) => tx.run("UPDATE organizations SET slug = 'acme', name = $1", [made.title]));
    await fill(db, made);
  } finally {
    await db.close();
  }
  await admin(["member", "create", "acme", owner, "--role", "owner"]);
}

async function fill(db: Database, { machines }: Made): Promise<void> {
  const named = machines.map(({ name }, at) => ({ id: at + 1, name }));
  const now = Date.now();
  const all = machines.filter(({ isAway }) => isAway !== true).flatMap(({ paths }) => paths);
  const of = (kind: Path["kind"]) => all.filter((path) => path.kind === kind).length;
  const online = machines.filter(({ isAway }) => isAway !== true).length;
  const past = { pairs: all.length, relayed: of("relayed"), broken: of("broken") };
  await seedCounts(db, 1, { machines: machines.length, online, ...past }, now);
  await seedEvents(db, 1, { machines: named, relay: named.at(-1)?.name ?? "" }, now);
  await db.write(async (tx) => {
    await tx.run("DELETE FROM node_groups WHERE name LIKE 'group-%'");
    for (const group of new Set(machines.map((machine) => machine.group)))
      await tx.run("INSERT INTO node_groups (org_id, name, created_at) VALUES (1, $1, $2)", [group, now]);
    const ips = await tx.all("SELECT ip FROM nodes ORDER BY id");
    for (const [at, { name, group, patch, isAway = false, paths }] of machines.entries()) {
      const id = at + 1;
      const more = patch === undefined ? "" : `, ${patch}`;
      const groups = JSON.stringify([group]);
      await tx.run(
        `UPDATE nodes SET name = $2, groups = $3, overlay_version = '1.12.0'${more} WHERE id = $1`,
        [id, name, groups],
      );
      const seen = Date.now() - (isAway ? 3 * hourMs : ago);
      await tx.run(
        "UPDATE sightings SET last_checkin_at = $2, applied_config_version = (SELECT config_version FROM organizations) WHERE node_id = $1",
        [id, seen],
      );
      for (const { to, kind, rttMs } of new Map(paths.map((path) => [path.to, path])).values()) {
        if (to === id) continue;
        await tx.run(
          `INSERT INTO paths (node_id, peer, org_id, path, relays, probe, rtt_us, loss_permille, at)
           VALUES ($1, $2, 1, $3, $4, $5, $6, 0, $7)`,
          [
            id,
            String(ips[to - 1]?.["ip"]),
            kind === "broken" ? "none" : kind,
            kind === "relayed" ? '["lh-1"]' : "[]",
            kind === "broken" ? "broken" : "answers",
            kind === "broken" ? null : Math.round(rttMs * 1000),
            seen,
          ],
        );
      }
    }
  });
}
