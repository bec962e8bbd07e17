// Which machines need a person now, and why. Pure.

import { advisoriesFor } from "../engine-features.ts";
import type { Machine } from "./machines.ts";

/** `more`: what is wrong with it. */
export type Need = { id: number; name: string; more: string };

/** A broken path, as GET paths/ shows it. */
export type BrokenPath = { node: number; node_name: string; peer_name: string | null; peer_address: string };

/** Peers that a sentence names; the rest is counted. */
const maxNamed = 3;

/** Machines that others need and that are away, and those that do not reach a peer. */
export function degraded(machines: readonly Machine[], broken: readonly BrokenPath[]): Need[] {
  const needed = machines.filter(
    ({ state, online, is_lighthouse, is_relay }) =>
      state === "active" && !online && (is_lighthouse || is_relay),
  );
  const away = needed.map(({ id, name, is_lighthouse }) => ({
    id,
    name,
    more: is_lighthouse
      ? "is away: machines find each other by this lighthouse"
      : "is away: it relays for others",
  }));
  const byNode = [...Map.groupBy(broken, ({ node }) => node)].map(([id, paths]) => {
    const names = paths.map(({ peer_name, peer_address }) => peer_name ?? peer_address);
    const rest = names.length - maxNamed;
    return {
      id,
      name: paths[0]?.node_name ?? "",
      more: `does not reach ${names.slice(0, maxNamed).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`,
    };
  });
  return [...away, ...byNode];
}

/** Engines with published vulnerabilities. */
export function outdatedEngines(machines: readonly Machine[]): Need[] {
  return machines.flatMap(({ id, name, state, overlay_version }) => {
    const [found] = state === "active" && overlay_version !== null ? advisoriesFor(overlay_version) : [];
    if (found === undefined) return [];
    return [{ id, name, more: `runs engine ${overlay_version}: ${found.id}, fixed in ${found.fixed_in}` }];
  });
}

/** Certificates are renewed long before: a shorter rest means that renewal fails. */
const soonMs = 7 * 86_400_000;

/** Machines whose certificate ends soon, the first one first. */
export function expiring(machines: readonly Machine[], now: number): Machine[] {
  return machines
    .filter(({ state, phone }) => state === "active" && phone == null)
    .filter(({ endsAt }) => endsAt !== null && endsAt - now < soonMs)
    .sort((a, b) => (a.endsAt ?? 0) - (b.endsAt ?? 0));
}

/** A backup that is older needs a person. */
const backupMs = 2 * 86_400_000;

/** `at`: of the last backup, ISO 8601 or null. */
export function isBackupDue(at: string | null, now: number): boolean {
  return at === null || now - Date.parse(at) > backupMs;
}

export type Point = { at: string; online: number; active: number };

/** Columns of a plot: seconds, online, active. Times without points are gaps. */
export function columnsOf(points: readonly Point[], everyS: number): [number[], ...(number | null)[][]] {
  const times: number[] = [];
  const online: (number | null)[] = [];
  const active: (number | null)[] = [];
  for (const point of points) {
    const at = Date.parse(point.at) / 1000;
    const last = times.at(-1);
    if (last !== undefined && at - last > 1.5 * everyS) {
      times.push(last + everyS);
      online.push(null);
      active.push(null);
    }
    times.push(at);
    online.push(point.online);
    active.push(point.active);
  }
  return [times, online, active];
}
