// Nodes of an organization for tests with packets: registered with the pasted command, run by hand-started engines.

import { expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { agent, cleanEnvironment } from "./agent.ts";
import type { Host } from "./namespaces.ts";
import { Registered, type Organization, type RunningEngine } from "./overlay.ts";

const NewToken = v.looseObject({ command: v.string() });
export type Node = Registered & { host: Host };

export async function post(acme: Organization, path: string, body: unknown): Promise<unknown> {
  const answer = await acme.api("POST", `/api/org/acme/${path}`, body);
  expect(`${path} ${answer.status < 300 ? "done" : await answer.clone().text()}`).toBe(`${path} done`);
  return answer.json();
}

/** Registers by the command that comes with the token, pasted into a shell, plus flags for the paths. */
export async function paste(
  acme: Organization,
  { root, host, engine }: { root: string; host: Host; engine: string },
  groups: string[],
  flags: string[] = [],
) {
  const body = { groups, is_lighthouse: flags.length > 0 };
  const { command } = v.parse(NewToken, await post(acme, "registration_tokens/", body));
  const here = [
    "--config-root",
    join(root, host.name),
    "--mode",
    "server",
    "--no-start",
    "--json",
    "--overlay-binary",
    engine,
  ];
  mkdirSync(join(root, host.name));
  const child = Bun.spawn(
    ["sh", "-c", [command, "--node-name", host.name, ...here, ...flags].join(" ")],
    // PATH contains `agent`, as on a machine where it is installed.
    {
      env: cleanEnvironment({ PATH: `${dirname(agent)}:/usr/sbin:/usr/bin:/sbin:/bin` }),
      stdout: "pipe",
      stderr: "ignore",
    },
  );
  const text = await new Response(child.stdout).text();
  return { ...v.parse(Registered, JSON.parse(text)), host };
}

export function end(engines: RunningEngine[]): void {
  for (const engine of engines) {
    expect(engine.log()).not.toContain("panic");
    engine[Symbol.dispose]();
  }
}
