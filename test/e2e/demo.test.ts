// `agent demo` on each engine: its figures are there, and nothing that it made is left, however it ends.

import { afterAll, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import * as v from "valibot";
import { agent, agentJson, buildAgent, cleanEnvironment } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const ms = v.pipe(v.number(), v.minValue(0));
const Result = v.object({
  register_ms: ms,
  first_handshake_ms: ms,
  first_ping_ms: ms,
  revocation_to_last_ping_ms: ms,
  engine_version: v.string(),
});

/** Where demos make their directories: another test file may run one at the same time. */
const place = temporaryDirectory();
const env = { TMPDIR: place.path };
afterAll(() => place[Symbol.dispose]());

/** Whatever a demo could leave: its temporary directory, a namespace, a process that has the directory's name. */
function traces(): string[] {
  const directories = readdirSync(place.path);
  const namespaces = Bun.spawnSync(["ip", "netns", "list"]).stdout.toString();
  const processes = Bun.spawnSync(["ps", "-eo", "pid,args"])
    .stdout.toString()
    .split("\n")
    .filter((line) => line.includes(place.path) || line.includes(`${agent} demo`));
  return [
    ...directories,
    ...namespaces.split("\n").filter((line) => /^(hub|lighthouse|alpha|beta)\b/.test(line)),
    ...processes,
  ];
}

/** What an earlier run that was ended from outside has left is none of ours. */
const before = new Set(traces());
const leftovers = () => traces().filter((each) => !before.has(each));

asRoot("agent demo", () => {
  describeEngines("runs", ({ nebula, version }) => {
    test("within its bars", async () => {
      const result = v.parse(Result, await agentJson(["demo", "--overlay-binary", nebula], { env }));
      expect(result.engine_version).toBe(version);
      // Bars with room for a machine that is busy; the README has the figures of a quiet one.
      expect(result.first_ping_ms).toBeLessThan(5000);
      expect(result.revocation_to_last_ping_ms).toBeLessThan(6000);
      expect(leftovers()).toEqual([]);
    }, 60_000);
  });

  describeEngines("is stopped", ({ nebula }) => {
    // Ctrl-C goes to the whole group, SIGTERM to the process that was started; SIGKILL leaves it no word.
    const ends = [
      { signal: "SIGINT", group: true },
      { signal: "SIGTERM", group: false },
      { signal: "SIGKILL", group: false },
    ] as const;
    for (const { signal, group } of ends) {
      test(`by ${signal}, and leaves nothing`, async () => {
        const child = Bun.spawn([agent, "demo", "--overlay-binary", nebula], {
          env: cleanEnvironment(env),
          stdin: "ignore",
          stdout: "ignore",
          stderr: "pipe",
          detached: true,
        });
        // In the middle: the engines run and ping each other.
        let said = "";
        for await (const chunk of child.stderr) {
          said += new TextDecoder().decode(chunk);
          if (said.includes("ping ")) break;
        }
        expect(said).toContain("ping ");
        process.kill(group ? -child.pid : child.pid, signal);
        expect(await child.exited).not.toBe(0);
        for (let waited = 0; leftovers().length > 0 && waited < 5000; waited += 50) await Bun.sleep(50);
        expect(leftovers()).toEqual([]);
      }, 60_000);
    }
  });
});
