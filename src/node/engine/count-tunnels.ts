// Counts the tunnels of an engine. The count is available only if this machine's administrator has enabled metrics
// (`stats` in overrides.yml): a port that opens by default would show it to all users of the machine.

import * as v from "valibot";
import { textOrEmpty } from "../../base/files.ts";
import type { System } from "../../base/system.ts";

const Config = v.object({
  stats: v.object({
    type: v.literal("prometheus"),
    listen: v.pipe(v.string(), v.regex(/^[\w.:[\]-]*:\d+$/)),
    path: v.pipe(v.string(), v.startsWith("/")),
  }),
});

/** Short, so that an engine that does not answer delays no command. */
const patienceMs = 300;

/** The URL of the metrics of this directory's engine; undefined if metrics are off. */
export function metricsUrl(directory: string): string | undefined {
  const parsed = v.safeParse(Config, parseYaml(textOrEmpty(directory, "config.yml")));
  if (!parsed.success) return undefined;
  const { listen, path } = parsed.output.stats;
  return `http://${listen.replace(/^(0\.0\.0\.0|\[::\]|):/, "127.0.0.1:")}${path}`;
}

function parseYaml(text: string): unknown {
  try {
    return Bun.YAML.parse(text);
  } catch {
    // The code that starts the engine reports errors of its configuration.
    return undefined;
  }
}

/** The number of tunnels, by the engine's metrics. Undefined if the engine does not answer. */
export async function countTunnels(
  url: string,
  { fetch }: Pick<System, "fetch">,
): Promise<number | undefined> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(patienceMs) });
    const count = /^\w*hostmap_main_hosts(?:\{[^}\n]*\})? (\d+)$/m.exec(await answer.text())?.[1];
    return count === undefined ? undefined : Number(count);
  } catch {
    // The engine is starting or ending, or applies the setting at its next start.
    return undefined;
  }
}
