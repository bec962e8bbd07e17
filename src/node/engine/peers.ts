// How many peers an engine has a tunnel with. It tells that only where the administrator of the machine has turned its
// metrics on (`stats` in overrides.yml); to open a port for it unasked would tell every user of the machine.

import { join } from "node:path";
import * as v from "valibot";
import { readTextIfThere } from "../../files.ts";
import type { System } from "../../system.ts";

const Config = v.object({
  stats: v.object({
    type: v.literal("prometheus"),
    listen: v.pipe(v.string(), v.regex(/^[\w.:[\]-]*:\d+$/)),
    path: v.pipe(v.string(), v.startsWith("/")),
  }),
});

/** An engine that does not answer holds nobody up. */
const patienceMs = 300;

/** Where the engine of this directory shows its metrics, undefined where it does not. */
export function metricsUrl(directory: string): string | undefined {
  const parsed = v.safeParse(Config, parseYaml(readTextIfThere(join(directory, "config.yml")) ?? ""));
  if (!parsed.success) return undefined;
  const { listen, path } = parsed.output.stats;
  return `http://${listen.replace(/^(0\.0\.0\.0|\[::\]|):/, "127.0.0.1:")}${path}`;
}

function parseYaml(text: string): unknown {
  try {
    return Bun.YAML.parse(text);
  } catch {
    // Whoever starts the engine says what is wrong with its configuration.
    return undefined;
  }
}

/** Undefined if it does not say. */
export async function countPeers(url: string, { fetch }: Pick<System, "fetch">): Promise<number | undefined> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(patienceMs) });
    const count = /^\w*hostmap_main_hosts(?:\{[^}\n]*\})? (\d+)$/m.exec(await answer.text())?.[1];
    return count === undefined ? undefined : Number(count);
  } catch {
    // It starts or ends at this moment, or takes the setting up at its next start.
    return undefined;
  }
}
